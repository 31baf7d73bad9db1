/* Converts between MessagePack and values of rxd. */
#ifndef MSGPACK_FORMAT_H
#define MSGPACK_FORMAT_H
#include "format_value.h"

/* The decoder's options in the pipeline file: `how` of `decode_value`. */
typedef struct {
  bool keeps_bytes; /* a string that is not UTF-8 becomes bytes */
} reading;
#endif
