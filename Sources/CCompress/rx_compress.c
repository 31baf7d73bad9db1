#include "rx_compress.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

// The functions of the libraries, with the types from their headers.
static struct {
  __typeof__(&deflateInit2_) init;
  __typeof__(&deflateBound) bound;
  __typeof__(&deflate) deflate;
  __typeof__(&deflateReset) reset;
  __typeof__(&deflateEnd) end;
  __typeof__(&inflateInit2_) inflate_init;
  __typeof__(&inflate) inflate;
  __typeof__(&inflateReset) inflate_reset;
  __typeof__(&inflateEnd) inflate_end;
} zlib;
static struct {
  __typeof__(&ZSTD_createCCtx) create;
  __typeof__(&ZSTD_freeCCtx) free;
  __typeof__(&ZSTD_compressBound) bound;
  __typeof__(&ZSTD_compressCCtx) compress;
  __typeof__(&ZSTD_isError) is_error;
  __typeof__(&ZSTD_createDCtx) create_reader;
  __typeof__(&ZSTD_freeDCtx) free_reader;
  __typeof__(&ZSTD_DCtx_setParameter) set;
  __typeof__(&ZSTD_decompressStream) read;
} zstd;
static pthread_once_t zlib_once = PTHREAD_ONCE_INIT, zstd_once = PTHREAD_ONCE_INIT;
static bool has_zlib, has_zstd;

#define FIND(library, field, name) \
  if (!(library.field = (__typeof__(library.field))dlsym(handle, name))) return;

