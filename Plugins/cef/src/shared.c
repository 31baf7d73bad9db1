/* Functions shared by both formats. */
#include "cef.h"

ptrdiff_t find_mark(rxd_text line, const char *mark) {
  size_t count = strlen(mark);
  for (const char *at = line.bytes, *end = line.bytes + line.count; at < end;) {
    const char *found = memmem(at, (size_t)(end - at), mark, count);
    if (found == NULL) return -1;
    if (found == line.bytes || !isalnum((unsigned char)found[-1])) return found - line.bytes;
    at = found + count;
  }
  return -1;
}

/* Compares members by name, then by position. */
static int compare_members(const void *a, const void *b) {
  const rxd_text *left = *(const rxd_text *const *)a, *right = *(const rxd_text *const *)b;
  int order = compare_names(left, right);
  return order != 0 ? order : left < right ? -1 : 1;
}

/* Removes all but the last member of each name. */
static void keep_last(value_stack *stack, size_t start) {
  size_t count = stack->count - start, kept = 0;
  const rxd_text **order = need(malloc(count * sizeof *order));
  bool *is_dropped = need(calloc(count, sizeof *is_dropped));
  for (size_t i = 0; i < count; i++) order[i] = &stack->names[start + i];
  qsort(order, count, sizeof *order, compare_members);
  for (size_t i = 0; i + 1 < count; i++)
    if (compare_names(order[i], order[i + 1]) == 0) is_dropped[order[i] - &stack->names[start]] = true;
  for (size_t i = 0; i < count; i++) {
    if (is_dropped[i]) continue;
    stack->names[start + kept] = stack->names[start + i];
    stack->values[start + kept++] = stack->values[start + i];
  }
  stack->count = start + kept;
  free(is_dropped);
  free(order);
}

rxd_value object_of(rxd_scope *scope, value_stack *stack, size_t start) {
  rxd_text twice;
  if (stack->count - start > 1 && repeated_name(stack->names + start, stack->count - start, &twice) != NULL) keep_last(stack, start);
  return pop_object(scope, stack, start);
}
