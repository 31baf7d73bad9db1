#include "event.h"
#include "table.h"

enum { MEMBERS_MOST = 20 };

/* NULL: the properties are damaged, or have tables that are nested too deeply. */
static const amqp_basic_properties_t *read_properties(amqp_pool_t *pool, rxd_text encoded) {
  void *decoded = NULL;
  amqp_bytes_t bytes = {encoded.count, (void *)(uintptr_t)encoded.bytes};
  recycle_amqp_pool(pool);
  if (!is_sound((const uint8_t *)encoded.bytes, encoded.count)) return NULL;
  return amqp_decode_properties(AMQP_BASIC_CLASS, pool, bytes, &decoded) >= 0 ? decoded : NULL;
}

int64_t stream_offset(amqp_pool_t *pool, rxd_text properties) {
  static const char name[] = "x-stream-offset";
  int64_t offset = -1;
  const amqp_basic_properties_t *read = read_properties(pool, properties);
  if (read != NULL && (read->_flags & AMQP_BASIC_HEADERS_FLAG) != 0) {
    for (int i = 0; i < read->headers.num_entries && offset < 0; i++) {
      const amqp_table_entry_t *entry = &read->headers.entries[i];
      if (entry->key.len == sizeof name - 1 && memcmp(entry->key.bytes, name, sizeof name - 1) == 0
          && entry->value.kind == AMQP_FIELD_KIND_I64)
        offset = entry->value.value.i64;
    }
  }
  return offset;
}

typedef struct members {
  rxd_text names[MEMBERS_MOST];
  rxd_value values[MEMBERS_MOST];
  size_t count;
} members;

static void put(members *members, rxd_text name, rxd_value value) {
  members->names[members->count] = name;
  members->values[members->count++] = value;
}

static void put_properties(rxd_scope *scope, members *members, const amqp_basic_properties_t *read) {
  const struct {
    rxd_text name;
    amqp_flags_t flag;
    const amqp_bytes_t *bytes;
  } texts[] = {
    {RXD_TEXT_OF("contentType"), AMQP_BASIC_CONTENT_TYPE_FLAG, &read->content_type},
    {RXD_TEXT_OF("contentEncoding"), AMQP_BASIC_CONTENT_ENCODING_FLAG, &read->content_encoding},
    {RXD_TEXT_OF("correlationId"), AMQP_BASIC_CORRELATION_ID_FLAG, &read->correlation_id},
    {RXD_TEXT_OF("replyTo"), AMQP_BASIC_REPLY_TO_FLAG, &read->reply_to},
    {RXD_TEXT_OF("expiration"), AMQP_BASIC_EXPIRATION_FLAG, &read->expiration},
    {RXD_TEXT_OF("messageId"), AMQP_BASIC_MESSAGE_ID_FLAG, &read->message_id},
    {RXD_TEXT_OF("type"), AMQP_BASIC_TYPE_FLAG, &read->type},
    {RXD_TEXT_OF("userId"), AMQP_BASIC_USER_ID_FLAG, &read->user_id},
    {RXD_TEXT_OF("appId"), AMQP_BASIC_APP_ID_FLAG, &read->app_id},
  };
  if ((read->_flags & AMQP_BASIC_HEADERS_FLAG) != 0)
    put(members, RXD_TEXT_OF("headers"), table_value(scope, &read->headers));
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if ((read->_flags & texts[i].flag) != 0)
      put(members, texts[i].name,
          value_of_bytes(scope, texts[i].bytes->len > 0 ? texts[i].bytes->bytes : "", texts[i].bytes->len));
  if ((read->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG) != 0)
    put(members, RXD_TEXT_OF("persistent"), host->make_bool(read->delivery_mode == AMQP_DELIVERY_PERSISTENT));
  if ((read->_flags & AMQP_BASIC_PRIORITY_FLAG) != 0)
    put(members, RXD_TEXT_OF("priority"), host->make_int(read->priority));
  if ((read->_flags & AMQP_BASIC_TIMESTAMP_FLAG) != 0)
    put(members, RXD_TEXT_OF("timestamp"), time_value(read->timestamp));
}

static void reject(rxd_source *running, const message *message, const char *reason) {
  rxd_value value = value_of_bytes(host->source_scope(running), message->body.bytes, message->body.count);
  host->reject_input(running, host->text(host->source_scope(running), &value), text_of(reason), message->base.token);
}

static bool add_event(rxd_source *running, const char *queue, const message *message, rxd_value value,
                      const amqp_basic_properties_t *properties) {
  rxd_scope *scope = host->source_scope(running);
  members members = {.count = 0};
  put(&members, RXD_TEXT_OF("exchange"), value_of_bytes(scope, message->exchange.bytes, message->exchange.count));
  put(&members, RXD_TEXT_OF("routingKey"), value_of_bytes(scope, message->routing_key.bytes, message->routing_key.count));
  put(&members, RXD_TEXT_OF("value"), value);
  put(&members, RXD_TEXT_OF("redelivered"), host->make_bool(message->is_redelivered));
  if (message->offset >= 0) put(&members, RXD_TEXT_OF("offset"), host->make_int(message->offset));
  put_properties(scope, &members, properties);
  rxd_value event = host->make_object(scope, members.names, members.values, members.count);
  bool goes_on = host->add(running, &event, message->base.token) != RXD_STOP;
  if (message->offset < 0) return goes_on;
  char name[300]; /* a queue's name has at most 255 bytes */
  snprintf(name, sizeof name, "%.255s/%lld", queue, (long long)message->offset);
  host->name(running, text_of(name));
  return goes_on;
}

bool add_message(decoding decode, rxd_source *running, const char *queue, const message *message, amqp_pool_t *pool) {
  rxd_value value;
  const amqp_basic_properties_t *properties = read_properties(pool, message->properties);
  if (properties == NULL)
    reject(running, message, "the properties of the message are damaged, or its headers are nested too deeply");
  else if (!content_value(host->source_scope(running), decode, message->body.bytes, message->body.count, &value))
    reject(running, message, "the message is not a JSON document");
  else return add_event(running, queue, message, value, properties);
  return true;
}
