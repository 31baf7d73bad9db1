/* The components of a plugin for one format: a decoder and an encoder with its name, and the functions `decode` and `encode`. Included by the
 * one file that defines FORMAT, `spec` (INCLUDE_FILE) and `open_decoder`, which may create an instance for `decode_value`. */
#ifndef FORMAT_PLUGIN_H
#define FORMAT_PLUGIN_H
#include "format_value.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;

/* Decodes all values of the input, one after another. */
static int decode_all(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  rxd_text input = host->text(scope, event);
  value_stack events = {0}, stack = {0};
  int status = RXD_OK;
  for (size_t offset = 0; offset < input.count && status == RXD_OK;) {
    rxd_value value;
    status = decode_value(scope, instance, input, &offset, &stack, &value);
    if (status == RXD_OK) push_value(&events, value);
  }
  if (status == RXD_OK) *event = pop_list(scope, &events, 0);
  free_values(&events);
  free_values(&stack);
  return status;
}

static int encode_one(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance;
  (void)arguments;
  output_bytes output;
  begin_output(&output);
  int status = encode_value(scope, event, &output);
  if (status == RXD_OK) *event = host->make_bytes(scope, (rxd_text){output.bytes, output.count});
  free_output(&output);
  return status;
}

/* ---- Functions ---- */

static int decode_function(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance;
  if (host->kind(&arguments[0]) != RXD_BYTES) return fail_at(scope, "", "the argument of " FORMAT ".decode is not bytes");
  rxd_text input = host->text(scope, &arguments[0]);
  if (input.count == 0) return fail_at(scope, "", "there are no bytes, and so no value");
  size_t offset = 0;
  value_stack stack = {0};
  int status = decode_value(scope, NULL, input, &offset, &stack, result);
  free_values(&stack);
  if (status != RXD_OK) return status;
  if (offset < input.count) return fail_at(scope, "", "the value ends before byte %zu, and %zu more bytes follow", offset, input.count - offset);
  return RXD_OK;
}

static int encode_function(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  *result = arguments[0];
  return encode_one(instance, scope, result, NULL);
}

/* ---- The plugin ---- */

static const rxd_component components[] = {
    {NAMED("decoder", FORMAT), .open = open_decoder, .close = free, .row = decode_all},
    {NAMED("encoder", FORMAT), .row = encode_one},
    {NAMED("function", "decode"), .row = decode_function},
    {NAMED("function", "encode"), .row = encode_function},
};

#include "format_entry.h"
#endif
