/* The source `amqp`. The thread of the connection handles heartbeats and answers whatever rxd does. The queue is bounded by
 * basic.qos: the server sends at most `prefetch` unacknowledged messages.
 *
 * A message is acknowledged when rxd has acknowledged its event. The server delivers unacknowledged messages again over
 * the next connection. Tokens contain the number of the channel, so late acknowledgements match nothing. A stream keeps
 * its messages: rxd saves the position, and an acknowledgement only requests more messages. */
#include "event.h"
#include "queue.h"
#include "tags.h"

enum {
  BODY_MOST = 512 << 20, /* size of a message; servers accept no larger ones */
  WAIT_MS = 1000,        /* wait for the server */
  POOL_PAGE = 16384,
};

/* A message whose frames have not all arrived. */
typedef struct assembly {
  bool has_method, has_header;
  uint64_t tag;
  bool is_redelivered;
  char exchange[256], routing_key[256];
  size_t exchange_count, routing_key_count;
  message *message; /* allocated when the header arrives */
  size_t received;  /* bytes of the body so far */
} assembly;

typedef struct source {
  broker_source broker;
  client client;
  queue queue;
  decoding decode;
  bool requeues; /* whether messages of failed events are requeued */
  int wake;      /* eventfd: the thread of the connection has work */
  /* Protected by the mutex. */
  tags tags;
  uint32_t epoch;    /* channel number */
  int64_t fail_at;   /* when failed messages are returned (now_ms) */
  unsigned failures; /* failed events in a row */
  int64_t resume;    /* the first offset of the stream that has not left the queue yet; -1: unknown */
  /* Used only by the thread of `run`. */
  amqp_pool_t pool; /* memory for properties */
  /* Used only by the thread of the connection. */
  assembly assembly;
  broker_message *received, **received_tail; /* received messages that are not in the queue yet */
  amqp_pool_t offsets_pool; /* memory for properties with stream offsets */
} source;

static void count_up(const source *self, const char *name, int64_t by) {
  host->count_up(self->client.attempts.instance, text_of(name), by);
}

/* ---- Messages ---- */

static char *place(char **at, const void *bytes, size_t count) {
  char *placed = *at;
  if (count > 0) memcpy(placed, bytes, count);
  *at += count;
  return placed;
}

/* Makes the message of a header frame; its body follows. NULL: memory is short. */
static message *make_message(const assembly *assembly, const uint8_t *properties, size_t count, size_t body) {
  message *made = malloc(sizeof *made + assembly->exchange_count + assembly->routing_key_count + count + body);
  if (made == NULL) return NULL;
  char *at = (char *)(made + 1);
  *made = (message){.tag = assembly->tag, .is_redelivered = assembly->is_redelivered, .offset = -1};
  made->exchange = (rxd_text){place(&at, assembly->exchange, assembly->exchange_count), assembly->exchange_count};
  made->routing_key =
    (rxd_text){place(&at, assembly->routing_key, assembly->routing_key_count), assembly->routing_key_count};
  made->properties = (rxd_text){place(&at, properties, count), count};
  made->body = (rxd_text){at, body};
  return made;
}

/* ---- The connection, on the thread ---- */

static void destroy_message(broker_message *message) { free(message); }

/* Forgets the deliveries of a lost channel; the server delivers unacknowledged messages again. */
static void forget(source *self) {
  free(self->assembly.message);
  memset(&self->assembly, 0, sizeof self->assembly);
  for (broker_message *one; (one = self->received) != NULL; free(one)) self->received = one->next;
  self->received_tail = &self->received;
  broker_lock(&self->broker);
  tags_clear(&self->tags);
  self->epoch = next_epoch(self->epoch);
  broker_drop(&self->broker, NULL, 0);
  broker_unlock(&self->broker);
}

/* ---- Deliveries, on the thread ---- */

static size_t keep_short(char *kept, amqp_bytes_t bytes) {
  if (bytes.len > 0) memcpy(kept, bytes.bytes, bytes.len < 255 ? bytes.len : 255);
  return bytes.len < 255 ? bytes.len : 255;
}

static void out_of_order(source *self) { wire_fail(&self->client.wire, "the server has sent frames out of order"); }

static void begin_message(source *self, const frame *frame) {
  assembly *assembly = &self->assembly;
  amqp_basic_deliver_t *deliver = wire_decode(&self->client.wire, frame);
  if (deliver == NULL) return;
  if (assembly->has_method) {
    out_of_order(self);
    return;
  }
  assembly->has_method = true;
  assembly->tag = deliver->delivery_tag;
  assembly->is_redelivered = deliver->redelivered != 0;
  assembly->exchange_count = keep_short(assembly->exchange, deliver->exchange);
  assembly->routing_key_count = keep_short(assembly->routing_key, deliver->routing_key);
}

/* Queues a message whose frames have all arrived. */
static void end_message(source *self) {
  message *made = self->assembly.message;
  if (self->queue.is_stream) {
    made->offset = stream_offset(&self->offsets_pool, made->properties);
    if (made->offset < 0) {
      char problem[400];
      snprintf(problem, sizeof problem, "the queue '%.200s' is not a stream; correct 'type'", self->queue.name);
      broker_fail(&self->broker, "type", problem);
    }
  }
  made->base.bytes = made->body.count + made->properties.count;
  *self->received_tail = &made->base;
  self->received_tail = &made->base.next;
  memset(&self->assembly, 0, sizeof self->assembly);
}

