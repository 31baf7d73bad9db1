#include "rx_compress.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

// The functions of the libraries, by the types that their headers give them.
static struct {
  __typeof__(&deflateInit2_) init;
  __typeof__(&deflateBound) bound;
  __typeof__(&deflate) deflate;
  __typeof__(&deflateReset) reset;
  __typeof__(&deflateEnd) end;
} zlib;
static struct {
  __typeof__(&ZSTD_createCCtx) create;
  __typeof__(&ZSTD_freeCCtx) free;
  __typeof__(&ZSTD_compressBound) bound;
  __typeof__(&ZSTD_compressCCtx) compress;
  __typeof__(&ZSTD_isError) is_error;
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
  has_zstd = true;
}

bool rx_compress_load(int format) {
  pthread_once(format == RX_GZIP ? &zlib_once : &zstd_once, format == RX_GZIP ? load_zlib : load_zstd);
  return format == RX_GZIP ? has_zlib : has_zstd;
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
  // 16 beside the window's 15 bits asks for the frame of gzip, 8 is zlib's own measure of memory.
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
  // zlib counts what it is given in 32 bits.
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
