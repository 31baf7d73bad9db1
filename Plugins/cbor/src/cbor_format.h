/* CBOR and values of rxd. */
#ifndef CBOR_FORMAT_H
#define CBOR_FORMAT_H
#include "format_util.h"

/* Reads the value at `*offset`, and moves `*offset` behind it. `stack`: empty before and after; freed by the caller. */
int decode_value(rxd_scope *scope, rxd_text input, size_t *offset, value_stack *stack, rxd_value *value);

/* `output` is begun and freed by the caller. */
int encode_value(rxd_scope *scope, const rxd_value *value, output_bytes *output);
#endif
