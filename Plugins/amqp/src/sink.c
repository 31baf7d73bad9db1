/* The sink `amqp`: publishes a batch with a window of unconfirmed messages, and reports the server's verdict on each.
 * Between batches, a separate thread keeps the connection alive. */
#include "client.h"
#include "table.h"

#include <broker_sink.h>

enum {
  WINDOW_MOST = 4096,          /* unconfirmed messages, */
  WINDOW_BYTES_MOST = 16 << 20, /* and their bytes */
  PUSH_BYTES = 64 << 10,       /* bytes buffered before they are sent */
  SLICE_MS = 100,              /* time between checks for a stop */
  KEEP_MS = 1000,              /* time between checks of an idle connection */
  LEAVE_MS = 1000,             /* time limit of the closing handshake */
  PROPERTIES_MOST = 128 << 10, /* maximum size in bytes */
  PROBLEM_MOST = 300,
  POOL_PAGE = 16384,
};

/* The template and expression parameters, in the order of the spec. */
enum { ROUTING_KEY, VALUE, HEADERS, MESSAGE_ID, CORRELATION_ID, REPLY_TO, TYPE, PRIORITY, TIMESTAMP };

enum { NACKED = OWN_VERDICT };

/* A published message. */
typedef struct published {
  uint32_t index;
  uint64_t hash;      /* hash of its routing key and properties, to recognize a returned message, */
  uint64_t body_hash; /* and of its routing key and body: a server may change the properties */
} published;

/* An event that is repeated after a failed batch. */
typedef struct known {
  uint64_t hash;
  bool is_delivered;
} known;

/* A returned message whose frames have not all arrived. */
typedef struct returned {
  bool is_open;
  int code;
  char reason[100];
  uint64_t hash, body_hash;
  uint64_t left; /* remaining bytes of its body */
} returned;

typedef struct sink {
  client client;
  char *exchange, *content_type, *app_id;
  const char *declared_type; /* type of the exchange to declare; NULL: it must exist */
  char expiration[24];       /* empty: none */
  bool is_mandatory, is_persistent;
  uint8_t *properties; /* properties of the message that is being made */
  /* The thread that keeps the connection alive. The thread and `write` hold the mutex while they use the sink. */
  pthread_t keeper;
  pthread_mutex_t mutex;
  pthread_cond_t ending;
  bool has_keeper, is_ending;
  /* State of the channel. */
  uint64_t last_tag;  /* tag of the last published message */
  returned returned;
  /* The batch that is being written; after a failure, the attempts of the client have the reason. */
  sending sending;
  published *sent;    /* the published messages, from the tag `first_tag` on */
  uint64_t first_tag;
  size_t sent_count, settled; /* all messages before `settled` have a verdict */
  /* The last batch, if it failed: the events that will be repeated, in order. */
  known *known;
  size_t known_count;
} sink;

/* ---- Hashes (FNV-1a) ---- */

static const uint64_t hash_start = 0xcbf29ce484222325;

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  const uint8_t *at = bytes;
  for (size_t i = 0; i < count; i++) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

static uint64_t hash_text(uint64_t hash, rxd_text text) {
  uint64_t count = text.count;
  return hash_bytes(hash_bytes(hash, &count, sizeof count), text.bytes, text.count);
}

static void fail(sink *self) {
  self->sending.has_failed = true;
  client_disconnect(&self->client);
}

/* ---- Messages ---- */

__attribute__((format(printf, 2, 3))) static bool wrong(char *problem, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem, PROBLEM_MOST, format, arguments);
  va_end(arguments);
  return false;
}

static bool set_text(amqp_basic_properties_t *properties, amqp_flags_t flag, amqp_bytes_t *to, rxd_text text,
                     const char *name, char *problem) {
  if (text.count == 0) return true;
  if (text.count > 255) return wrong(problem, "'%s' has %zu bytes; AMQP allows 255", name, text.count);
  properties->_flags |= flag;
  *to = (amqp_bytes_t){text.count, (void *)(uintptr_t)text.bytes};
  return true;
}

