/* The source `amqp`. A separate thread owns the connection, so that heartbeats and answers are handled whatever rxd
 * does. `run` takes messages from a queue that basic.qos bounds: the server sends at most `prefetch` unacknowledged
 * messages.
 *
 * A message is acknowledged when rxd has acknowledged its event. The server delivers unacknowledged messages again over
 * the next connection. Tokens contain the number of the channel, so late acknowledgements match nothing. A stream keeps
 * its messages: rxd saves the position, and an acknowledgement only requests more messages. */
#include "event.h"
#include "queue.h"
#include "tags.h"

#include <poll.h>
#include <sys/eventfd.h>

enum {
  TAKEN_MOST = 500,    /* messages before they are given to rxd, */
  TAKEN_BYTES_MOST = 1 << 20, /* and their bytes */
  SLOW_MS = 20,        /* of a stream: a pipeline that needs longer for what it got gets less at once, so that more of it
                          has a position of its own */
  BODY_MOST = 512 << 20, /* size of a message; servers accept no larger ones */
  WAIT_MS = 1000,      /* wait for work, on the connection's thread */
  POLL_MS = 100,       /* wait for work, on the thread of `run` */
  ACKS_MS = 25000,     /* during a stop: wait for acknowledgements, */
  CLOSE_MS = 5000,     /* and for their transmission */
  TAG_BITS = 48,       /* low bits of a token; the high bits are the channel number */
  NUMBER_MOST = 65535,
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
  rxd_instance *instance;
  client client;
  queue queue;
  decoding decode;
  bool requeues; /* whether messages of failed events are requeued */
  pthread_t thread;
  pthread_mutex_t mutex;
  int wake;  /* eventfd: the connection's thread has work */
  int ready; /* eventfd: `run` has work */
  /* Protected by the mutex. */
  tags tags;
  uint64_t number; /* channel number */
  message *head, **tail;
  int64_t fail_at;   /* when failed messages are returned (now_ms) */
  unsigned failures; /* failed events in a row */
  int64_t resume;    /* the first offset of the stream that `run` has not taken yet; -1: unknown */
  bool is_ending;
  int64_t close_by;  /* when the source stops waiting (now_ms) */
  char fatal[400], fatal_at[24]; /* why the thread has given up, if not empty */
  /* Used only by the thread of `run`. */
  size_t most; /* maximum number of messages before they are given to rxd */
  amqp_pool_t pool; /* memory for properties */
  /* Used only by the connection's thread. */
  assembly assembly;
  message *received, **received_tail; /* received messages that are not in the queue yet */
  amqp_pool_t offsets_pool; /* memory for properties with stream offsets */
  int64_t connect_at;
} source;

static void signal_event(int descriptor) {
  uint64_t one = 1;
  if (write(descriptor, &one, sizeof one) < 0) return; /* the descriptor is already readable */
}

static void clear_event(int descriptor) {
  uint64_t ignored;
  if (read(descriptor, &ignored, sizeof ignored) < 0) return;
}

static void count_up(const source *self, const char *name, int64_t by) {
  host->count_up(self->instance, text_of(name), by);
}

/* ---- Messages ---- */

static void append(message ***tail, message *one) {
  one->next = NULL;
  **tail = one;
  *tail = &one->next;
}

static void free_all(message **head, message ***tail) {
  while (*head != NULL) {
    message *one = *head;
    *head = one->next;
    free(one);
  }
  *tail = head;
}

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

static void give_up(source *self, const char *at, const char *problem) {
  pthread_mutex_lock(&self->mutex);
  snprintf(self->fatal, sizeof self->fatal, "%s", problem);
  snprintf(self->fatal_at, sizeof self->fatal_at, "%s", at);
  pthread_mutex_unlock(&self->mutex);
  signal_event(self->ready);
}

/* Forgets the deliveries of a lost channel; the server delivers unacknowledged messages again. */
static void forget(source *self) {
  free(self->assembly.message);
  memset(&self->assembly, 0, sizeof self->assembly);
  free_all(&self->received, &self->received_tail);
  pthread_mutex_lock(&self->mutex);
  tags_clear(&self->tags);
  self->number = self->number >= NUMBER_MOST ? 1 : self->number + 1;
  free_all(&self->head, &self->tail);
  pthread_mutex_unlock(&self->mutex);
}

/* Handles a lost connection; the client's `problem` has the reason. */
static void lost(source *self) {
  self->connect_at = now_ms() + client_failed(&self->client);
  client_disconnect(&self->client);
  forget(self);
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
      give_up(self, "type", problem);
    }
  }
  append(&self->received_tail, made);
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
  pthread_mutex_lock(&self->mutex);
  bool was_empty = self->head == NULL;
  while (self->received != NULL) {
    message *one = self->received;
    self->received = one->next;
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
    one->channel_number = self->number;
    if (!self->queue.is_stream) one->token = self->number << TAG_BITS | one->tag;
    append(&self->tail, one);
  }
  self->received_tail = &self->received;
  pthread_mutex_unlock(&self->mutex);
  if (repeated > 0) count_up(self, "redelivered", repeated);
  if (was_empty) signal_event(self->ready);
}

