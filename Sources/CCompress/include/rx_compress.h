// zlib and libzstd, each loaded when it is first used, as libcurl is, which brings both with it.
#ifndef RX_COMPRESS_H
#define RX_COMPRESS_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
enum { RX_GZIP, RX_ZSTD, RX_DEFLATE };
/// Whether the library of that format is installed.
bool rx_compress_load(int format);
/// Compresses one body after the other; for one thread at a time.
typedef struct rx_compressor rx_compressor;
/// `level`: 1 to 9 of gzip, 1 to 19 of zstd. NULL where the library is not installed or memory is short.
rx_compressor *rx_compressor_new(int format, int level);
void rx_compressor_free(rx_compressor *compressor);
/// How many bytes `count` bytes become at most; 0 if so many cannot be compressed at once.
size_t rx_compress_bound(rx_compressor *compressor, size_t count);
/// Writes `count` bytes, compressed, to `out`; how many these are, or 0 if that has failed. `capacity` is at least what
/// `rx_compress_bound` has said. The same bytes give the same result.
size_t rx_compress(rx_compressor *compressor, const void *bytes, size_t count, void *out, size_t capacity);
/// Decompresses one body; for one thread at a time.
typedef struct rx_decompressor rx_decompressor;
/// NULL where the library is not installed or memory is short.
rx_decompressor *rx_decompressor_new(int format);
void rx_decompressor_free(rx_decompressor *decompressor);
enum { RX_MORE, RX_WHOLE, RX_DAMAGED };
/// Decompresses from `bytes`, all that is left of the body, to `out`, which has room for at least one byte; `used` and `made` are
/// the bytes taken and written. RX_WHOLE: the body has been taken and ends well. RX_MORE: call again with the rest
/// and with room. RX_DAMAGED: the body ends too early, or is not of this format.
int rx_decompress(
  rx_decompressor *decompressor, const void *bytes, size_t count, size_t *used, void *out, size_t room, size_t *made);
#ifdef __cplusplus
}
#endif
#endif
