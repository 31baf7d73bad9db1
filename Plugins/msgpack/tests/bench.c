/* A plain msgpack-c loop to compare the plugin with. */
#include <msgpack.h>

#include "../../testing/bench_format.h"

static msgpack_unpacked *objects;
static size_t object_count;

static int plain_decode(const char *bytes, size_t count) {
  msgpack_unpacked unpacked;
  msgpack_unpacked_init(&unpacked);
  size_t offset = 0;
  while (offset < count)
    if (msgpack_unpack_next(&unpacked, bytes, count, &offset) != MSGPACK_UNPACK_SUCCESS) return 0;
  msgpack_unpacked_destroy(&unpacked);
  return 1;
}

static void plain_prepare(const char *bytes, size_t count) {
  size_t offset = 0;
  objects = calloc(1 << 20, sizeof *objects);
  while (offset < count && msgpack_unpack_next(&objects[object_count], bytes, count, &offset) == MSGPACK_UNPACK_SUCCESS) object_count++;
}

static size_t plain_encode(void) {
  size_t all = 0;
  for (size_t i = 0; i < object_count; i++) {
    msgpack_sbuffer buffer;
    msgpack_sbuffer_init(&buffer);
    msgpack_packer packer;
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    msgpack_pack_object(&packer, objects[i].data);
    all += buffer.size;
    msgpack_sbuffer_destroy(&buffer);
  }
  return all;
}
