/* The source `natsStream`. The thread of the connection pulls messages from the consumer, so that the server learns which
 * are in progress whatever rxd does. The queue stays bounded, because no more messages are requested than it has room
 * for.
 *
 * A message is acknowledged when rxd has acknowledged its event. The server delivers unacknowledged messages again:
 * after a nak, or when the ack wait has passed. A repeated delivery of an outstanding message is dropped, and its
 * acknowledgement is sent for the newest delivery. */
#include "consumer.h"
#include "flights.h"
#include "pull.h"

enum {
  QUEUE_MOST = 10000,  /* messages */
  FLIGHTS_MOST = 100000, /* maximum number of unacknowledged messages, whatever the consumer allows */
  ASK_AGAIN_MS = 500,  /* pause after a request without an answer */
  FIRST_BYTES = 2048,  /* assumed size of a message before one is known */
  POLL_MS = 50,
  LAG_MS = 1000,
  SILENT_MS = 5000,    /* silence after which the server is asked for the number of pending messages */
};

typedef struct delivery {
  broker_message base; /* must be first */
  natsMsg *message;
} delivery;

typedef struct source {
  broker_source broker;
  client client;
  char *stream, *durable, *filter;
  char *of;            /* of the gauge: "STREAM/CONSUMER" */
  jsConsumerConfig config; /* for a consumer that is created */
  bool creates;
  decoding decode;
  int batch;
  size_t buffer; /* queue limit in bytes */
  /* Protected by the mutex. */
  flights flights;
  bool is_ready;     /* acknowledgements may be sent on the connection */
  size_t waiting;    /* messages that rxd has not accepted yet, in the queue or in the batch that is being sent */
  /* Used only by the thread of the connection. */
  consumer consumer;
  pull pull;
  bool is_too_large; /* the next message is larger than the free part of the queue */
  size_t usual_bytes; /* moving average of message sizes */
  int64_t extend_at, ask_at, lag_at;
  uint64_t pending;  /* undelivered messages of the consumer, */
  int64_t counted_at; /* and when the server said so (now_ms) */
} source;

static void count_up(const source *self, const char *name, int64_t by) {
  host->count_up(self->client.attempts.instance, text_of(name), by);
}

/* ---- Acknowledgements, under the mutex ---- */

static bool say(source *self, const flight *flight, const char *what) {
  return self->is_ready && natsConnection_PublishString(self->client.connection, flight->reply, what) == NATS_OK;
}

static void acknowledge(source *self, flight *flight) {
  flight->is_done = true;
  if (say(self, flight, "+ACK")) flights_remove(&self->flights, flight);
}

/* The pause before a message is delivered again; grows with each failure. */
static int64_t pause_of(const flight *flight) {
  origin origin = {.deliveries = 1};
  read_origin(flight->reply, &origin);
  return backoff_ms(origin.deliveries < 8 ? (unsigned)origin.deliveries + 1 : 8);
}

/* Lets the server deliver the message again after a pause. Without a connection the server does so when the ack wait
 * has passed. */
static void give_back(source *self, flight *flight, int64_t pause_ms) {
  char text[60] = "-NAK";
  if (pause_ms > 0) snprintf(text, sizeof text, "-NAK {\"delay\":%lld}", (long long)pause_ms * 1000000);
  say(self, flight, text);
  flights_remove(&self->flights, flight);
}

static void judge(void *opaque, const rxd_ack *ack) {
  source *self = opaque;
  flight *flight = flights_of_token(&self->flights, ack->token);
  if (flight == NULL || flight->is_done) return;
  if (!ack->is_failed) {
    acknowledge(self, flight);
    return;
  }
  give_back(self, flight, pause_of(flight));
  count_up(self, "returned", 1);
}

static void send_again(flights *flights, flight *flight, void *closure) {
  (void)flights;
  if (flight->is_done) acknowledge(closure, flight);
}

/* ---- The connection, on its thread ---- */

static void destroy_delivery(broker_message *message) {
  natsMsg_Destroy(((delivery *)message)->message);
  free(message);
}

static outcome lose(source *self) {
  client_trouble(&self->client, "the connection is lost");
  return UNREACHABLE;
}

static void count_pending(source *self, uint64_t pending) {
  self->pending = pending;
  self->counted_at = now_ms();
}