static bool set_texts(const sink *self, const rxd_input *input, amqp_basic_properties_t *to, char *problem) {
  const struct {
    uint32_t index;
    const char *name;
    amqp_flags_t flag;
    amqp_bytes_t *bytes;
  } templates[] = {
    {MESSAGE_ID, "messageId", AMQP_BASIC_MESSAGE_ID_FLAG, &to->message_id},
    {CORRELATION_ID, "correlationId", AMQP_BASIC_CORRELATION_ID_FLAG, &to->correlation_id},
    {REPLY_TO, "replyTo", AMQP_BASIC_REPLY_TO_FLAG, &to->reply_to},
    {TYPE, "type", AMQP_BASIC_TYPE_FLAG, &to->type},
  };
  for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
    rxd_text text;
    if (argument(self->sending.scope, input, templates[i].index, &text)
        && !set_text(to, templates[i].flag, templates[i].bytes, text, templates[i].name, problem))
      return false;
  }
  return set_text(to, AMQP_BASIC_EXPIRATION_FLAG, &to->expiration, text_of(self->expiration), "expiration", problem)
         && (self->app_id == NULL
             || set_text(to, AMQP_BASIC_APP_ID_FLAG, &to->app_id, text_of(self->app_id), "appId", problem));
}

/* The kind of an argument; absent and null both mean that it is not given. */
static int kind_of_argument(const rxd_input *input, uint32_t index) {
  int kind = index < input->argument_count ? host->kind(&input->arguments[index]) : RXD_ABSENT;
  return kind == RXD_NULL ? RXD_ABSENT : kind;
}

static bool set_numbers(const rxd_input *input, amqp_basic_properties_t *to, char *problem) {
  int kind = kind_of_argument(input, PRIORITY);
  if (kind != RXD_ABSENT) {
    int64_t priority = host->integer(&input->arguments[PRIORITY]);
    if (kind != RXD_INT || priority < 0 || priority > 255)
      return wrong(problem, "'priority' must be a whole number from 0 to 255 or null, and is something else for this event");
    to->_flags |= AMQP_BASIC_PRIORITY_FLAG;
    to->priority = (uint8_t)priority;
  }
  kind = kind_of_argument(input, TIMESTAMP);
  if (kind == RXD_ABSENT) return true;
  int64_t time = host->integer(&input->arguments[TIMESTAMP]);
  if (kind != RXD_TIMESTAMP || time < 0)
    return wrong(problem, "'timestamp' must be a time since 1970 or null, and is something else for this event");
  to->_flags |= AMQP_BASIC_TIMESTAMP_FLAG;
  to->timestamp = (uint64_t)time / 1000000000;
  return true;
}

static bool set_headers(const sink *self, const rxd_input *input, amqp_pool_t *pool, amqp_basic_properties_t *to,
                        char *problem) {
  int kind = kind_of_argument(input, HEADERS);
  if (kind == RXD_ABSENT) return true;
  if (kind != RXD_OBJECT)
    return wrong(problem, "'headers' must be an object or null, and is something else for this event");
  const char *reason = make_table(self->sending.scope, pool, &input->arguments[HEADERS], &to->headers);
  if (reason != NULL) return wrong(problem, "'headers' has %s", reason);
  to->_flags |= AMQP_BASIC_HEADERS_FLAG;
  return true;
}

/* Encodes the properties into `properties`. Returns their size in bytes, or 0 if they are refused, with the reason in
 * `problem`. */
static size_t make_properties(sink *self, const rxd_input *input, bool is_json, amqp_pool_t *pool, char *problem) {
  amqp_basic_properties_t made = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG};
  made.delivery_mode = self->is_persistent ? AMQP_DELIVERY_PERSISTENT : AMQP_DELIVERY_NONPERSISTENT;
  const char *type = self->content_type != NULL ? self->content_type : is_json ? "application/json" : "";
  if (!set_text(&made, AMQP_BASIC_CONTENT_TYPE_FLAG, &made.content_type, text_of(type), "contentType", problem)
      || !set_texts(self, input, &made, problem) || !set_numbers(input, &made, problem)
      || !set_headers(self, input, pool, &made, problem))
    return 0;
  enum { AROUND = 20 }; /* overhead of a properties frame */
  size_t most = self->client.wire.frame_max - AROUND;
  int count = amqp_encode_properties(AMQP_BASIC_CLASS, &made,
                                     (amqp_bytes_t){most < PROPERTIES_MOST ? most : PROPERTIES_MOST, self->properties});
  if (count > 0) return (size_t)count;
  wrong(problem, "the headers and other properties have more bytes than the server takes: %zu", most);
  return 0;
}

