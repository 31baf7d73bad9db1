/* Object container files: a schema, and blocks of values that may be compressed. */
#include <endian.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "avro_format.h"

typedef struct {
  char *bytes;
  size_t count, capacity;
} buffer;

/* Reports that the decompressed blocks exceed the limit. */
static bool refuse_size(avro_reader *reader, uint64_t limit) {
  return refuse_input(reader, NULL, "the blocks have more than %llu bytes uncompressed, the 'limit'", (unsigned long long)limit);
}

/* Doubles the buffer, up to `limit`. False: it is full. */
static bool grow(buffer *buffer, uint64_t limit) {
  if (buffer->capacity >= limit) return false;
  size_t wanted = buffer->capacity == 0 ? 64 << 10 : buffer->capacity * 2;
  buffer->capacity = wanted < limit ? wanted : (size_t)limit;
  buffer->bytes = need(realloc(buffer->bytes, buffer->capacity + 1));
  return true;
}

static bool inflate_block(avro_reader *reader, rxd_text data, uint64_t limit, buffer *output) {
  z_stream stream = {.next_in = (Bytef *)data.bytes, .avail_in = (uInt)data.count};
  if (data.count > UINT32_MAX) return refuse_input(reader, NULL, "the block has more than 4 GiB");
  if (inflateInit2(&stream, -15) != Z_OK) abort();
  int status = Z_OK;
  bool has_room = true;
  while (status == Z_OK) {
    if (output->count == output->capacity && !(has_room = grow(output, limit))) break;
    size_t room = output->capacity - output->count;
    stream.next_out = (Bytef *)output->bytes + output->count;
    stream.avail_out = room > UINT32_MAX ? UINT32_MAX : (uInt)room;
    uInt before = stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    output->count += before - stream.avail_out;
    if (status == Z_BUF_ERROR && stream.avail_out == 0) status = Z_OK;
  }
  /* Output of exactly `limit` bytes is allowed. */
  if (!has_room) {
    Bytef one;
    stream.next_out = &one;
    stream.avail_out = 1;
    status = inflate(&stream, Z_NO_FLUSH);
    has_room = status == Z_STREAM_END && stream.avail_out == 1;
  }
  inflateEnd(&stream);
  if (!has_room) return refuse_size(reader, limit);
  return status == Z_STREAM_END || refuse_input(reader, NULL, "the block is not data of deflate, or is cut off");
}

static bool zstd_block(avro_reader *reader, rxd_text data, uint64_t limit, buffer *output) {
  ZSTD_DStream *stream = need(ZSTD_createDStream());
  ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, 27);
  ZSTD_inBuffer input = {data.bytes, data.count, 0};
  size_t status = 1;
  bool is_good = true, has_room = true;
  while (is_good && (input.pos < input.size || status != 0)) {
    if (output->count == output->capacity && !(has_room = grow(output, limit + 1))) break;
    ZSTD_outBuffer to = {output->bytes + output->count, output->capacity - output->count, 0};
    size_t before = input.pos;
    status = ZSTD_decompressStream(stream, &to, &input);
    output->count += to.pos;
    is_good = !ZSTD_isError(status) && (to.pos > 0 || input.pos > before || status == 0);
  }
  ZSTD_freeDStream(stream);
  if (!has_room || output->count > limit) return refuse_size(reader, limit);
  return (is_good && status == 0) || refuse_input(reader, NULL, "the block is not data of Zstandard, or is cut off");
}

static bool snappy_block(avro_reader *reader, rxd_text data, uint64_t limit, buffer *output) {
  size_t count;
  if (data.count < 4 || snappy_uncompressed_length(data.bytes, data.count - 4, &count) != SNAPPY_OK)
    return refuse_input(reader, NULL, "the block is not data of Snappy, or is cut off");
  if (count > limit) return refuse_size(reader, limit);
  /* Snappy expands 3 bytes to at most 64: a larger declared length is invalid, and is refused before memory is
   * allocated. */
  if (count / 32 > data.count) return refuse_input(reader, NULL, "the block claims %zu bytes, which its %zu cannot have", count, data.count);
  output->bytes = need(realloc(output->bytes, count + 1));
  output->capacity = count;
  output->count = count;
  if (snappy_uncompress(data.bytes, data.count - 4, output->bytes, &output->count) != SNAPPY_OK)
    return refuse_input(reader, NULL, "the block is not data of Snappy, or is cut off");
  uint32_t sum;
  memcpy(&sum, data.bytes + data.count - 4, 4);
  return be32toh(sum) == crc32(0, (const Bytef *)output->bytes, (uInt)output->count) || refuse_input(reader, NULL, "the checksum of the block is wrong");
}

typedef bool decompress_block(avro_reader *, rxd_text, uint64_t, buffer *);

