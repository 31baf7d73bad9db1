// A program that links this counts the heap allocations of its threads: these definitions of malloc take precedence
// over the C library's.
#include "rx_counting.h"
#include "rx_references.h"

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

void rx_counting_start(void) {
  counts = (rx_counts){.references = rx_references};
  counts_here = true;
}

rx_counts rx_counting_stop(void) {
  counts_here = false;
  counts.references = rx_references - counts.references;
  return counts;
}