static void record(sink *self, size_t index, rxd_text key, size_t properties, rxd_text body) {
  published *sent = &self->sent[self->sent_count++];
  *sent = (published){.index = (uint32_t)index};
  if (self->is_mandatory) {
    sent->hash = hash_bytes(hash_text(hash_start, key), self->properties, properties);
    sent->body_hash = hash_bytes(hash_text(hash_start, key), body.bytes, body.count);
  }
  self->last_tag++;
  sending_sent(&self->sending, index, body.count + key.count + properties);
}

static void publish(sink *self, size_t index) {
  const rxd_input *input = sending_input(&self->sending, index);
  char problem[PROBLEM_MOST];
  rxd_text key = {"", 0}, body;
  bool has_value = argument(self->sending.scope, input, VALUE, &body);
  int kind = host->kind(&input->event);
  bool is_json = !has_value && kind != RXD_TEXT && kind != RXD_BYTES;
  if (!has_value) body = bytes_of_value(self->sending.scope, &input->event);
  argument(self->sending.scope, input, ROUTING_KEY, &key);
  if (key.count > 255) {
    snprintf(problem, sizeof problem, "the routing key has %zu bytes; AMQP allows 255", key.count);
    sending_refuse(&self->sending, index, problem);
    return;
  }
  amqp_pool_t pool;
  init_amqp_pool(&pool, POOL_PAGE);
  size_t count = make_properties(self, input, is_json, &pool, problem);
  empty_amqp_pool(&pool);
  if (count == 0) {
    sending_refuse(&self->sending, index, problem);
    return;
  }
  amqp_basic_publish_t method = {
    .exchange = bytes_of(self->exchange),
    .routing_key = {key.count, (void *)(uintptr_t)key.bytes},
    .mandatory = self->is_mandatory,
  };
  wire_put_method(&self->client.wire, CHANNEL, AMQP_BASIC_PUBLISH_METHOD, &method);
  wire_put_content(&self->client.wire, self->properties, count, body);
  record(self, index, key, count, body);
}

/* ---- Answers ---- */

/* Marks the message with the tag, or all up to it, as confirmed. */
static void take_confirmation(sink *self, uint64_t tag, bool is_multiple, int kind) {
  if (tag < self->first_tag || tag > self->last_tag) return;
  size_t last = (size_t)(tag - self->first_tag), first = is_multiple ? self->settled : last;
  int64_t nacked = 0;
  for (size_t i = first; i <= last; i++) {
    size_t index = self->sent[i].index;
    if (self->sending.verdicts[index].kind != SENT) continue;
    sending_mark(&self->sending, index, kind);
    if (kind == NACKED) nacked++;
  }
  while (self->settled < self->sent_count && self->sending.verdicts[self->sent[self->settled].index].kind != SENT) self->settled++;
  if (nacked > 0) host->count_up(self->client.attempts.instance, RXD_TEXT_OF("nacked"), nacked);
}

static void begin_return(sink *self, const frame *frame) {
  amqp_basic_return_t *method = wire_decode(&self->client.wire, frame);
  if (method == NULL) return;
  returned *returned = &self->returned;
  rxd_text key = {method->routing_key.len > 0 ? method->routing_key.bytes : "", method->routing_key.len};
  *returned = (struct returned){.is_open = true, .code = method->reply_code};
  returned->hash = returned->body_hash = hash_text(hash_start, key);
  size_t count = method->reply_text.len < sizeof returned->reason - 1 ? method->reply_text.len : sizeof returned->reason - 1;
  for (size_t i = 0; i < count; i++) {
    char c = ((const char *)method->reply_text.bytes)[i];
    returned->reason[i] = c >= ' ' && c < 127 ? c : '?';
  }
}

/* The server returns messages in the order in which they were published, each before its confirmation. So the
 * returned message is the first unanswered one with the same content. */
