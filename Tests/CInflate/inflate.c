#include "inflate.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

long inflate_body(const void *bytes, size_t count, void *out, size_t capacity) {
  if (count >= 4 && memcmp(bytes, "\x28\xB5\x2F\xFD", 4) == 0) {
    const size_t done = ZSTD_decompress(out, capacity, bytes, count);
    return ZSTD_isError(done) ? -1 : (long)done;
  }
  z_stream stream = {.next_in = (Bytef *)bytes, .avail_in = (uInt)count, .next_out = out, .avail_out = (uInt)capacity};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return -1;
  const int code = inflate(&stream, Z_FINISH);
  const long done = code == Z_STREAM_END && stream.avail_in == 0 ? (long)stream.total_out : -1;
  inflateEnd(&stream);
  return done;
}
