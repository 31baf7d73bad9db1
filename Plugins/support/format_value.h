/* What decodes and encodes a value of a plugin's format. */
#ifndef FORMAT_VALUE_H
#define FORMAT_VALUE_H
#include "format_util.h"

/* Reads the value at `*offset`, and moves `*offset` behind it. `how`: the instance of the decoder, NULL for the defaults. `stack`: empty before
 * and after; freed by the caller. */
int decode_value(rxd_scope *scope, const void *how, rxd_text input, size_t *offset, value_stack *stack, rxd_value *value);
/* `output` is begun and freed by the caller. */
int encode_value(rxd_scope *scope, const rxd_value *value, output_bytes *output);
#endif
