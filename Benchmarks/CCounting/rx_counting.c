// A program that links this counts what its threads take from the heap: the definitions of malloc here come
// before the C library's. References are counted through the hooks that the Swift runtime has for
// instruments, in programs that ask for it.
#include "rx_counting.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static __thread bool counts_here;
static __thread rx_counts counts;

void *malloc(size_t size) {
  if (counts_here) counts.allocations++;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  if (counts_here) counts.allocations++;
  return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
  if (counts_here) counts.allocations++;
  return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size) {
  if (counts_here) counts.allocations++;
  return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory ? 0 : 12;
}

extern void *(*_swift_retain)(void *object);
extern void (*_swift_release)(void *object);
extern void *(*_swift_retain_n)(void *object, unsigned count);
extern void (*_swift_release_n)(void *object, unsigned count);
extern atomic_bool _swift_enableSwizzlingOfAllocationAndRefCountingFunctions_forInstrumentsOnly;

static void *(*true_retain)(void *object);
static void (*true_release)(void *object);
static void *(*true_retain_n)(void *object, unsigned count);
static void (*true_release_n)(void *object, unsigned count);

// The runtime calls the hooks also for null, which costs nothing otherwise.
static bool is_object(void *object) { return (uintptr_t)object >= 4096; }

static void *retain(void *object) {
  if (!is_object(object)) return object;
  if (counts_here) counts.retains++;
  return true_retain(object);
}

static void release(void *object) {
  if (!is_object(object)) return;
  if (counts_here) counts.releases++;
  true_release(object);
}

static void *retain_n(void *object, unsigned count) {
  if (!is_object(object)) return object;
  if (counts_here) counts.retains++;
  return true_retain_n(object, count);
}

static void release_n(void *object, unsigned count) {
  if (!is_object(object)) return;
  if (counts_here) counts.releases++;
  true_release_n(object, count);
}

void rx_counting_references(void) {
  if (true_retain) return;
  true_retain = _swift_retain;
  true_release = _swift_release;
  true_retain_n = _swift_retain_n;
  true_release_n = _swift_release_n;
  _swift_retain = retain;
  _swift_release = release;
  _swift_retain_n = retain_n;
  _swift_release_n = release_n;
  atomic_store(&_swift_enableSwizzlingOfAllocationAndRefCountingFunctions_forInstrumentsOnly, true);
}

void rx_counting_start(void) {
  counts = (rx_counts){0};
  counts_here = true;
}

rx_counts rx_counting_stop(void) {
  counts_here = false;
  return counts;
}
