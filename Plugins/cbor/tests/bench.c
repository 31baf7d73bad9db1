/* A plain libcbor loop to compare the plugin with. */
#include <cbor.h>

#include "../../testing/bench_format.h"

static cbor_item_t **items;
static size_t item_count;

static int plain_decode(const char *bytes, size_t count) {
  for (size_t offset = 0; offset < count;) {
    struct cbor_load_result result;
    cbor_item_t *item = cbor_load((cbor_data)bytes + offset, count - offset, &result);
    if (item == NULL) return 0;
    cbor_decref(&item);
    offset += result.read;
  }
  return 1;
}

static void plain_prepare(const char *bytes, size_t count) {
  items = calloc(1 << 20, sizeof *items);
  for (size_t offset = 0; offset < count;) {
    struct cbor_load_result result;
    if ((items[item_count++] = cbor_load((cbor_data)bytes + offset, count - offset, &result)) == NULL) abort();
    offset += result.read;
  }
}

static size_t plain_encode(void) {
  size_t all = 0;
  for (size_t i = 0; i < item_count; i++) {
    unsigned char *buffer = NULL;
    size_t size = 0;
    all += cbor_serialize_alloc(items[i], &buffer, &size);
    free(buffer);
  }
  return all;
}