static void begin_body(source *self, const frame *frame) {
  enum { CONTENT_HEAD = 12 };
  assembly *assembly = &self->assembly;
  if (!assembly->has_method || assembly->has_header || frame->count < CONTENT_HEAD) {
    out_of_order(self);
    return;
  }
  uint64_t size = 0;
  for (size_t i = 4; i < CONTENT_HEAD; i++) size = size << 8 | frame->bytes[i];
  if (size <= BODY_MOST)
    assembly->message = make_message(assembly, frame->bytes + CONTENT_HEAD, frame->count - CONTENT_HEAD, (size_t)size);
  if (assembly->message == NULL) {
    wire_fail(&self->client.wire, "a message has %llu bytes, which is too many", (unsigned long long)size);
    return;
  }
  assembly->has_header = true;
  if (size == 0) end_message(self);
}

static void add_to_body(source *self, const frame *frame) {
  assembly *assembly = &self->assembly;
  if (!assembly->has_header || frame->count > assembly->message->body.count - assembly->received) {
    out_of_order(self);
    return;
  }
  memcpy((char *)(uintptr_t)assembly->message->body.bytes + assembly->received, frame->bytes, frame->count);
  assembly->received += frame->count;
  if (assembly->received == assembly->message->body.count) end_message(self);
}

static void handle(source *self, const frame *frame) {
  if (client_handle(&self->client, frame)) return;
  if (frame->type == AMQP_FRAME_HEADER) begin_body(self, frame);
  else if (frame->type == AMQP_FRAME_BODY) add_to_body(self, frame);
  else if (frame_method(frame) == AMQP_BASIC_DELIVER_METHOD) begin_message(self, frame);
  else if (frame_method(frame) == AMQP_BASIC_CANCEL_METHOD)
    wire_fail(&self->client.wire, "the server has cancelled the consumer: the queue '%.80s' was deleted, or has moved",
              self->queue.name);
}

/* Hands received messages to `run`. */
static void hand_over(source *self) {
  if (self->received == NULL) return;
  int64_t repeated = 0;
  broker_lock(&self->broker);
  while (self->received != NULL) {
    message *one = (message *)self->received;
    self->received = one->base.next;
    if (!tags_add(&self->tags, one->tag)) {
      wire_fail(&self->client.wire, "the server has sent deliveries out of order");
      free(one);
      continue;
    }
    if (one->is_redelivered) repeated++;
    /* A chunk of a stream may start before the requested offset. */
    if (self->queue.is_stream && one->offset < self->resume) {
      tags_mark(&self->tags, one->tag, ACKNOWLEDGED);
      free(one);
      continue;
    }
    one->epoch = self->epoch;
    if (!self->queue.is_stream) one->base.token = token_of(self->epoch, one->tag);
    broker_put(&self->broker, &one->base);
  }
  self->received_tail = &self->received;
  broker_unlock(&self->broker);
  if (repeated > 0) count_up(self, "redelivered", repeated);
}

static void receive(source *self) {
  frame frame;
  while (self->client.is_open && wire_next(&self->client.wire, &frame)) handle(self, &frame);
  hand_over(self);
}

static outcome connect_source(void *opaque) {
  source *self = opaque;
  outcome outcome = client_connect(&self->client);
  broker_lock(&self->broker);
  int64_t resume = self->resume;
  broker_unlock(&self->broker);
  if (outcome == DONE) outcome = queue_consume(&self->queue, &self->client, resume);
  if (outcome != DONE) return outcome;
  client_works(&self->client);
  receive(self); /* deliveries may have arrived with the last answer */
  return DONE;
}

/* ---- Acknowledgements ---- */

static void send_answer(void *closure, uint64_t tag, bool is_failed, bool is_multiple) {
  source *self = closure;
  if (is_failed) {
    amqp_basic_nack_t nack = {.delivery_tag = tag, .requeue = self->requeues};
    wire_put_method(&self->client.wire, CHANNEL, AMQP_BASIC_NACK_METHOD, &nack);
    return;
  }
  amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = is_multiple};
  wire_put_method(&self->client.wire, CHANNEL, AMQP_BASIC_ACK_METHOD, &ack);
}

/* Writes due acknowledgements, on the thread of the connection. Returns the time until more may be due. */
static int64_t answer(source *self) {
  broker_lock(&self->broker);
  int64_t left = self->tags.failed > 0 ? self->fail_at - now_ms() : WAIT_MS;
  tags_settle(&self->tags, self->tags.failed > 0 && left <= 0, send_answer, self);
  broker_unlock(&self->broker);
  return left <= 0 || left > WAIT_MS ? WAIT_MS : left;
}