/* Only the first connection creates a consumer: a replacement for a deleted one would start at another position. */
static outcome open_consumer(void *opaque) {
  source *self = opaque;
  outcome outcome = client_connect(&self->client);
  if (outcome != DONE) return outcome;
  bool creates = self->creates && self->consumer.name == NULL;
  outcome = consumer_find(&self->client, self->stream, self->durable, &self->config, creates, &self->consumer);
  if (outcome != DONE) return outcome;
  if (pull_begin(&self->pull, &self->client, self->stream, self->durable) != RXD_OK) return lose(self);
  broker_lock(&self->broker);
  self->is_ready = true;
  flights_each(&self->flights, send_again, self);
  broker_unlock(&self->broker);
  self->is_too_large = false;
  count_pending(self, self->consumer.pending);
  client_works(&self->client);
  return DONE;
}

/* Checks the consumer after a request without an answer: it may be gone, or JetStream may not be ready. */
static outcome look_for_consumer(source *self) {
  self->ask_at = now_ms() + ASK_AGAIN_MS;
  return consumer_find(&self->client, self->stream, self->durable, &self->config, false, &self->consumer);
}

/* ---- Messages, on the thread of the connection ---- */

/* A snapshot of the queue's free space. */
typedef struct room {
  size_t messages, bytes;
  bool is_empty;
} room;

static room look_for_room(source *self) {
  broker_lock(&self->broker);
  room room = {
    .messages = self->broker.queued < QUEUE_MOST && self->flights.count < FLIGHTS_MOST ? QUEUE_MOST - self->broker.queued : 0,
    .bytes = self->broker.queued_bytes < self->buffer ? self->buffer - self->broker.queued_bytes : 0,
    .is_empty = self->broker.queued == 0,
  };
  broker_unlock(&self->broker);
  return room;
}

static size_t least(size_t wanted, int64_t limit) {
  return limit > 0 && wanted > (size_t)limit ? (size_t)limit : wanted;
}

/* Sends the next request if half of the buffer is free. A message larger than the whole buffer is requested alone,
 * when nothing else is queued. Requests only as many messages as will probably fit: servers (2.9) that must stop at
 * the byte limit may deliver messages twice. */
static outcome ask(source *self) {
  room room = look_for_room(self);
  if (now_ms() < self->ask_at || (self->is_too_large && !room.is_empty)) return DONE;
  size_t batch = least((size_t)self->batch, self->consumer.batch_most);
  size_t bytes = least(room.bytes, self->consumer.bytes_most);
  size_t fitting = bytes / (2 * self->usual_bytes) + 1;
  if (batch > fitting) batch = fitting;
  if (self->is_too_large) batch = 1, bytes = 0;
  else if (room.messages < batch || room.bytes < self->buffer / 2) return DONE;
  self->is_too_large = false;
  if (pull_request(&self->pull, &self->client, (int)batch, bytes) == RXD_OK) return DONE;
  return lose(self);
}

static void receive(source *self, natsMsg *message, const origin *origin) {
  size_t bytes = message_size(message);
  self->usual_bytes += bytes / 16 - self->usual_bytes / 16;
  count_pending(self, origin->pending);
  broker_lock(&self->broker);
  flight *flight = flights_find(&self->flights, origin->sequence);
  bool is_new = flight == NULL;
  if (is_new) {
    delivery *one = need(calloc(1, sizeof *one));
    flight = flights_add(&self->flights, origin->sequence, natsMsg_GetReply(message));
    *one = (delivery){{.bytes = bytes, .token = flight_token(flight)}, message};
    self->waiting++;
    broker_put(&self->broker, &one->base);
  } else {
    flight_renew(flight, natsMsg_GetReply(message));
    if (flight->is_done) acknowledge(self, flight);
  }
  broker_unlock(&self->broker);
  if (is_new) return;
  count_up(self, "repeatedDeliveries", 1);
  natsMsg_Destroy(message);
}

/* Takes available messages, waiting briefly for the first. */
static outcome receive_some(source *self, int64_t wait_ms) {
  enum { RECEIVED_MOST = 256 };
  pull_answer answer;
  for (int received = 0; received < RECEIVED_MOST; received++) {
    pull_next(&self->pull, &self->client, received == 0 ? wait_ms : 0, &answer);
    if (answer.kind != PULL_MESSAGE) break;
    receive(self, answer.message, &answer.origin);
  }
  self->is_too_large = self->is_too_large || answer.kind == PULL_TOO_LARGE;
  if (answer.kind == PULL_NO_CONSUMER) return look_for_consumer(self);
  if (answer.kind == PULL_LOST) return lose(self);
  if (answer.kind != PULL_REFUSED) return DONE;
  client_trouble(&self->client, "the consumer '%.60s' refuses requests: %.100s", self->durable, answer.problem);
  return REFUSED;
}

