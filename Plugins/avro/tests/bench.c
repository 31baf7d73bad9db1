/* Benchmark of avro-c for comparison with the plugin: reads a container into generic values and writes them one by one.
 * */
#include <avro.h>

#define PARAMETERS {{"framing", "container"}, {"schemaFile", "tests/bench.avsc"}}
#include "../../testing/bench_format.h"

static avro_value_t *all_values;
static size_t all_count;

static avro_file_reader_t open_container(const char *bytes, size_t count) {
  avro_file_reader_t reader;
  if (avro_file_reader_fp(fmemopen((void *)bytes, count, "rb"), "container", 1, &reader) != 0) abort();
  return reader;
}

static int plain_decode(const char *bytes, size_t count) {
  avro_file_reader_t reader = open_container(bytes, count);
  avro_schema_t schema = avro_file_reader_get_writer_schema(reader);
  avro_value_iface_t *kind = avro_generic_class_from_schema(schema);
  avro_value_t value;
  size_t read = 0;
  avro_generic_value_new(kind, &value); /* reused for all values, as in avro-c's examples */
  while (avro_file_reader_read_value(reader, &value) == 0) read++;
  avro_value_decref(&value);
  avro_value_iface_decref(kind);
  avro_schema_decref(schema);
  avro_file_reader_close(reader);
  return read > 0;
}

static void plain_prepare(const char *bytes, size_t count) {
  avro_file_reader_t reader = open_container(bytes, count);
  avro_value_iface_t *kind = avro_generic_class_from_schema(avro_file_reader_get_writer_schema(reader));
  all_values = calloc(1 << 20, sizeof *all_values);
  while (avro_generic_value_new(kind, &all_values[all_count]) == 0 && avro_file_reader_read_value(reader, &all_values[all_count]) == 0) all_count++;
}

static size_t plain_encode(void) {
  static char buffer[65536];
  size_t all = 0;
  avro_writer_t writer = avro_writer_memory(buffer, sizeof buffer);
  for (size_t i = 0; i < all_count; i++) {
    avro_writer_reset(writer);
    if (avro_value_write(writer, &all_values[i]) != 0) return 0;
    all += (size_t)avro_writer_tell(writer);
  }
  avro_writer_free(writer);
  return all;
}
