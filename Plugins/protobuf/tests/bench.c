/* Benchmark of the plugin and of libprotobuf (bench_library.cc). */
#define PARAMETERS {{"descriptors", "build/bench.pb"}, {"message", "bench.Reading"}, {"framing", "delimited"}}
#include "../../testing/bench_format.h"

extern int library_decode(const char *bytes, size_t count);
extern void library_prepare(const char *bytes, size_t count);
extern size_t library_encode(void);

static int plain_decode(const char *bytes, size_t count) { return library_decode(bytes, count); }
static void plain_prepare(const char *bytes, size_t count) { library_prepare(bytes, count); }
static size_t plain_encode(void) { return library_encode(); }
