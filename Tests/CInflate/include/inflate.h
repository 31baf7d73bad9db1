#ifndef INFLATE_H
#define INFLATE_H
#include <stddef.h>
/// Decompresses one whole body of gzip or zstd, whichever it begins like, into `out`; how many bytes that gave, or -1 if it is
/// neither, damaged, or does not end where the body does.
long inflate_body(const void *bytes, size_t count, void *out, size_t capacity);
#endif
