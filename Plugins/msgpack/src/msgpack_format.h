/* MessagePack and values of rxd. */
#ifndef MSGPACK_FORMAT_H
#define MSGPACK_FORMAT_H
#include "format_util.h"

/* What decoding and encoding do with the choices of the pipeline file. */
typedef struct {
  bool keeps_bytes; /* a string that is not UTF-8 becomes bytes */
} reading;

/* Reads the value at `*offset`, and moves `*offset` behind it. `stack`: empty before and after; freed by the caller. */
int decode_value(rxd_scope *scope, const reading *how, rxd_text input, size_t *offset, value_stack *stack, rxd_value *value);

/* `output` is begun and freed by the caller. */
int encode_value(rxd_scope *scope, const rxd_value *value, output_bytes *output);
#endif
