#include "gzip.h"

#include <zlib.h>

#include <new>

enum { GZIP = 16 + MAX_WBITS, STEP = 64 << 10 };

Unpacked gunzip(std::string_view packed, size_t most, std::string &bytes) {
  z_stream stream = {};
  if (inflateInit2(&stream, GZIP) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int status = Z_OK;
  while (status == Z_OK && bytes.size() <= most) {
    size_t before = bytes.size();
    bytes.resize(before + STEP);
    stream.next_out = reinterpret_cast<Bytef *>(&bytes[before]);
    stream.avail_out = STEP;
    status = inflate(&stream, Z_NO_FLUSH);
    bytes.resize(bytes.size() - stream.avail_out);
    if (status == Z_STREAM_END && stream.avail_in > 0) status = inflateReset(&stream); /* another gzip member follows */
    else if (status == Z_OK && bytes.size() == before && stream.avail_in == 0) break;  /* the stream is truncated */
  }
  inflateEnd(&stream);
  if (bytes.size() > most) return Unpacked::too_large;
  return status == Z_STREAM_END ? Unpacked::done : Unpacked::damaged;
}

void gzip(std::string_view bytes, std::string &packed) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  packed.resize(deflateBound(&stream, bytes.size()));
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef *>(&packed[0]);
  stream.avail_out = static_cast<uInt>(packed.size());
  int status = deflate(&stream, Z_FINISH);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::bad_alloc();
}
