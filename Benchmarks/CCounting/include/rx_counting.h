#ifndef RX_COUNTING_H
#define RX_COUNTING_H

/// What one thread did: calls of malloc and its kin, and of the Swift runtime's retain and release.
typedef struct {
  unsigned long allocations;
  unsigned long retains;
  unsigned long releases;
} rx_counts;

/// Counts references too, from now on; to be called before there are other threads.
void rx_counting_references(void);

/// Begins to count what the calling thread does, from zero.
void rx_counting_start(void);

/// Ends the counting of the calling thread.
rx_counts rx_counting_stop(void);

#endif