static void receive(source *self) {
  frame frame;
  while (self->client.is_open && wire_next(&self->client.wire, &frame)) handle(self, &frame);
  hand_over(self);
}

static void connect_now(source *self) {
  outcome outcome = client_connect(&self->client);
  pthread_mutex_lock(&self->mutex);
  int64_t resume = self->resume;
  pthread_mutex_unlock(&self->mutex);
  if (outcome == DONE) outcome = queue_consume(&self->queue, &self->client, resume);
  if (outcome == DONE) {
    client_works(&self->client);
    receive(self); /* deliveries may have arrived with the last answer */
  } else if (outcome == UNREACHABLE) lost(self);
  else give_up(self, self->client.at, self->client.problem);
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

/* Writes due acknowledgements, on the connection's thread. Returns the time until more may be due. */
static int64_t answer(source *self) {
  pthread_mutex_lock(&self->mutex);
  int64_t left = self->tags.failed > 0 ? self->fail_at - now_ms() : WAIT_MS;
  tags_settle(&self->tags, self->tags.failed > 0 && left <= 0, send_answer, self);
  pthread_mutex_unlock(&self->mutex);
  return left <= 0 || left > WAIT_MS ? WAIT_MS : left;
}

/* Applies rxd's verdict on an event, under the mutex. True: the event has failed. */
static bool judge(source *self, const rxd_ack *ack) {
  uint64_t tag = ack->token & (((uint64_t)1 << TAG_BITS) - 1);
  bool has_failed_before = self->tags.failed > 0;
  if (ack->token >> TAG_BITS != self->number) return false;
  if (!ack->is_failed) {
    if (tags_mark(&self->tags, tag, ACKNOWLEDGED)) self->failures = 0;
    return false;
  }
  if (!tags_mark(&self->tags, tag, FAILED)) return false;
  /* Without a pause, the server would deliver the message again immediately. */
  if (!has_failed_before) self->fail_at = now_ms() + (self->requeues ? backoff_ms(2 + self->failures++) : 0);
  return true;
}

/* ---- The thread ---- */

static bool is_over(source *self) {
  pthread_mutex_lock(&self->mutex);
  bool is_over = self->is_ending || self->fatal[0] != 0;
  pthread_mutex_unlock(&self->mutex);
  return is_over;
}

static void turn_of_thread(source *self) {
  int64_t wait = answer(self);
  wire_pump(&self->client.wire, self->wake, wait);
  clear_event(self->wake);
  receive(self);
  if (self->client.wire.is_lost) client_lost(&self->client);
  else if (!self->client.is_open)
    client_trouble(&self->client, "", "the server has closed the channel: %s", self->client.reason);
  if (self->client.wire.is_lost || !self->client.is_open) lost(self);
}

static void rest_until(source *self, int64_t end) {
  struct pollfd one = {.fd = self->wake, .events = POLLIN};
  int64_t left = end - now_ms();
  if (left > 0) poll(&one, 1, left < WAIT_MS ? (int)left : WAIT_MS);
  clear_event(self->wake);
}

static void *serve(void *opaque) {
  source *self = opaque;
  while (!is_over(self)) {
    if (self->client.is_open) turn_of_thread(self);
    else if (now_ms() < self->connect_at) rest_until(self, self->connect_at);
    else connect_now(self);
  }
  if (self->client.is_open) {
    pthread_mutex_lock(&self->mutex);
    tags_settle(&self->tags, true, send_answer, self);
    int64_t close_by = self->fatal[0] == 0 ? self->close_by : now_ms();
    pthread_mutex_unlock(&self->mutex);
    client_leave(&self->client, close_by);
  }
  client_disconnect(&self->client);
  return NULL;
}

/* ---- Events, on the thread of `run` ---- */

/* Takes at most `most` messages from the queue. */
static size_t take(source *self, message **messages) {
  size_t count = 0, bytes = 0;
  clear_event(self->ready);
  pthread_mutex_lock(&self->mutex);
  while (self->head != NULL && count < self->most && bytes < TAKEN_BYTES_MOST) {
    message *one = messages[count++] = self->head;
    self->head = one->next;
    bytes += one->body.count + one->properties.count;
    if (one->offset >= 0) self->resume = one->offset + 1;
  }
  if (self->head == NULL) self->tail = &self->head;
  pthread_mutex_unlock(&self->mutex);
  return count;
}

/* Handles rxd's acknowledgements; returns their number. */
static size_t take_acks(source *self, rxd_source *running, int64_t wait_ms) {
  rxd_ack acks[256];
  size_t count, all = 0;
  int64_t failed = 0;
  do {
    count = host->acks(running, acks, sizeof acks / sizeof acks[0], wait_ms * 1000000);
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < count; i++) failed += judge(self, &acks[i]);
    pthread_mutex_unlock(&self->mutex);
    all += count;
    wait_ms = 0;
  } while (count == sizeof acks / sizeof acks[0]);
  if (failed > 0) count_up(self, self->requeues ? "requeued" : "deadLettered", failed);
  if (all > 0) signal_event(self->wake);
  return all;
}

