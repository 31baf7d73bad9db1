#include "event.h"

static bool read_number(const char *token, const char *end, uint64_t *number) {
  *number = 0;
  for (const char *digit = token; digit < end; digit++) {
    if (!isdigit((unsigned char)*digit) || *number > UINT64_MAX / 10 - 1) return false;
    *number = *number * 10 + (uint64_t)(*digit - '0');
  }
  return token < end;
}

/* "$JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.CONSUMER-SEQUENCE.TIME.PENDING". Later servers insert a domain and an
 * account hash before the stream, and may append tokens. */
bool read_origin(const char *reply, origin *origin) {
  enum { TOKENS_MOST = 16 };
  const char *tokens[TOKENS_MOST + 1];
  size_t count = 0;
  if (reply == NULL || strncmp(reply, "$JS.ACK.", 8) != 0) return false;
  for (const char *at = reply; count < TOKENS_MOST; count++) {
    tokens[count] = at;
    at = strchr(at, '.');
    if (at == NULL) {
      count++;
      break;
    }
    at++;
  }
  size_t stream = count == 9 ? 2 : 4;
  if (count != 9 && count < 11) return false;
  tokens[count] = reply + strlen(reply) + 1;
  uint64_t numbers[5];
  for (size_t i = 0; i < 5; i++)
    if (!read_number(tokens[stream + 2 + i], tokens[stream + 3 + i] - 1, &numbers[i])) return false;
  *origin = (struct origin){
    .stream = {tokens[stream], (size_t)(tokens[stream + 1] - tokens[stream] - 1)},
    .deliveries = numbers[0],
    .sequence = numbers[1],
    .consumer_sequence = numbers[2],
    .time = numbers[3] <= INT64_MAX ? (int64_t)numbers[3] : INT64_MAX,
    .pending = numbers[4],
  };
  return true;
}

size_t message_size(natsMsg *message) {
  enum { BESIDE = 300 };
  size_t size = (size_t)natsMsg_GetDataLength(message) + strlen(natsMsg_GetSubject(message)) + BESIDE;
  const char **names = NULL;
  int count = 0;
  if (natsMsgHeader_Keys(message, &names, &count) != NATS_OK) return size;
  for (int i = 0; i < count; i++) {
    const char **values = NULL;
    int repeated = 0;
    if (natsMsgHeader_Values(message, names[i], &values, &repeated) != NATS_OK) continue;
    for (int j = 0; j < repeated; j++) size += strlen(names[i]) + strlen(values[j]);
    free(values);
  }
  free(names);
  return size;
}

static rxd_value header_value(rxd_scope *scope, const char **values, int count) {
  if (count == 1) return value_of_bytes(scope, values[0], strlen(values[0]));
  rxd_value *all = need(calloc((size_t)count + 1, sizeof *all));
  for (int i = 0; i < count; i++) all[i] = value_of_bytes(scope, values[i], strlen(values[i]));
  rxd_value list = host->make_list(scope, all, (size_t)count);
  free(all);
  return list;
}

static bool is_ascii(const char *text) {
  while (*text != 0 && (unsigned char)*text < 0x80) text++;
  return *text == 0;
}

/* Invalid UTF-8 in names is replaced, so names may become equal; an object has each name once. */
static bool is_new(const rxd_text *names, size_t count, rxd_text name) {
  for (size_t i = 0; i < count; i++)
    if (text_is(names[i], name)) return false;
  return true;
}

bool headers_value(rxd_scope *scope, natsMsg *message, rxd_value *value) {
  const char **keys = NULL;
  int count = 0;
  if (natsMsgHeader_Keys(message, &keys, &count) != NATS_OK) return false;
  rxd_text *names = need(calloc((size_t)count + 1, sizeof *names));
  rxd_value *contents = need(calloc((size_t)count + 1, sizeof *contents));
  size_t kept = 0;
  for (int i = 0; i < count; i++) {
    const char **values = NULL;
    int repeated = 0;
    if (natsMsgHeader_Values(message, keys[i], &values, &repeated) != NATS_OK) continue;
    rxd_value made = host->make_text(scope, text_of(keys[i]));
    rxd_text name = host->text(scope, &made);
    if (is_ascii(keys[i]) || is_new(names, kept, name)) {
      names[kept] = name;
      contents[kept++] = header_value(scope, values, repeated);
    }
    free(values);
  }
  *value = host->make_object(scope, names, contents, kept);
  free(names);
  free(contents);
  free(keys);
  return kept > 0;
}

bool message_value(rxd_scope *scope, decoding decode, natsMsg *message, rxd_value *value) {
  int count = natsMsg_GetDataLength(message);
  return content_value(scope, decode, natsMsg_GetData(message), count > 0 ? (size_t)count : 0, value);
}

void name_event(rxd_source *running, rxd_text holder, uint64_t sequence) {
  char *name;
  int count = asprintf(&name, "%.*s/%llu", (int)holder.count, holder.bytes, (unsigned long long)sequence);
  if (count < 0) abort();
  host->name(running, (rxd_text){name, (size_t)count});
  free(name);
}

bool add_message(decoding decode, rxd_source *running, natsMsg *message, const origin *origin, uint64_t token) {
  enum { MEMBERS = 8 };
  rxd_scope *scope = host->source_scope(running);
  rxd_text names[MEMBERS];
  rxd_value values[MEMBERS];
  size_t count = 0;
#define MEMBER(name, made) (names[count] = RXD_TEXT_OF(name), values[count++] = (made))
  rxd_value value;
  if (!message_value(scope, decode, message, &value)) {
    host->reject_input(running, host->text(scope, &value), RXD_TEXT_OF("the message is not a JSON document"), token);
    return true;
  }
  const char *subject = natsMsg_GetSubject(message), *reply = natsMsg_GetReply(message);
  MEMBER("subject", value_of_bytes(scope, subject, strlen(subject)));
  MEMBER("value", value);
  rxd_value headers;
  if (headers_value(scope, message, &headers)) MEMBER("headers", headers);
  if (origin == NULL) {
    if (reply != NULL && *reply != 0) MEMBER("reply", value_of_bytes(scope, reply, strlen(reply)));
  } else {
    MEMBER("stream", host->make_text(scope, origin->stream));
    MEMBER("sequence", host->make_int((int64_t)origin->sequence));
    MEMBER("timestamp", host->make_timestamp(origin->time));
    MEMBER("deliveries", host->make_int((int64_t)origin->deliveries));
    MEMBER("pending", host->make_int((int64_t)origin->pending));
  }
#undef MEMBER
  rxd_value event = host->make_object(scope, names, values, count);
  bool goes_on = host->add(running, &event, token) != RXD_STOP;
  if (origin != NULL) name_event(running, origin->stream, origin->sequence);
  return goes_on;
}
