/* Converts between GELF messages and values of rxd. */
#ifndef GELF_H
#define GELF_H
#include "format_util.h"

enum {
  CHUNK_HEAD = 12,  /* bytes 1e 0f, 8 bytes of message id, chunk number, number of chunks */
  CHUNKS_MOST = 128,
};

/* The reason of this thread's last failure; codecs pass it to `fail`, operators to `reject`. */
extern _Thread_local char refusal[512];
__attribute__((format(printf, 1, 2))) int refuse(const char *format, ...);

/* A decoder's parameters. */
typedef struct reading {
  size_t limit;    /* maximum bytes of a decompressed message */
  bool is_strict;  /* refuses messages that GELF 1.1 does not allow */
} reading;

typedef enum compression { COMPRESS_NONE, COMPRESS_ZLIB, COMPRESS_GZIP } compression;

/* An encoder's parameters. */
typedef struct writing {
  char *host;  /* default for events without a host */
  compression compression;
} writing;

static inline bool is_chunk(rxd_text input) {
  return input.count >= 2 && input.bytes[0] == 0x1e && input.bytes[1] == 0x0f;
}

/* Appends the events of an input that is not a chunk: one or more documents separated by zero bytes, possibly
 * compressed. */
int decode_gelf(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events);

/* Appends the message of an event. The caller initializes and frees `output`. */
int encode_gelf(const writing *how, rxd_scope *scope, const rxd_value *event, output_bytes *output);

/* The operators. */
extern const rxd_component join_component, split_component;

/* Read the parameters that several components share. */
int open_reading(const rxd_opening *opening, reading *to);
int open_writing(const rxd_opening *opening, writing *to);
#endif
