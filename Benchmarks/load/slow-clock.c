// Preloaded library: slows the clocks to a fiftieth, for a program that runs about fifty times as long under valgrind.
// What it does by time, such as timing some events every 50 ms, then happens as often per event as without valgrind.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { clocks = 16, factor = 50 };
static const int64_t second = 1000000000;

/// The first reading of each clock in nanoseconds; 0: not read yet.
static _Atomic int64_t began[clocks];

int clock_gettime(clockid_t clock, struct timespec *time) {
  const int result = (int)syscall(SYS_clock_gettime, clock, time);
  if (result || clock < 0 || clock >= clocks) return result;
  const int64_t now = time->tv_sec * second + time->tv_nsec;
  int64_t first = 0;
  if (atomic_compare_exchange_strong(&began[clock], &first, now)) first = now;
  const int64_t slow = first + (now - first) / factor;
  time->tv_sec = slow / second;
  time->tv_nsec = slow % second;
  return 0;
}

/// Waits until the slow clock shows the time. Otherwise a thread without work, whose time is long past for the kernel,
/// would not sleep but run in circles. All conditions of rxd go by the monotonic clock.
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  static int (*_Atomic real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(RTLD_NEXT, __func__);
  const int64_t first = began[CLOCK_MONOTONIC];
  int64_t wanted = until->tv_sec * second + until->tv_nsec;
  if (first && wanted > first) wanted = first + (wanted - first) * factor;
  const struct timespec time = {.tv_sec = wanted / second, .tv_nsec = wanted % second};
  return real(condition, mutex, &time);
}