typedef struct extension {
  source *self;
  int64_t before;
} extension;

static void extend_one(flights *flights, flight *flight, void *closure) {
  (void)flights;
  extension *extension = closure;
  if (flight->is_done || flight->extended_at > extension->before) return;
  if (say(extension->self, flight, "+WPI")) flight->extended_at = now_ms();
}

/* Reports messages that are still in progress, so that the server does not deliver them again. */
static void extend(source *self) {
  int64_t every = self->consumer.ack_wait / 3 + 1;
  if (now_ms() < self->extend_at) return;
  self->extend_at = now_ms() + every / 4;
  extension extension = {self, now_ms() - every};
  broker_lock(&self->broker);
  flights_each(&self->flights, extend_one, &extension);
  broker_unlock(&self->broker);
}

/* Reports the lag behind the stream. Arriving messages carry it; without messages, the server is asked. */
static void report_lag(source *self) {
  if (now_ms() < self->lag_at) return;
  self->lag_at = now_ms() + LAG_MS;
  broker_lock(&self->broker);
  bool has_flights = self->flights.count > 0;
  broker_unlock(&self->broker);
  if (has_flights && now_ms() > self->counted_at + SILENT_MS) {
    uint64_t pending = self->pending;
    /* A part of the time within which messages must be reported as in progress. */
    int64_t wait_ms = self->consumer.ack_wait / 8;
    consumer_pending(&self->client, self->stream, self->durable, wait_ms < 50 ? 50 : wait_ms > 250 ? 250 : wait_ms, &pending);
    count_pending(self, pending);
  }
  broker_lock(&self->broker);
  double lag = (double)self->pending + (double)self->waiting;
  broker_unlock(&self->broker);
  host->gauge(self->client.attempts.instance, RXD_TEXT_OF("lag"), text_of(self->of), lag);
}

static outcome serve(void *opaque) {
  source *self = opaque;
  extend(self);
  report_lag(self);
  outcome outcome = self->pull.left == 0 ? ask(self) : DONE;
  if (outcome == DONE) outcome = receive_some(self, self->pull.left > 0 ? POLL_MS : 0);
  if (outcome != DONE || self->pull.left > 0) return outcome;
  /* Waits until a request is possible. */
  broker_lock(&self->broker);
  broker_wait(&self->broker, 5);
  broker_unlock(&self->broker);
  return DONE;
}

static void give_back_all(flights *flights, flight *flight, void *closure) {
  (void)flights;
  if (!flight->is_done) give_back(closure, flight, 0);
}

/* Ends the request, and receives what the server has sent meanwhile: otherwise returned messages would arrive here
 * again. */
static void end_request(source *self) {
  pull_answer answer;
  if (natsSubscription_DrainTimeout(self->pull.subscription, broker_left(&self->broker, CLOSE_MS) / 2 + 1) != NATS_OK) return;
  do {
    pull_next(&self->pull, &self->client, POLL_MS, &answer);
    if (answer.kind == PULL_MESSAGE) receive(self, answer.message, &answer.origin);
  } while (answer.kind != PULL_LOST && broker_left(&self->broker, CLOSE_MS) > CLOSE_MS / 2);
}

/* Returns unacknowledged messages, which the server then delivers again immediately, here or elsewhere. */
static void leave(source *self) {
  end_request(self);
  broker_lock(&self->broker);
  flights_each(&self->flights, give_back_all, self);
  broker_unlock(&self->broker);
  int64_t left = broker_left(&self->broker, CLOSE_MS);
  if (left > 0) natsConnection_FlushTimeout(self->client.connection, left);
}

/* Outstanding messages of a lost connection stay so: they can be acknowledged over the next one. */
static void close_connection(void *opaque, bool is_lost) {
  source *self = opaque;
  if (!is_lost) leave(self);
  broker_lock(&self->broker);
  self->is_ready = false;
  broker_unlock(&self->broker);
  client_hang_up(&self->client);
  pull_end(&self->pull);
  client_disconnect(&self->client);
}

/* ---- Events, on the thread of `run` ---- */