static void end_return(sink *self) {
  char problem[PROBLEM_MOST];
  returned *returned = &self->returned;
  size_t found = self->sent_count;
  for (int loosely = 0; loosely < 2 && found == self->sent_count; loosely++) {
    for (size_t i = self->settled; i < self->sent_count && found == self->sent_count; i++) {
      const published *sent = &self->sent[i];
      if (self->sending.verdicts[sent->index].kind == SENT
          && sent->body_hash == returned->body_hash && (loosely || sent->hash == returned->hash))
        found = i;
    }
  }
  returned->is_open = false;
  host->count_up(self->client.attempts.instance, RXD_TEXT_OF("returned"), 1);
  if (found == self->sent_count) {
    wire_fail(&self->client.wire, "the server has returned a message that was not sent");
    return;
  }
  snprintf(problem, sizeof problem,
           "the server has returned the message: %d %.60s; bind a queue to the exchange '%.100s' for its routing key",
           returned->code, returned->reason, self->exchange);
  if (*self->exchange == 0)
    snprintf(problem, sizeof problem,
             "the server has returned the message: %d %.60s; its routing key names no queue", returned->code,
             returned->reason);
  sending_refuse(&self->sending, self->sent[found].index, problem);
}

static void handle_content(sink *self, const frame *frame) {
  enum { CONTENT_HEAD = 12 };
  returned *returned = &self->returned;
  bool is_header = frame->type == AMQP_FRAME_HEADER;
  if (!returned->is_open || (is_header && frame->count < CONTENT_HEAD)
      || (!is_header && frame->count > returned->left)) {
    wire_fail(&self->client.wire, "the server has sent frames out of order");
    return;
  }
  if (is_header) {
    for (size_t i = 4; i < CONTENT_HEAD; i++) returned->left = returned->left << 8 | frame->bytes[i];
    returned->hash = hash_bytes(returned->hash, frame->bytes + CONTENT_HEAD, frame->count - CONTENT_HEAD);
  } else {
    returned->left -= frame->count;
    returned->body_hash = hash_bytes(returned->body_hash, frame->bytes, frame->count);
  }
  if (returned->left == 0) end_return(self);
}

static void handle(sink *self, const frame *frame) {
  if (client_handle(&self->client, frame)) return;
  if (frame->type != AMQP_FRAME_METHOD) {
    handle_content(self, frame);
    return;
  }
  amqp_method_number_t method = frame_method(frame);
  if (method == AMQP_BASIC_RETURN_METHOD) begin_return(self, frame);
  if (method != AMQP_BASIC_ACK_METHOD && method != AMQP_BASIC_NACK_METHOD) return;
  /* The first two members of ack and nack are the same. */
  if (method == AMQP_BASIC_ACK_METHOD) {
    amqp_basic_ack_t *ack = wire_decode(&self->client.wire, frame);
    if (ack != NULL && self->sending.batch != NULL) take_confirmation(self, ack->delivery_tag, ack->multiple, DELIVERED);
  } else {
    amqp_basic_nack_t *nack = wire_decode(&self->client.wire, frame);
    if (nack != NULL && self->sending.batch != NULL) take_confirmation(self, nack->delivery_tag, nack->multiple, NACKED);
  }
}

/* ---- The connection ---- */

static outcome look_for_exchange(sink *self) {
  if (*self->exchange == 0) return DONE;
  amqp_exchange_declare_t declare = {
    .exchange = bytes_of(self->exchange),
    .type = bytes_of(self->declared_type != NULL ? self->declared_type : "direct"),
    .passive = self->declared_type == NULL,
    .durable = true,
    .arguments = amqp_empty_table,
  };
  outcome outcome =
    client_call(&self->client, AMQP_EXCHANGE_DECLARE_METHOD, &declare, AMQP_EXCHANGE_DECLARE_OK_METHOD, NULL);
  if (outcome != REFUSED) return outcome;
  client_trouble(&self->client, self->declared_type != NULL ? "declare" : "exchange", "%s; %s", self->client.reason,
                 self->client.code == AMQP_NOT_FOUND ? "create it, set 'declare', or correct 'exchange'"
                                                     : "correct 'declare', or allow it to the user");
  return attempt_refused(&self->client.attempts);
}

