#include "pack.h"

#include <zlib.h>
#include <zstd.h>

enum { PIECE = 64 << 10, WINDOW_LOG_MOST = 27 };

struct unpacker {
  packing packing;
  z_stream zlib;
  ZSTD_DStream *zstd;
  bool is_inside;     /* inside a member or a frame */
  bool has_begun;
  const char *problem;
  size_t taken;       /* bytes of packed content consumed */
  char piece[PIECE];
};

unpacker *unpacker_make(packing packing) {
  unpacker *self = calloc(1, sizeof *self);
  if (self == NULL) abort();
  self->packing = packing;
  if (packing == PACKED_GZIP && inflateInit2(&self->zlib, 15 + 16) != Z_OK) abort();
  if (packing == PACKED_ZSTD) {
    self->zstd = ZSTD_createDStream();
    if (self->zstd == NULL) abort();
    ZSTD_DCtx_setParameter(self->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MOST);
  }
  return self;
}

void unpacker_free(unpacker *self) {
  if (self == NULL) return;
  if (self->packing == PACKED_GZIP) inflateEnd(&self->zlib);
  if (self->zstd != NULL) ZSTD_freeDStream(self->zstd);
  free(self);
}

const char *unpacker_problem(const unpacker *self) { return self->problem; }
size_t unpacker_taken(const unpacker *self) { return self->taken; }

static bool damaged(unpacker *self, const char *problem) {
  self->problem = problem;
  return false;
}

/* gzip content may consist of several members. */
static bool feed_gzip(unpacker *self, const char *bytes, size_t count, take_content *take, void *closure) {
  z_stream *zlib = &self->zlib;
  zlib->next_in = (Bytef *)(uintptr_t)bytes;
  zlib->avail_in = (uInt)count;
  while (zlib->avail_in > 0) {
    if (!self->is_inside && self->has_begun) inflateReset(zlib);
    self->is_inside = self->has_begun = true;
    do {
      zlib->next_out = (Bytef *)self->piece;
      zlib->avail_out = PIECE;
      uInt before = zlib->avail_in;
      int status = inflate(zlib, Z_NO_FLUSH);
      self->taken += before - zlib->avail_in;
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        return damaged(self, zlib->msg != NULL ? zlib->msg : "the data is damaged");
      if (PIECE - zlib->avail_out > 0 && !take(closure, self->piece, PIECE - zlib->avail_out)) return false;
      if (status == Z_STREAM_END) {
        self->is_inside = false;
        break;
      }
    } while (zlib->avail_out == 0 || zlib->avail_in > 0);
  }
  return true;
}

static bool feed_zstd(unpacker *self, const char *bytes, size_t count, take_content *take, void *closure) {
  ZSTD_inBuffer in = {bytes, count, 0};
  ZSTD_outBuffer out;
  do {
    out = (ZSTD_outBuffer){self->piece, PIECE, 0};
    size_t before = in.pos, left = ZSTD_decompressStream(self->zstd, &out, &in);
    self->taken += in.pos - before;
    if (ZSTD_isError(left)) return damaged(self, ZSTD_getErrorName(left));
    self->is_inside = left != 0;
    if (out.pos > 0 && !take(closure, self->piece, out.pos)) return false;
  } while (in.pos < in.size || out.pos == out.size);
  return true;
}

bool unpacker_feed(unpacker *self, const char *bytes, size_t count, take_content *take, void *closure) {
  if (count == 0) return true;
  if (self->packing == PACKED_GZIP) return feed_gzip(self, bytes, count, take, closure);
  if (self->packing == PACKED_ZSTD) {
    self->has_begun = true;
    return feed_zstd(self, bytes, count, take, closure);
  }
  return take(closure, bytes, count);
}

/* An object of zero bytes is empty content, whatever its name suggests. */
bool unpacker_end(unpacker *self) { return !self->is_inside || damaged(self, "the data ends in the middle"); }

static void pack_gzip(const char *bytes, size_t count, buffer *packed) {
  z_stream zlib = {0};
  if (deflateInit2(&zlib, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
  uLong bound = deflateBound(&zlib, count);
  buffer_reserve(packed, bound);
  zlib.next_in = (Bytef *)(uintptr_t)bytes;
  zlib.avail_in = (uInt)count;
  zlib.next_out = (Bytef *)packed->bytes + packed->count;
  zlib.avail_out = (uInt)bound;
  if (deflate(&zlib, Z_FINISH) != Z_STREAM_END) abort();
  packed->count += zlib.total_out;
  deflateEnd(&zlib);
}

static void pack_zstd(const char *bytes, size_t count, buffer *packed) {
  size_t bound = ZSTD_compressBound(count);
  buffer_reserve(packed, bound);
  size_t made = ZSTD_compress(packed->bytes + packed->count, bound, bytes, count, 3);
  if (ZSTD_isError(made)) abort();
  packed->count += made;
}

void pack(packing packing, const char *bytes, size_t count, buffer *packed) {
  if (packing == PACKED_GZIP) pack_gzip(bytes, count, packed);
  else if (packing == PACKED_ZSTD) pack_zstd(bytes, count, packed);
  else buffer_add(packed, bytes, count);
}
