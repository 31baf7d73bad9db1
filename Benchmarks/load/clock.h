// Clocks for measuring.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/// Nanoseconds of the monotonic clock.
static inline int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static inline void sleep_until(int64_t when) {
  const struct timespec time = {when / 1000000000, when % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static int in_order(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/// Prints `name`s of the sorted samples as JSON members, in milliseconds.
static inline void print_percentiles(int64_t *samples, size_t count) {
  qsort(samples, count, sizeof *samples, in_order);
  const double shares[] = {0.5, 0.9, 0.99, 0.999};
  const char *names[] = {"p50", "p90", "p99", "p999"};
  for (int i = 0; i < 4; i++) {
    const size_t at = count ? (size_t)(shares[i] * (count - 1)) : 0;
    printf("\"%s\": %.4f, ", names[i], count ? samples[at] / 1e6 : 0.0);
  }
  printf("\"max\": %.4f", count ? samples[count - 1] / 1e6 : 0.0);
}