/* Opens a channel in confirm mode. */
static outcome begin_channel(sink *self) {
  amqp_confirm_select_t select = {0};
  self->last_tag = 0;
  self->returned.is_open = false;
  outcome outcome = client_call(&self->client, AMQP_CONFIRM_SELECT_METHOD, &select, AMQP_CONFIRM_SELECT_OK_METHOD, NULL);
  if (outcome == REFUSED) client_trouble(&self->client, "", "%s", self->client.reason);
  return outcome == DONE ? DONE : UNREACHABLE;
}

static outcome connect_sink(sink *self) {
  outcome outcome = UNREACHABLE;
  if (self->client.is_open && !self->client.wire.is_lost) return DONE;
  for (size_t tried = 0; tried < self->client.server_count && outcome == UNREACHABLE; tried++) {
    if (tried > 0 && host->is_closing(self->client.attempts.instance)) break;
    outcome = client_connect(&self->client);
    if (outcome == DONE) outcome = look_for_exchange(self);
    if (outcome == DONE) outcome = begin_channel(self);
  }
  if (outcome == DONE) client_works(&self->client);
  else client_disconnect(&self->client);
  return outcome;
}

/* Handles frames of the server while nothing is published. */
static void keep_alive(sink *self) {
  frame frame;
  wire_pump(&self->client.wire, -1, 0);
  while (self->client.is_open && wire_next(&self->client.wire, &frame)) handle(self, &frame);
  if (self->client.is_open && !self->client.wire.is_lost) return;
  if (self->client.wire.is_lost) client_lost(&self->client);
  else client_trouble(&self->client, "", "the server has closed the channel: %s", self->client.reason);
  report(self->client.attempts.instance, "info", "%s; the next events connect again", self->client.attempts.problem);
  client_disconnect(&self->client);
}