/* Applies rxd's verdict on an event, under the mutex. */
static void judge(void *opaque, const rxd_ack *ack) {
  source *self = opaque;
  uint64_t tag = self->tags.first + index_of_token(ack->token, self->tags.first);
  bool has_failed_before = self->tags.failed > 0;
  if (epoch_of(ack->token) != self->epoch) return;
  if (!ack->is_failed) {
    if (tags_mark(&self->tags, tag, ACKNOWLEDGED)) self->failures = 0;
    return;
  }
  if (!tags_mark(&self->tags, tag, FAILED)) return;
  /* Without a pause, the server would deliver the message again immediately. */
  if (!has_failed_before) self->fail_at = now_ms() + (self->requeues ? backoff_ms(2 + self->failures++) : 0);
  count_up(self, self->requeues ? "requeued" : "deadLettered", 1);
}

static outcome serve(void *opaque) {
  source *self = opaque;
  int64_t wait = answer(self);
  wire_pump(&self->client.wire, self->wake, wait);
  clear_event(self->wake);
  receive(self);
  if (self->client.wire.is_lost) client_lost(&self->client);
  else if (!self->client.is_open)
    client_trouble(&self->client, "", "the server has closed the channel: %s", self->client.reason);
  return self->client.wire.is_lost || !self->client.is_open ? UNREACHABLE : DONE;
}

static void close_connection(void *opaque, bool is_lost) {
  source *self = opaque;
  if (!is_lost) {
    broker_lock(&self->broker);
    tags_settle(&self->tags, true, send_answer, self);
    broker_unlock(&self->broker);
    client_leave(&self->client, now_ms() + broker_left(&self->broker, CLOSE_MS));
  }
  client_disconnect(&self->client);
  forget(self);
}

static void wake(void *opaque) {
  source *self = opaque;
  signal_event(self->wake);
}

/* ---- Events, on the thread of `run` ---- */

static void take(void *opaque, broker_message *taken) {
  source *self = opaque;
  const message *message = (const struct message *)taken;
  if (message->offset >= 0) self->resume = message->offset + 1;
}

static bool add(void *opaque, rxd_source *running, const broker_message *taken) {
  source *self = opaque;
  return add_message(self->decode, running, self->queue.name, (const message *)taken, &self->pool);
}

static void keep_position(void *opaque, rxd_source *running, const broker_message *taken) {
  (void)opaque;
  const message *last = (const message *)taken;
  char text[24];
  if (last->offset < 0) return;
  snprintf(text, sizeof text, "%lld", (long long)last->offset);
  host->position(running, text_of(text));
}

/* Grants the server credit for as many more messages of the stream. */
static void ask_for_more(void *opaque, broker_message **messages, size_t count) {
  source *self = opaque;
  if (!self->queue.is_stream) return;
  broker_lock(&self->broker);
  for (size_t i = 0; i < count; i++) {
    const message *one = (const message *)messages[i];
    if (one->epoch == self->epoch) tags_mark(&self->tags, one->tag, ACKNOWLEDGED);
  }
  broker_unlock(&self->broker);
  signal_event(self->wake);
}

static const broker_protocol protocol = {
  .open = connect_source,
  .serve = serve,
  .close = close_connection,
  .wake = wake,
  .take = take,
  .judge = judge,
  .add = add,
  .added = keep_position,
  .sent = ask_for_more,
  .destroy = destroy_message,
};

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  return broker_run(&self->broker, scope, running);
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  broker_close(&self->broker);
  client_close(&self->client);
  queue_close(&self->queue);
  tags_free(&self->tags);
  empty_amqp_pool(&self->pool);
  empty_amqp_pool(&self->offsets_pool);
  if (self->wake >= 0) close(self->wake);
  free(self);
}

/* The offset of the last message before the position. */
static int position_parameter(const rxd_opening *opening, source *self) {
  self->resume = -1;
  if (!self->queue.is_stream || opening->position.bytes == NULL) return RXD_OK;
  char *text = copy_text(opening->position), *end = text;
  long long last = strtoll(text, &end, 10);
  bool is_offset = end != text && *end == 0 && last >= 0 && last < INT64_MAX;
  free(text);
  if (is_offset) self->resume = last + 1;
  return is_offset ? RXD_OK : fail_at(opening->scope, "", "the saved position is not an offset of a stream");
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->client.wire.fd = -1;
  self->received_tail = &self->received;
  self->epoch = 1;
  self->decode = decode_parameter(opening);
  self->requeues = choice_is(opening, "onFailure", "requeue");
  self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  tags_clear(&self->tags);
  init_amqp_pool(&self->pool, POOL_PAGE);
  init_amqp_pool(&self->offsets_pool, POOL_PAGE);
  int status = broker_open(&self->broker, opening, &protocol, &self->client.attempts, self);
  if (status == RXD_OK && self->wake < 0) status = fail_at(opening->scope, "", "no more descriptors");
  if (status == RXD_OK) status = client_open(opening, &self->client);
  if (status == RXD_OK) status = queue_open(opening, &self->queue);
  if (status == RXD_OK) status = position_parameter(opening, self);
  self->client.is_ending = &self->broker.is_ending;
  self->broker.has_positions = self->queue.is_stream;
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

const rxd_component amqp_source = {
  .size = sizeof(rxd_component),
  .name = {"amqp", 4},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
