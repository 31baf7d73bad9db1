/* Converts values to CBOR, each in its shortest form. */
#include <cbor.h>

#include "format_value.h"

/* The maximum number of bytes before the content of a value. */
#define HEAD 9

/* Appends the output of a libcbor function. */
#define PUT(output, function, ...)                                                                              \
  do {                                                                                                          \
    unsigned char *room = (unsigned char *)output_room((output), HEAD);                                         \
    (output)->count += function(__VA_ARGS__ __VA_OPT__(,) room, HEAD);                                          \
  } while (0)

typedef struct {
  rxd_scope *scope;
  output_bytes *output;
} writer;

static int encode(writer *writer, const rxd_value *value, int depth);

static void encode_text(output_bytes *output, rxd_text text) {
  PUT(output, cbor_encode_string_start, text.count);
  output_append(output, text.bytes, text.count);
}

static int encode_list(writer *writer, const rxd_value *value, int depth) {
  rxd_scope *scope = writer->scope;
  output_bytes *output = writer->output;
  size_t count = host->count(scope, value);
  PUT(output, cbor_encode_array_start, count);
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(scope, value, i);
    if (encode(writer, &element, depth) != RXD_OK) return RXD_FAILED;
  }
  return RXD_OK;
}

static int encode_object(writer *writer, const rxd_value *value, int depth) {
  rxd_scope *scope = writer->scope;
  output_bytes *output = writer->output;
  size_t count = host->count(scope, value);
  rxd_text few[32], *names = count <= 32 ? few : need(malloc(count * sizeof *names));
  PUT(output, cbor_encode_map_start, count);
  int status = RXD_OK;
  for (size_t i = 0; i < count && status == RXD_OK; i++) {
    names[i] = (rxd_text){NULL, 0};
    rxd_value member = host->entry(scope, value, i, &names[i]);
    if (status != RXD_OK) break;
    encode_text(output, names[i]);
    status = encode(writer, &member, depth);
  }
  rxd_text twice;
  if (status == RXD_OK && repeated_name(names, count, &twice) != NULL)
    status = fail_at(scope, "", "an object has the member '%.*s' twice", shown_count(twice), twice.bytes);
  if (names != few) free(names);
  return status;
}

static int encode(writer *writer, const rxd_value *value, int depth) {
  rxd_scope *scope = writer->scope;
  output_bytes *output = writer->output;
  switch (host->kind(value)) {
    case RXD_NULL: case RXD_ABSENT: PUT(output, cbor_encode_null); break;
    case RXD_BOOL: PUT(output, cbor_encode_bool, host->boolean(value)); break;
    case RXD_INT: {
      int64_t number = host->integer(value);
      if (number < 0) PUT(output, cbor_encode_negint, (uint64_t)(-1 - number));
      else PUT(output, cbor_encode_uint, (uint64_t)number);
      break;
    }
    case RXD_UINT: PUT(output, cbor_encode_uint, host->unsigned_integer(value)); break;
    case RXD_DOUBLE: PUT(output, cbor_encode_double, host->number(value)); break;
    case RXD_TEXT: encode_text(output, host->text(scope, value)); break;
    case RXD_BYTES: {
      rxd_text bytes = host->text(scope, value);
      PUT(output, cbor_encode_bytestring_start, bytes.count);
      output_append(output, bytes.bytes, bytes.count);
      break;
    }
    case RXD_LIST: case RXD_OBJECT:
      if (depth == DEPTH_LIMIT) return fail_at(scope, "", "the event is nested more deeply than %d levels", DEPTH_LIMIT);
      return host->kind(value) == RXD_LIST ? encode_list(writer, value, depth + 1)
                                           : encode_object(writer, value, depth + 1);
    case RXD_TIMESTAMP:
      PUT(output, cbor_encode_tag, 0);
      encode_text(output, plain_text(scope, value));
      break;
    case RXD_DURATION: encode_text(output, plain_text(scope, value)); break;
    default: return fail_at(scope, "", "the event has a value that CBOR cannot have");
  }
  return RXD_OK;
}

int encode_value(rxd_scope *scope, const rxd_value *value, output_bytes *output) {
  writer writer = {.scope = scope, .output = output};
  return encode(&writer, value, 0);
}