static void *keep(void *opaque) {
  sink *self = opaque;
  int64_t pause = self->client.heartbeat / 4 < KEEP_MS ? self->client.heartbeat / 4 : KEEP_MS;
  pthread_mutex_lock(&self->mutex);
  while (!self->is_ending) {
    wait_at_most(&self->ending, &self->mutex, pause);
    if (!self->is_ending && self->client.is_open) keep_alive(self);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

/* ---- Sending ---- */

/* Sends data and handles answers; waits for one if requested. False: the batch cannot continue on this channel. */
static bool pump(sink *self, int64_t wait_ms) {
  frame frame;
  wire_pump(&self->client.wire, -1, wait_ms);
  while (self->client.is_open && wire_next(&self->client.wire, &frame)) handle(self, &frame);
  if (!self->client.wire.is_lost) return self->client.is_open;
  client_lost(&self->client);
  fail(self);
  return false;
}

/* Waits until at most so many confirmations are missing and little data waits to be sent. A server that accepts no
 * messages for now gets as much time as it needs, as long as it shows that it is alive. */
static bool wait_for_answers(sink *self, size_t most, size_t most_bytes, size_t most_waiting) {
  while (self->client.is_blocked || self->sending.missing > most || self->sending.missing_bytes > most_bytes
         || wire_waiting(&self->client.wire) > most_waiting) {
    if (self->sending.missing == 0 && most == 0 && wire_waiting(&self->client.wire) == 0) break;
    if (!pump(self, SLICE_MS)) return false;
    if (self->client.is_blocked) self->sending.end = now_ms() + self->sending.timeout;
    if (!sending_is_over(&self->sending)) continue;
    client_trouble(&self->client, "", "%zu messages were not confirmed within %lld ms", self->sending.missing,
                   (long long)self->sending.timeout);
    fail(self);
    return false;
  }
  return true;
}

/* Sends all messages, with a window of unconfirmed ones. False: some have no verdict. */
static bool send_all(sink *self) {
  for (size_t i = 0; i < self->sending.batch->count; i++) {
    if (self->sending.verdicts[i].kind != TO_SEND) continue;
    if (!sending_is_event(&self->sending, i)) {
      sending_mark(&self->sending, i, DELIVERED);
      continue;
    }
    if ((self->client.is_blocked || self->sending.missing >= WINDOW_MOST || self->sending.missing_bytes >= WINDOW_BYTES_MOST
         || wire_waiting(&self->client.wire) >= OUT_MOST)
        && !wait_for_answers(self, WINDOW_MOST / 2, WINDOW_BYTES_MOST / 2, OUT_MOST / 2))
      return false;
    publish(self, i);
    if (wire_waiting(&self->client.wire) >= PUSH_BYTES && !pump(self, 0)) return false;
  }
  return wait_for_answers(self, 0, 0, SIZE_MAX);
}

/* The server has closed the channel with a reason, but without naming the message. */
static bool reopen(sink *self) {
  if (client_reopen(&self->client) == DONE && begin_channel(self) == DONE) return true;
  fail(self);
  return false;
}

static bool fail_without_exchange(sink *self) {
  if (self->client.code != AMQP_NOT_FOUND) return false;
  client_trouble(&self->client, "exchange", "%s; create it, set 'declare', or correct 'exchange'", self->client.reason);
  fail(self);
  return true;
}

/* Sends one message alone, so that it must be the cause if the server closes the channel. */
static void send_alone(sink *self, size_t index) {
  char problem[PROBLEM_MOST];
  self->sending.end = now_ms() + self->sending.timeout;
  self->first_tag = self->last_tag + 1;
  self->sent_count = self->settled = 0;
  publish(self, index);
  if (self->sending.verdicts[index].kind != SENT || wait_for_answers(self, 0, 0, SIZE_MAX) || self->sending.has_failed) return;
  if (fail_without_exchange(self)) return;
  snprintf(problem, sizeof problem, "the server refuses the message: %s", self->client.reason);
  sending_refuse(&self->sending, index, problem);
  reopen(self);
}

/* Sends each unconfirmed message again, alone. */
static void send_singly(sink *self) {
  sending_again(&self->sending);
  if (fail_without_exchange(self) || !reopen(self)) return;
  for (size_t i = 0; i < self->sending.batch->count && !self->sending.has_failed; i++) {
    if (host->is_closing(self->client.attempts.instance)) {
      client_trouble(&self->client, "", "the pipeline has stopped");
      fail(self);
    } else if (self->sending.verdicts[i].kind == TO_SEND) send_alone(self, i);
  }
}

/* ---- A batch ---- */

/* A hash of an event's content. Equal events are interchangeable. */
static uint64_t hash_event(sink *self, size_t index) {
  const rxd_input *input = sending_input(&self->sending, index);
  uint64_t hash = hash_text(hash_start, host->json(self->sending.scope, &input->event));
  for (uint32_t i = 0; i < input->argument_count; i++) {
    rxd_text text = {"", 0};
    argument(self->sending.scope, input, i, &text);
    hash = hash_text(hash, text);
  }
  return hash;
}

static void forget_known(sink *self) {
  free(self->known);
  self->known = NULL;
  self->known_count = 0;
}

/* Finds repeated events that the server has already confirmed, although an earlier event failed. */
static void recognize(sink *self) {
  for (size_t i = 0; i < self->known_count && i < self->sending.batch->count; i++) {
    if (hash_event(self, i) != self->known[i].hash) break;
    if (self->known[i].is_delivered) self->sending.verdicts[i].kind = DELIVERED;
  }
  forget_known(self);
}

static void remember(sink *self, size_t through) {
  self->known = need(calloc(self->sending.batch->count - through + 1, sizeof *self->known));
  for (size_t i = through; i < self->sending.batch->count; i++)
    if (self->sending.verdicts[i].kind != REFUSED_ALONE)
      self->known[self->known_count++] = (known){hash_event(self, i), self->sending.verdicts[i].kind == DELIVERED};
}

static void begin(sink *self, rxd_scope *scope, const rxd_batch *batch) {
  sending_begin(&self->sending, scope, batch);
  self->sent = need(calloc(batch->count + 1, sizeof *self->sent));
  self->first_tag = self->last_tag + 1;
  self->sent_count = self->settled = 0;
  recognize(self);
}

/* Reports the certain verdicts; returns true if those are all. */
static bool judge(sink *self, rxd_verdicts *verdicts) {
  size_t through = sending_report(&self->sending, verdicts);
  if (through == self->sending.batch->count) return true;
  remember(self, through);
  bool has_nacked = false;
  for (size_t i = through; i < self->sending.batch->count; i++)
    has_nacked = has_nacked || self->sending.verdicts[i].kind == NACKED;
  if (has_nacked && !self->sending.has_failed)
    client_trouble(&self->client, "", "the server cannot take messages (nack): a queue is full, or has no leader");
  return false;
}

static void end(sink *self) {
  sending_end(&self->sending);
  free(self->sent);
  self->sent = NULL;
}

static int write_batch(sink *self, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  outcome outcome = connect_sink(self);
  if (outcome != DONE) {
    host->count_up(self->client.attempts.instance, RXD_TEXT_OF("connectionErrors"), 1);
    fail_at(scope, self->client.attempts.at, "%s", self->client.attempts.problem);
    return outcome == REFUSED ? RXD_FAILED : RXD_RETRY;
  }
  begin(self, scope, batch);
  if (!send_all(self) && !self->sending.has_failed) send_singly(self);
  bool is_done = judge(self, verdicts);
  if (self->sending.has_failed) host->count_up(self->client.attempts.instance, RXD_TEXT_OF("connectionErrors"), 1);
  end(self);
  if (is_done) return RXD_OK;
  fail_at(scope, self->client.attempts.at, "%s", self->client.attempts.problem);
  return RXD_RETRY;
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  pthread_mutex_lock(&self->mutex);
  if (!self->has_keeper) self->has_keeper = pthread_create(&self->keeper, NULL, keep, self) == 0;
  int status = self->has_keeper ? write_batch(self, scope, batch, verdicts) : RXD_RETRY;
  if (!self->has_keeper) fail_at(scope, "", "no thread can be started");
  pthread_mutex_unlock(&self->mutex);
  return status;
}

/* ---- Opening ---- */

static void sink_close(void *opaque) {
  sink *self = opaque;
  pthread_mutex_lock(&self->mutex);
  self->is_ending = true;
  pthread_cond_signal(&self->ending);
  pthread_mutex_unlock(&self->mutex);
  if (self->has_keeper) pthread_join(self->keeper, NULL);
  if (self->client.is_open) client_leave(&self->client, now_ms() + LEAVE_MS);
  client_close(&self->client);
  forget_known(self);
  pthread_mutex_destroy(&self->mutex);
  pthread_cond_destroy(&self->ending);
  free(self->exchange);
  free(self->content_type);
  free(self->app_id);
  free(self->properties);
  free(self);
}

static int message_parameters(const rxd_opening *opening, sink *self) {
  static const char *const types[] = {"direct", "fanout", "topic", "headers"};
  int status = short_parameter(opening, "exchange", &self->exchange);
  if (status == RXD_OK) status = short_parameter(opening, "contentType", &self->content_type);
  if (status == RXD_OK) status = short_parameter(opening, "appId", &self->app_id);
  if (status != RXD_OK) return status;
  if (self->exchange == NULL) self->exchange = need(strdup(""));
  for (size_t i = 0; i < 4; i++)
    if (choice_is(opening, "declare", types[i])) self->declared_type = types[i];
  if (*self->exchange == 0 && self->declared_type != NULL)
    return fail_at(opening->scope, "declare", "has no effect without 'exchange'");
  if (*self->exchange == 0 && opening->given != NULL && opening->given_count > ROUTING_KEY && !opening->given[ROUTING_KEY])
    return fail_at(opening->scope, "routingKey", "without 'exchange', it must be the name of a queue");
  self->is_mandatory = boolean_parameter(opening, "mandatory");
  self->is_persistent = boolean_parameter(opening, "persistent");
  if (is_given(opening, "expiration"))
    snprintf(self->expiration, sizeof self->expiration, "%lld",
             (long long)milliseconds_parameter(opening, "expiration", 0));
  return RXD_OK;
}

static int sink_open(const rxd_opening *opening, void **instance) {
  sink *self = need(calloc(1, sizeof *self));
  pthread_mutex_init(&self->mutex, NULL);
  init_condition(&self->ending);
  self->properties = need(malloc(PROPERTIES_MOST));
  self->sending.instance = opening->instance;
  self->sending.timeout = milliseconds_parameter(opening, "timeout", 30000);
  int status = client_open(opening, &self->client);
  if (status == RXD_OK) status = message_parameters(opening, self);
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

const rxd_component amqp_sink = {
  .size = sizeof(rxd_component),
  .name = {"amqp", 4},
  .kind = {"sink", 4},
  .open = sink_open,
  .close = sink_close,
  .write = sink_write,
};
