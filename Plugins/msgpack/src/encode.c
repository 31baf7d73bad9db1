/* Converts values to MessagePack, each in its shortest form. */
#include <msgpack/pack.h>

#include "msgpack_format.h"

static int append(void *output, const char *bytes, size_t count) {
  output_append(output, bytes, count);
  return 0;
}

typedef struct {
  rxd_scope *scope;
  msgpack_packer packer;
} writer;

static int encode(writer *writer, const rxd_value *value, int depth);

static void encode_text(msgpack_packer *packer, rxd_text text) {
  msgpack_pack_str(packer, text.count);
  msgpack_pack_str_body(packer, text.bytes, text.count);
}

static int encode_list(writer *writer, const rxd_value *value, int depth) {
  rxd_scope *scope = writer->scope;
  msgpack_packer *packer = &writer->packer;
  size_t count = host->count(scope, value);
  if (count > UINT32_MAX) return fail_at(scope, "", "a list has more than %u elements", UINT32_MAX);
  msgpack_pack_array(packer, count);
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(scope, value, i);
    if (encode(writer, &element, depth) != RXD_OK) return RXD_FAILED;
  }
  return RXD_OK;
}

static int encode_object(writer *writer, const rxd_value *value, int depth) {
  rxd_scope *scope = writer->scope;
  msgpack_packer *packer = &writer->packer;
  size_t count = host->count(scope, value);
  if (count > UINT32_MAX) return fail_at(scope, "", "an object has more than %u members", UINT32_MAX);
  rxd_text few[32], *names = count <= 32 ? few : need(malloc(count * sizeof *names));
  msgpack_pack_map(packer, count);
  int status = RXD_OK;
  for (size_t i = 0; i < count && status == RXD_OK; i++) {
    names[i] = (rxd_text){NULL, 0};
    rxd_value member = host->entry(scope, value, i, &names[i]);
    if (names[i].count > UINT32_MAX) status = fail_at(scope, "", "a name has more than %u bytes", UINT32_MAX);
    if (status != RXD_OK) break;
    encode_text(packer, names[i]);
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
  msgpack_packer *packer = &writer->packer;
  switch (host->kind(value)) {
    case RXD_NULL: case RXD_ABSENT: msgpack_pack_nil(packer); break;
    case RXD_BOOL: host->boolean(value) ? msgpack_pack_true(packer) : msgpack_pack_false(packer); break;
    case RXD_INT: msgpack_pack_int64(packer, host->integer(value)); break;
    case RXD_UINT: msgpack_pack_uint64(packer, host->unsigned_integer(value)); break;
    case RXD_DOUBLE: msgpack_pack_double(packer, host->number(value)); break;
    case RXD_TEXT: case RXD_BYTES: {
      rxd_text text = host->text(scope, value);
      if (text.count > UINT32_MAX) return fail_at(scope, "", "a text has more than %u bytes", UINT32_MAX);
      if (host->kind(value) == RXD_TEXT) {
        encode_text(packer, text);
      } else {
        msgpack_pack_bin(packer, text.count);
        msgpack_pack_bin_body(packer, text.bytes, text.count);
      }
      break;
    }
    case RXD_LIST: case RXD_OBJECT:
      if (depth == DEPTH_LIMIT) return fail_at(scope, "", "the event is nested more deeply than %d levels", DEPTH_LIMIT);
      return host->kind(value) == RXD_LIST ? encode_list(writer, value, depth + 1)
                                           : encode_object(writer, value, depth + 1);
    case RXD_TIMESTAMP: {
      msgpack_timestamp time;
      if (!time_of(scope, value, &time.tv_sec, &time.tv_nsec)) return fail_at(scope, "", "a time cannot be read");
      msgpack_pack_timestamp(packer, &time);
      break;
    }
    case RXD_DURATION: encode_text(packer, plain_text(scope, value)); break;
    default: return fail_at(scope, "", "the event has a value that MessagePack cannot have");
  }
  return RXD_OK;
}

int encode_value(rxd_scope *scope, const rxd_value *value, output_bytes *output) {
  writer writer = {.scope = scope};
  msgpack_packer_init(&writer.packer, output, append);
  return encode(&writer, value, 0);
}