static void wait_for_work(source *self, rxd_source *running) {
  struct pollfd both[2] = {{.fd = self->ready, .events = POLLIN},
                           {.fd = host->wake_descriptor(running), .events = POLLIN}};
  poll(both, 2, POLL_MS);
}

/* Lets the server send as many further messages of the stream. */
static void ask_for_more(source *self, message **messages, size_t count) {
  pthread_mutex_lock(&self->mutex);
  for (size_t i = 0; i < count; i++)
    if (messages[i]->channel_number == self->number) tags_mark(&self->tags, messages[i]->tag, ACKNOWLEDGED);
  pthread_mutex_unlock(&self->mutex);
  signal_event(self->wake);
}

/* Adds messages, and the position after them. False: rxd accepts no more. */
static bool add_all(source *self, rxd_source *running, message **messages, size_t count, size_t *under_way) {
  bool goes_on = true;
  int64_t last = -1;
  for (size_t i = 0; i < count && goes_on; i++) {
    goes_on = add_message(self->decode, running, messages[i], &self->pool);
    if (messages[i]->token != 0) ++*under_way;
    if (messages[i]->offset >= 0) last = messages[i]->offset;
  }
  if (last >= 0) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)last);
    host->position(running, text_of(text));
  }
  return goes_on;
}

/* Sends the added events. False: rxd accepts no more. */
static bool flush(source *self, rxd_source *running) {
  int64_t begin = now_ms();
  bool goes_on = host->flush(running) != RXD_STOP;
  if (!self->queue.is_stream) return goes_on;
  bool is_slow = now_ms() - begin > SLOW_MS;
  self->most = is_slow ? (self->most + 1) / 2 : self->most * 2 < TAKEN_MOST ? self->most * 2 : TAKEN_MOST;
  return goes_on;
}

/* Passes messages to rxd and handles acknowledgements. False: the source must stop. */
static bool turn(source *self, rxd_source *running, size_t *under_way) {
  message *messages[TAKEN_MOST];
  size_t count = take(self, messages);
  bool goes_on = add_all(self, running, messages, count, under_way);
  if (count > 0 && !flush(self, running)) goes_on = false;
  if (self->queue.is_stream && count > 0) ask_for_more(self, messages, count);
  for (size_t i = 0; i < count; i++) free(messages[i]);
  size_t answered = take_acks(self, running, 0);
  *under_way -= answered;
  if (count == 0 && answered == 0) wait_for_work(self, running);
  return goes_on && host->is_stopping(running) == 0;
}

/* Gives outstanding events time; unacknowledged ones are delivered again later. */
static void settle(source *self, rxd_source *running, size_t under_way) {
  int64_t end = now_ms() + ACKS_MS;
  while (under_way > 0 && host->is_stopping(running) != 2 && now_ms() < end && !is_over(self))
    under_way -= take_acks(self, running, 100);
  take_acks(self, running, 0);
}

static void stop(source *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_ending = true;
  self->close_by = now_ms() + CLOSE_MS;
  pthread_mutex_unlock(&self->mutex);
  self->client.is_ending = true;
  signal_event(self->wake);
  pthread_join(self->thread, NULL);
  forget(self);
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  if (pthread_create(&self->thread, NULL, serve, self) != 0) return fail_at(scope, "", "no thread can be started");
  size_t under_way = 0;
  while (turn(self, running, &under_way) && !is_over(self)) {}
  settle(self, running, under_way);
  stop(self);
  /* A missing object may exist later: rxd decides whether to retry. */
  return self->fatal[0] == 0 ? RXD_OK : fail_at(scope, self->fatal_at, "%s", self->fatal);
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  client_close(&self->client);
  queue_close(&self->queue);
  tags_free(&self->tags);
  empty_amqp_pool(&self->pool);
  empty_amqp_pool(&self->offsets_pool);
  if (self->wake >= 0) close(self->wake);
  if (self->ready >= 0) close(self->ready);
  pthread_mutex_destroy(&self->mutex);
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
  pthread_mutex_init(&self->mutex, NULL);
  self->instance = opening->instance;
  self->client.wire.fd = -1;
  self->tail = &self->head;
  self->received_tail = &self->received;
  self->number = 1;
  self->decode = decode_parameter(opening);
  self->requeues = choice_is(opening, "onFailure", "requeue");
  self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  self->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  tags_clear(&self->tags);
  init_amqp_pool(&self->pool, POOL_PAGE);
  init_amqp_pool(&self->offsets_pool, POOL_PAGE);
  int status = self->wake < 0 || self->ready < 0 ? fail_at(opening->scope, "", "no more descriptors") : RXD_OK;
  if (status == RXD_OK) status = client_open(opening, &self->client);
  if (status == RXD_OK) status = queue_open(opening, &self->queue);
  if (status == RXD_OK) status = position_parameter(opening, self);
  self->most = self->queue.is_stream ? 1 : TAKEN_MOST;
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
