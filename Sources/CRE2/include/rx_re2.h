#ifndef RX_RE2_H
#define RX_RE2_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/// A compiled pattern; immutable and safe to share between threads.
typedef struct rx_re2 rx_re2;
/// Compiles UTF-8 `pattern` in RE2's syntax. Never null; `rx_re2_error` reports whether the result is usable.
rx_re2 *rx_re2_compile(const char *pattern, size_t length);
void rx_re2_free(rx_re2 *re);
/// The reason why the pattern does not compile, or null. `*offset` is the offset of the offending part in the pattern,
/// in bytes, or -1 if RE2 does not say.
const char *rx_re2_error(const rx_re2 *re, long *offset);
/// Whether the pattern matches anywhere in the text. Linear in `length`.
bool rx_re2_matches(const rx_re2 *re, const char *text, size_t length);
/// The number of capturing groups.
int rx_re2_group_count(const rx_re2 *re);
/// The name of group `index` (from 1), or null if it has none. Lives as long as `re`.
const char *rx_re2_group_name(const rx_re2 *re, int index);
/// Matches from `start`; on success fills `count` pairs (start, end) of byte offsets, pair 0 the whole match; a group
/// that did not participate has -1, -1. `anchored`: 0 anywhere, 1 at start, 2 the whole text.
bool rx_re2_find(
  const rx_re2 *re, const char *text, size_t length, size_t start, int anchored, long *pairs, int count);
#ifdef __cplusplus
}
#endif
#endif