static void load_zlib(void) {
  void *handle = dlopen("libz.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return;
  FIND(zlib, init, "deflateInit2_")
  FIND(zlib, bound, "deflateBound")
  FIND(zlib, deflate, "deflate")
  FIND(zlib, reset, "deflateReset")
  FIND(zlib, end, "deflateEnd")
  FIND(zlib, inflate_init, "inflateInit2_")
  FIND(zlib, inflate, "inflate")
  FIND(zlib, inflate_reset, "inflateReset")
  FIND(zlib, inflate_end, "inflateEnd")
  has_zlib = true;
}

static void load_zstd(void) {
  void *handle = dlopen("libzstd.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return;
  FIND(zstd, create, "ZSTD_createCCtx")
  FIND(zstd, free, "ZSTD_freeCCtx")
  FIND(zstd, bound, "ZSTD_compressBound")
  FIND(zstd, compress, "ZSTD_compressCCtx")
  FIND(zstd, is_error, "ZSTD_isError")
  FIND(zstd, create_reader, "ZSTD_createDCtx")
  FIND(zstd, free_reader, "ZSTD_freeDCtx")
  FIND(zstd, set, "ZSTD_DCtx_setParameter")
  FIND(zstd, read, "ZSTD_decompressStream")
  has_zstd = true;
}

bool rx_compress_load(int format) {
  const bool is_zstd = format == RX_ZSTD;
  pthread_once(is_zstd ? &zstd_once : &zlib_once, is_zstd ? load_zstd : load_zlib);
  return is_zstd ? has_zstd : has_zlib;
}

struct rx_compressor {
  int format, level;
  z_stream stream;
  ZSTD_CCtx *context;
};

rx_compressor *rx_compressor_new(int format, int level) {
  if (!rx_compress_load(format)) return NULL;
  rx_compressor *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->format = format;
  made->level = level;
  // 16 added to the 15 window bits requests gzip's frame; 8 is zlib's default memory level.
  if (format == RX_GZIP
        ? zlib.init(&made->stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, sizeof(z_stream)) == Z_OK
        : (made->context = zstd.create()) != NULL)
    return made;
  free(made);
  return NULL;
}

void rx_compressor_free(rx_compressor *compressor) {
  if (!compressor) return;
  if (compressor->format == RX_GZIP) zlib.end(&compressor->stream);
  else zstd.free(compressor->context);
  free(compressor);
}

size_t rx_compress_bound(rx_compressor *compressor, size_t count) {
  if (compressor->format == RX_ZSTD) {
    const size_t bound = zstd.bound(count);
    return zstd.is_error(bound) ? 0 : bound;
  }
  // zlib counts its input in 32 bits.
  return count > INT_MAX ? 0 : zlib.bound(&compressor->stream, count);
}

size_t rx_compress(rx_compressor *compressor, const void *bytes, size_t count, void *out, size_t capacity) {
  if (compressor->format == RX_ZSTD) {
    const size_t done = zstd.compress(compressor->context, out, capacity, bytes, count, compressor->level);
    return zstd.is_error(done) ? 0 : done;
  }
  if (count > INT_MAX) return 0;
  z_stream *stream = &compressor->stream;
  stream->next_in = (Bytef *)bytes;
  stream->avail_in = (uInt)count;
  stream->next_out = out;
  stream->avail_out = capacity > UINT_MAX ? UINT_MAX : (uInt)capacity;
  const uInt room = stream->avail_out;
  const bool is_done = zlib.deflate(stream, Z_FINISH) == Z_STREAM_END;
  const size_t done = room - stream->avail_out;
  zlib.reset(stream);
  return is_done ? done : 0;
}

struct rx_decompressor {
  int format;
  bool has_begun, is_whole;
  z_stream stream;
  ZSTD_DCtx *context;
};

rx_decompressor *rx_decompressor_new(int format) {
  if (!rx_compress_load(format)) return NULL;
  rx_decompressor *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->format = format;
  if (format != RX_ZSTD) return made;
  made->context = zstd.create_reader();
  // RFC 9659: content sent over HTTP needs a window of at most 8 MiB.
  if (made->context && !zstd.is_error(zstd.set(made->context, ZSTD_d_windowLogMax, 23))) return made;
  rx_decompressor_free(made);
  return NULL;
}

void rx_decompressor_free(rx_decompressor *one) {
  if (!one) return;
  if (one->context) zstd.free_reader(one->context);
  if (one->format != RX_ZSTD && one->has_begun) zlib.inflate_end(&one->stream);
  free(one);
}

static int inflate_step(rx_decompressor *one, const void *bytes, size_t count, size_t *used, void *out, size_t room, size_t *made) {
  z_stream *stream = &one->stream;
  if (!one->has_begun) {
    const unsigned char *head = bytes;
    // "deflate" means zlib's frame (RFC 9110); some senders leave the frame out.
    const bool is_framed = count >= 2 && (head[0] & 15) == 8 && (head[0] << 8 | head[1]) % 31 == 0;
    const int bits = one->format == RX_GZIP ? 15 + 16 : is_framed ? 15 : -15;
    if (zlib.inflate_init(stream, bits, ZLIB_VERSION, sizeof(z_stream)) != Z_OK) return RX_DAMAGED;
    one->has_begun = true;
  } else if (one->is_whole) {
    // A body may have several members (RFC 1952, 2.2); anything else after the end is damage.
    if (count == 0) return RX_WHOLE;
    if (one->format != RX_GZIP || zlib.inflate_reset(stream) != Z_OK) return RX_DAMAGED;
    one->is_whole = false;
  }
  stream->next_in = (Bytef *)bytes;
  stream->avail_in = count > UINT_MAX ? UINT_MAX : (uInt)count;
  stream->next_out = out;
  stream->avail_out = room > UINT_MAX ? UINT_MAX : (uInt)room;
  const uInt given = stream->avail_in, free_before = stream->avail_out;
  const int code = zlib.inflate(stream, Z_NO_FLUSH);
  *used = given - stream->avail_in;
  *made = free_before - stream->avail_out;
  if (code == Z_STREAM_END) {
    one->is_whole = true;
    return *used == count ? RX_WHOLE : RX_MORE;
  }
  if (code != Z_OK && code != Z_BUF_ERROR) return RX_DAMAGED;
  return *used == 0 && *made == 0 ? RX_DAMAGED : RX_MORE;
}

int rx_decompress(rx_decompressor *one, const void *bytes, size_t count, size_t *used, void *out, size_t room, size_t *made) {
  *used = *made = 0;
  if (one->format != RX_ZSTD) return inflate_step(one, bytes, count, used, out, room, made);
  ZSTD_inBuffer in = {bytes, count, 0};
  ZSTD_outBuffer to = {out, room, 0};
  const size_t left = zstd.read(one->context, &to, &in);
  if (zstd.is_error(left)) return RX_DAMAGED;
  *used = in.pos;
  *made = to.pos;
  if (left == 0 && in.pos == count) return RX_WHOLE;
  return in.pos == 0 && to.pos == 0 ? RX_DAMAGED : RX_MORE;
}
