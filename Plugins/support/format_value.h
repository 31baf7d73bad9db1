/* Decodes and encodes one value of a plugin's format; implemented by each plugin. */
#ifndef FORMAT_VALUE_H
#define FORMAT_VALUE_H
#include "format_util.h"

/* Reads the value at `*offset`, and moves `*offset` past it. `how`: the instance of the decoder, NULL for the defaults. `stack`: empty before
 * and after; freed by the caller. */
int decode_value(rxd_scope *scope, const void *how, rxd_text input, size_t *offset, value_stack *stack, rxd_value *value);
/* The caller initializes and frees `output`. */
int encode_value(rxd_scope *scope, const rxd_value *value, output_bytes *output);
#endif
