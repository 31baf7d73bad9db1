#include "event.h"

/* A value or a key of length 0 may be a null pointer. */
static rxd_text bytes_of(const void *bytes, size_t count) { return (rxd_text){count > 0 ? bytes : "", count}; }

typedef struct header {
  rxd_text name;
  rxd_value content;
  size_t index;
} header;

static int by_name(const void *a, const void *b) {
  const header *left = a, *right = b;
  size_t least = left->name.count < right->name.count ? left->name.count : right->name.count;
  int order = least == 0 ? 0 : memcmp(left->name.bytes, right->name.bytes, least);
  if (order != 0) return order;
  if (left->name.count != right->name.count) return left->name.count < right->name.count ? -1 : 1;
  return left->index < right->index ? -1 : 1;
}

/* The headers as an object; of repeated names, the last one wins. Sorted first, because a message may have very many
 * headers. */
static rxd_value headers_value(rxd_scope *scope, const rd_kafka_headers_t *headers) {
  size_t most = rd_kafka_header_cnt(headers), count = 0, kept = 0, size;
  header *all = need(calloc(most + 1, sizeof *all));
  const char *name;
  const void *bytes;
  while (count < most
         && rd_kafka_header_get_all(headers, count, &name, &bytes, &size) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    rxd_value made = host->make_text(scope, text_of(name));
    rxd_text text = bytes_of(bytes, size);
    all[count] = (header){host->text(scope, &made),
                          bytes == NULL ? host->make_null() : value_of_bytes(scope, text.bytes, text.count), count};
    count++;
  }
  qsort(all, count, sizeof *all, by_name);
  rxd_text *names = need(calloc(count + 1, sizeof *names));
  rxd_value *contents = need(calloc(count + 1, sizeof *contents));
  for (size_t i = 0; i < count; i++) {
    if (i + 1 < count && text_is(all[i].name, all[i + 1].name)) continue;
    names[kept] = all[i].name;
    contents[kept++] = all[i].content;
  }
  rxd_value result = host->make_object(scope, names, contents, kept);
  free(all);
  free(names);
  free(contents);
  return result;
}

bool add_message(decoding decode, rxd_source *running, const rd_kafka_message_t *message, uint64_t token) {
  rxd_scope *scope = host->source_scope(running);
  rxd_text names[7] = {RXD_TEXT_OF("topic"), RXD_TEXT_OF("partition"), RXD_TEXT_OF("offset"), RXD_TEXT_OF("value")};
  rxd_value values[7] = {host->make_text(scope, text_of(rd_kafka_topic_name(message->rkt))),
                         host->make_int(message->partition), host->make_int(message->offset), host->make_null()};
  size_t count = 4;
  if (message->payload != NULL) {
    rxd_text content = bytes_of(message->payload, message->len);
    if (!content_value(scope, decode, content.bytes, content.count, &values[3])) {
      host->reject_input(running, content, RXD_TEXT_OF("the value is not a JSON document"), token);
      return true;
    }
  }
  if (message->key != NULL) {
    rxd_text key = bytes_of(message->key, message->key_len);
    names[count] = RXD_TEXT_OF("key");
    values[count++] = value_of_bytes(scope, key.bytes, key.count);
  }
  rd_kafka_timestamp_type_t type;
  int64_t time = rd_kafka_message_timestamp(message, &type);
  if (type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && time >= 0 && time < INT64_MAX / 1000000) {
    names[count] = RXD_TEXT_OF("timestamp");
    values[count++] = host->make_timestamp(time * 1000000);
  }
  rd_kafka_headers_t *headers;
  if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    names[count] = RXD_TEXT_OF("headers");
    values[count++] = headers_value(scope, headers);
  }
  rxd_value event = host->make_object(scope, names, values, count);
  bool goes_on = host->add(running, &event, token) != RXD_STOP;
  char name[320]; /* a topic has at most 249 bytes, and no slash */
  snprintf(name, sizeof name, "%.249s/%d/%lld", rd_kafka_topic_name(message->rkt), (int)message->partition,
           (long long)message->offset);
  host->name(running, text_of(name));
  return goes_on;
}
