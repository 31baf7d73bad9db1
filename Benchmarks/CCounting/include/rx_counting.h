#ifndef RX_COUNTING_H
#define RX_COUNTING_H

/// What one thread did: calls of malloc and its kin.
typedef struct {
  unsigned long allocations;
} rx_counts;

/// Begins to count what the calling thread does, from zero.
void rx_counting_start(void);

/// Ends the counting of the calling thread.
rx_counts rx_counting_stop(void);

#endif