static bool add(void *opaque, rxd_source *running, const broker_message *message) {
  source *self = opaque;
  const delivery *one = (const delivery *)message;
  origin origin;
  return !read_origin(natsMsg_GetReply(one->message), &origin)
         || add_message(self->decode, running, one->message, &origin, message->token);
}

static void sent(void *opaque, broker_message **messages, size_t count) {
  source *self = opaque;
  (void)messages;
  broker_lock(&self->broker);
  self->waiting -= count;
  broker_unlock(&self->broker);
}

static const broker_protocol protocol = {
  .open = open_consumer,
  .serve = serve,
  .close = close_connection,
  .judge = judge,
  .add = add,
  .sent = sent,
  .destroy = destroy_delivery,
};

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  int status = broker_run(&self->broker, scope, running);
  flights_clear(&self->flights);
  consumer_forget(&self->consumer);
  return status;
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  broker_close(&self->broker);
  client_close(&self->client);
  free(self->stream);
  free(self->durable);
  free(self->filter);
  free(self->of);
  free(self);
}

static int start_parameters(const rxd_opening *opening, source *self) {
  static const struct {
    const char *name;
    jsDeliverPolicy policy;
  } choices[] = {{"all", js_DeliverAll}, {"new", js_DeliverNew}, {"last", js_DeliverLast},
                 {"lastPerSubject", js_DeliverLastPerSubject}, {"sequence", js_DeliverByStartSequence},
                 {"time", js_DeliverByStartTime}};
  for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
    if (choice_is(opening, "start", choices[i].name)) self->config.DeliverPolicy = choices[i].policy;
  bool by_sequence = self->config.DeliverPolicy == js_DeliverByStartSequence;
  bool by_time = self->config.DeliverPolicy == js_DeliverByStartTime;
  if (is_given(opening, "startSequence") != by_sequence)
    return fail_at(opening->scope, by_sequence ? "start" : "startSequence",
                   "'start: sequence' and 'startSequence' belong together");
  if (is_given(opening, "startTime") != by_time)
    return fail_at(opening->scope, by_time ? "start" : "startTime", "'start: time' and 'startTime' belong together");
  if (by_sequence) self->config.OptStartSeq = (uint64_t)integer_parameter(opening, "startSequence", 1);
  int status = by_time ? time_parameter(opening, "startTime", &self->config.OptStartTime) : RXD_OK;
  /* The library (3.4) writes fractions without their leading zeros: .04 s as .4 s, which would skip messages. */
  enum { SECOND = 1000000000 };
  if (self->config.OptStartTime % SECOND < SECOND / 10) self->config.OptStartTime -= self->config.OptStartTime % SECOND;
  return status;
}

static int consumer_parameters(const rxd_opening *opening, source *self) {
  int status = name_parameter(opening, "stream", &self->stream);
  if (status == RXD_OK) status = name_parameter(opening, "consumer", &self->durable);
  if (status == RXD_OK) status = text_parameter(opening, "filter", &self->filter);
  if (status != RXD_OK) return status;
  if (asprintf(&self->of, "%s/%s", self->stream, self->durable) < 0) abort();
  if (self->filter != NULL && !is_subject(text_of(self->filter), true))
    return fail_at(opening->scope, "filter", "must be a subject, with wildcards * and >");
  self->batch = (int)integer_parameter(opening, "batch", 1000);
  self->creates = boolean_parameter(opening, "create");
  self->config.Durable = self->durable;
  /* The policy "last message of each subject" needs a filter, even if it matches all. */
  if (self->filter == NULL && choice_is(opening, "start", "lastPerSubject")) self->filter = need(strdup(">"));
  self->config.FilterSubject = self->filter;
  self->config.AckPolicy = js_AckExplicit;
  self->config.AckWait = integer_parameter(opening, "ackWait", 30000000000);
  self->config.MaxAckPending = integer_parameter(opening, "maxPending", 4096);
  return start_parameters(opening, self);
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->usual_bytes = FIRST_BYTES;
  self->decode = decode_parameter(opening);
  jsConsumerConfig_Init(&self->config);
  int status = broker_open(&self->broker, opening, &protocol, &self->client.attempts, self);
  if (status == RXD_OK) status = client_open(opening, &self->client);
  if (status == RXD_OK) status = buffer_parameter(opening, &self->buffer);
  if (status == RXD_OK) status = consumer_parameters(opening, self);
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

const rxd_component nats_stream_source = {
  .size = sizeof(rxd_component),
  .name = {"natsStream", 10},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
