#ifndef RX_COUNTING_H
#define RX_COUNTING_H

/// What one thread did.
typedef struct {
  /// Calls of malloc and its kin.
  unsigned long allocations;
  /// Calls of the Swift runtime that retain or release an object, of whatever strength; 0 where not counted.
  unsigned long references;
} rx_counts;

/// Whether references are counted: in programs linked with `--wrap` for each function of rx_references.c.
int rx_counting_references(void);

/// Begins to count what the calling thread does, from zero.
void rx_counting_start(void);

/// Ends the counting of the calling thread.
rx_counts rx_counting_stop(void);

#endif