/* Reads the header's metadata: a map of bytes. */
static bool read_header(avro_reader *reader, rxd_text *schema, rxd_text *codec) {
  if ((size_t)(reader->end - reader->at) < 4 || memcmp(reader->at, "Obj\1", 4) != 0) return refuse_input(reader, NULL, "the input does not begin as a container does");
  reader->at += 4;
  while (true) {
    int64_t count, ignored;
    rxd_text key, value;
    if (!read_long(reader, NULL, &count)) return false;
    if (count == 0) return true;
    if (count < 0 && !read_long(reader, NULL, &ignored)) return false;
    uint64_t left = count < 0 ? -(uint64_t)count : (uint64_t)count;
    for (; left > 0; left--) {
      if (!read_bytes(reader, NULL, &key) || !read_bytes(reader, NULL, &value)) return false;
      if (text_is(key, RXD_TEXT_OF("avro.schema"))) *schema = value;
      if (text_is(key, RXD_TEXT_OF("avro.codec"))) *codec = value;
    }
  }
}

int decode_container(rxd_scope *scope, const avro_schema *reader_schema, rxd_text input, uint64_t limit, rxd_value *events) {
  avro_reader reader = {.scope = scope, .begin = input.bytes, .at = input.bytes, .end = input.bytes + input.count, .what = ""};
  rxd_text schema = {NULL, 0}, codec = RXD_TEXT_OF("null");
  if (!read_header(&reader, &schema, &codec)) return RXD_FAILED;
  if (schema.bytes == NULL) return fail_at(scope, "", "the container has no schema");
  decompress_block *decompress = text_is(codec, RXD_TEXT_OF("deflate"))     ? inflate_block
                                 : text_is(codec, RXD_TEXT_OF("zstandard")) ? zstd_block
                                 : text_is(codec, RXD_TEXT_OF("snappy"))    ? snappy_block
                                                                            : NULL;
  if (!is_utf8(codec.bytes, codec.count)) return fail_at(scope, "", "the name of the container's codec is not UTF-8");
  if (decompress == NULL && !text_is(codec, RXD_TEXT_OF("null")))
    return fail_at(scope, "", "the container has the codec '%.*s'; null, deflate, zstandard and snappy are read", shown_count(codec), codec.bytes);
  if ((size_t)(reader.end - reader.at) < 16) {
    refuse_input(&reader, NULL, "the header is not complete");
    return RXD_FAILED;
  }
  const char *sync = reader.at;
  reader.at += 16;
  avro_schema *writer = parse_schema_text(scope, schema, "");
  if (writer == NULL) return RXD_FAILED;
  arena plans = {0};
  const plan *plan = make_plan(&plans, writer->root, reader_schema != NULL ? reader_schema->root : writer->root);
  value_stack made = {0};
  avro_reader inner = {.scope = scope, .values_left = VALUES_OF(0)};
  uint64_t uncompressed = 0;
  bool is_good = true;
  for (size_t block = 1; reader.at < reader.end && is_good; block++) {
    int64_t count;
    rxd_text data;
    buffer buffer = {0};
    char what[40];
    const char *start = reader.at;
    is_good = read_long(&reader, NULL, &count) && read_bytes(&reader, NULL, &data);
    if (is_good && (size_t)(reader.end - reader.at) < 16) is_good = refuse_input(&reader, NULL, "the block %zu is not complete", block);
    if (is_good && memcmp(reader.at, sync, 16) != 0) is_good = refuse_input(&reader, NULL, "the block %zu does not end with the marker of the container", block);
    if (!is_good) break;
    const char *behind = reader.at + 16;
    reader.at = start;
    if (count < 0) is_good = refuse_input(&reader, NULL, "the block %zu has %lld values", block, (long long)count);
    if (is_good && decompress != NULL) {
      is_good = decompress(&reader, data, limit - uncompressed, &buffer);
      data = (rxd_text){buffer.count == 0 ? "" : buffer.bytes, buffer.count};
      uncompressed += buffer.count;
    }
    snprintf(what, sizeof what, "block %zu, ", block);
    inner.begin = inner.at = data.bytes;
    inner.end = data.bytes + data.count;
    inner.what = what;
    inner.values_left += 16 * data.count;
    for (int64_t i = 0; i < count && is_good; i++) {
      rxd_value value;
      is_good = read_value(&inner, plan, &value);
      if (is_good) push_value(&made, value);
    }
    if (is_good && inner.at != inner.end) is_good = refuse_input(&inner, NULL, "%zu bytes follow the last value", (size_t)(inner.end - inner.at));
    free(buffer.bytes);
    reader.at = behind;
  }
  if (is_good) *events = pop_list(scope, &made, 0);
  free_values(&made);
  free_values(&inner.stack);
  arena_free(&plans);
  free_schema(writer);
  return is_good ? RXD_OK : RXD_FAILED;
}
