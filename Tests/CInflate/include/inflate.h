#ifndef INFLATE_H
#define INFLATE_H
#include <stddef.h>
/// Decompresses a complete gzip or zstd body into `out`. Returns the number of decompressed bytes, or -1 if the body has
/// neither format, is damaged, or has trailing or missing bytes.
long inflate_body(const void *bytes, size_t count, void *out, size_t capacity);
#endif
