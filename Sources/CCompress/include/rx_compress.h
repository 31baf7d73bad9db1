// zlib and libzstd, each loaded at its first use, like libcurl, which depends on both.
#ifndef RX_COMPRESS_H
#define RX_COMPRESS_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
enum { RX_GZIP, RX_ZSTD, RX_DEFLATE };
/// Loads the library of the format; false: it is not installed.
bool rx_compress_load(int format);
/// Compresses one body after the other; for one thread at a time.
typedef struct rx_compressor rx_compressor;
/// `level`: 1 to 9 for gzip, 1 to 19 for zstd. NULL if the library is not installed or memory is short.
rx_compressor *rx_compressor_new(int format, int level);
void rx_compressor_free(rx_compressor *compressor);
/// The maximum compressed size of `count` bytes; 0 if that many cannot be compressed at once.
size_t rx_compress_bound(rx_compressor *compressor, size_t count);
/// Compresses `count` bytes to `out`; returns the compressed size, or 0 on failure. `capacity` must be at least the
/// result of `rx_compress_bound`. The same bytes give the same result.
size_t rx_compress(rx_compressor *compressor, const void *bytes, size_t count, void *out, size_t capacity);
/// Decompresses one body; for one thread at a time.
typedef struct rx_decompressor rx_decompressor;
/// NULL if the library is not installed or memory is short.
rx_decompressor *rx_decompressor_new(int format);
void rx_decompressor_free(rx_decompressor *decompressor);
enum { RX_MORE, RX_WHOLE, RX_DAMAGED };
/// Decompresses from `bytes`, the whole rest of the body, to `out`, which has room for at least one byte; `used` and
/// `made` are the numbers of bytes consumed and written. RX_WHOLE: the body is consumed and complete. RX_MORE: call
/// again with the rest and with room. RX_DAMAGED: the body is truncated, or not in this format.
int rx_decompress(
  rx_decompressor *decompressor, const void *bytes, size_t count, size_t *used, void *out, size_t room, size_t *made);
#ifdef __cplusplus
}
#endif
#endif
