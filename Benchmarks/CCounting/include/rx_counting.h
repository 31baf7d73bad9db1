#ifndef RX_COUNTING_H
#define RX_COUNTING_H

/// What one thread did.
typedef struct {
  /// Calls of malloc and related functions.
  unsigned long allocations;
  /// Calls of the Swift runtime that retain or release an object, strongly or not; 0 if they are not counted.
  unsigned long references;
} rx_counts;

/// Whether references are counted: only in programs linked with `--wrap` for each function of rx_references.c.
int rx_counting_references(void);

/// Starts counting for the calling thread, from zero.
void rx_counting_start(void);

/// Stops counting for the calling thread, and returns the counts.
rx_counts rx_counting_stop(void);

#endif
