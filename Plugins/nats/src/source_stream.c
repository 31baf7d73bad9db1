/* The source `natsStream`. A separate thread pulls messages from the consumer, so that the server learns which are in
 * progress whatever rxd does. `run` takes messages from a queue that stays bounded, because no more messages are
 * requested than it has room for.
 *
 * A message is acknowledged when rxd has acknowledged its event. The server delivers unacknowledged messages again:
 * after a nak, or when the ack wait has passed. A repeated delivery of an outstanding message is dropped, and its
 * acknowledgement is sent for the newest delivery. */
#include "consumer.h"
#include "flights.h"
#include "pull.h"

#include <pthread.h>

enum {
  QUEUE_MOST = 10000,  /* messages */
  FLIGHTS_MOST = 100000, /* maximum number of unacknowledged messages, whatever the consumer allows */
  ASK_AGAIN_MS = 500,  /* pause after a request without an answer */
  TAKEN_MOST = 500,    /* messages before they are given to rxd, */
  TAKEN_BYTES_MOST = 1 << 20, /* and their bytes */
  FIRST_BYTES = 2048,  /* assumed size of a message before one is known */
  POLL_MS = 50,
  ACKS_MS = 25000,     /* during a stop: wait for acknowledgements, */
  CLOSE_MS = 5000,     /* and for their transmission */
};

typedef struct waiting {
  struct waiting *next;
  natsMsg *message;
  size_t bytes;
  uint64_t token;
} waiting;

typedef struct source {
  rxd_instance *instance;
  client client;
  char *stream, *durable, *filter;
  jsConsumerConfig config; /* for a consumer that is created */
  bool creates;
  decoding decode;
  int batch;
  size_t buffer; /* queue limit in bytes */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* the queue has a message, or the pulling thread has given up */
  pthread_cond_t room;    /* the queue has room, or the source is ending */
  /* Protected by the mutex. */
  flights flights;
  waiting *head, **tail;
  size_t queued, queued_bytes;
  bool is_ready;     /* acknowledgements may be sent on the connection */
  bool is_ending;
  int64_t close_by;  /* when the source stops waiting (now_ms) */
  char fatal[300];   /* why the thread has given up, if not empty */
  /* Used only by the pulling thread. */
  consumer consumer;
  pull pull;
  bool is_too_large; /* the next message is larger than the free part of the queue */
  size_t usual_bytes; /* moving average of message sizes */
  int64_t extend_at, connect_at, ask_at;
} source;

static void count_up(const source *self, const char *name, int64_t by) {
  host->count_up(self->instance, text_of(name), by);
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

/* True: the event has failed, and its message is returned to the server. */
static bool judge(source *self, const rxd_ack *ack) {
  flight *flight = flights_of_token(&self->flights, ack->token);
  if (flight == NULL || flight->is_done) return false;
  if (ack->is_failed) {
    give_back(self, flight, pause_of(flight));
    return true;
  }
  acknowledge(self, flight);
  return false;
}

static void send_again(flights *flights, flight *flight, void *closure) {
  (void)flights;
  if (flight->is_done) acknowledge(closure, flight);
}

/* ---- The queue, under the mutex ---- */

static void enqueue(source *self, waiting *one) {
  *self->tail = one;
  self->tail = &one->next;
  self->queued++;
  self->queued_bytes += one->bytes;
}

static waiting *dequeue(source *self) {
  waiting *one = self->head;
  self->head = one->next;
  if (self->head == NULL) self->tail = &self->head;
  self->queued--;
  self->queued_bytes -= one->bytes;
  return one;
}

static void drop_queued(source *self) {
  while (self->head != NULL) {
    waiting *one = dequeue(self);
    natsMsg_Destroy(one->message);
    free(one);
  }
}

/* ---- The connection, on the thread ---- */

static void give_up(source *self, const char *problem) {
  pthread_mutex_lock(&self->mutex);
  snprintf(self->fatal, sizeof self->fatal, "%s", problem);
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

/* Outstanding messages stay so: they can be acknowledged over the next connection. */
static void disconnect(source *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_ready = false;
  pthread_mutex_unlock(&self->mutex);
  pull_end(&self->pull);
  client_disconnect(&self->client);
}

static void lost(source *self) {
  self->connect_at = now_ms() + client_failed(&self->client);
  disconnect(self);
}

static void use(source *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_ready = true;
  flights_each(&self->flights, send_again, self);
  pthread_mutex_unlock(&self->mutex);
  self->is_too_large = false;
  client_works(&self->client);
}

/* Only the first connection creates a consumer: a replacement for a deleted one would start at another position. */
static void find_consumer(source *self) {
  bool creates = self->creates && self->consumer.name == NULL;
  found found = consumer_find(&self->client, self->stream, self->durable, &self->config, creates, &self->consumer);
  if (found == FOUND_NEVER) {
    give_up(self, self->client.problem);
    return;
  }
  bool is_found = found == FOUND && pull_begin(&self->pull, &self->client, self->stream, self->durable) == RXD_OK;
  if (is_found) use(self);
  else lost(self);
}

static void connect_now(source *self) {
  outcome outcome = client_connect(&self->client);
  if (outcome == CONNECTED) find_consumer(self);
  else if (outcome == REFUSED) give_up(self, self->client.problem);
  else lost(self);
}

/* Checks the consumer after a request without an answer: it may be gone, or JetStream may not be ready. */
static void look_for_consumer(source *self) {
  found found = consumer_find(&self->client, self->stream, self->durable, &self->config, false, &self->consumer);
  self->ask_at = now_ms() + ASK_AGAIN_MS;
  if (found == FOUND_LATER) lost(self);
  if (found == FOUND_NEVER) give_up(self, self->client.problem);
}

/* ---- Messages, on the thread ---- */

/* A snapshot of the queue's free space. */
typedef struct room {
  size_t messages, bytes;
  bool is_empty;
} room;

static room look_for_room(source *self) {
  pthread_mutex_lock(&self->mutex);
  room room = {
    .messages = self->queued < QUEUE_MOST && self->flights.count < FLIGHTS_MOST ? QUEUE_MOST - self->queued : 0,
    .bytes = self->queued_bytes < self->buffer ? self->buffer - self->queued_bytes : 0,
    .is_empty = self->queued == 0,
  };
  pthread_mutex_unlock(&self->mutex);
  return room;
}

static size_t least(size_t wanted, int64_t limit) {
  return limit > 0 && wanted > (size_t)limit ? (size_t)limit : wanted;
}

/* Sends the next request if half of the buffer is free. A message larger than the whole buffer is requested alone,
 * when nothing else is queued. Requests only as many messages as will probably fit: servers (2.9) that must stop at
 * the byte limit may deliver messages twice. */
static void ask(source *self) {
  room room = look_for_room(self);
  if (now_ms() < self->ask_at || (self->is_too_large && !room.is_empty)) return;
  size_t batch = least((size_t)self->batch, self->consumer.batch_most);
  size_t bytes = least(room.bytes, self->consumer.bytes_most);
  size_t fitting = bytes / (2 * self->usual_bytes) + 1;
  if (batch > fitting) batch = fitting;
  if (self->is_too_large) batch = 1, bytes = 0;
  else if (room.messages < batch || room.bytes < self->buffer / 2) return;
  self->is_too_large = false;
  if (pull_request(&self->pull, &self->client, (int)batch, bytes) == RXD_OK) return;
  client_trouble(&self->client, "the connection is lost");
  lost(self);
}

static void receive(source *self, natsMsg *message, const origin *origin) {
  size_t bytes = message_size(message);
  self->usual_bytes += bytes / 16 - self->usual_bytes / 16;
  pthread_mutex_lock(&self->mutex);
  flight *flight = flights_find(&self->flights, origin->sequence);
  bool is_new = flight == NULL;
  if (is_new) {
    waiting *one = need(calloc(1, sizeof *one));
    flight = flights_add(&self->flights, origin->sequence, natsMsg_GetReply(message));
    *one = (waiting){NULL, message, bytes, flight_token(flight)};
    enqueue(self, one);
    pthread_cond_signal(&self->changed);
  } else {
    flight_renew(flight, natsMsg_GetReply(message));
    if (flight->is_done) acknowledge(self, flight);
  }
  pthread_mutex_unlock(&self->mutex);
  if (is_new) return;
  count_up(self, "repeatedDeliveries", 1);
  natsMsg_Destroy(message);
}

/* Takes available messages, waiting briefly for the first. */
static void receive_some(source *self, int64_t wait_ms) {
  enum { RECEIVED_MOST = 256 };
  pull_answer answer;
  for (int received = 0; received < RECEIVED_MOST; received++) {
    pull_next(&self->pull, &self->client, received == 0 ? wait_ms : 0, &answer);
    if (answer.kind != PULL_MESSAGE) break;
    receive(self, answer.message, &answer.origin);
  }
  switch (answer.kind) {
    case PULL_TOO_LARGE: self->is_too_large = true; break;
    case PULL_NO_CONSUMER: look_for_consumer(self); break;
    case PULL_REFUSED:
      client_trouble(&self->client, "the consumer '%.60s' refuses requests: %.100s", self->durable, answer.problem);
      give_up(self, self->client.problem);
      break;
    case PULL_LOST:
      client_trouble(&self->client, "the connection is lost");
      lost(self);
      break;
    default: break;
  }
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
  pthread_mutex_lock(&self->mutex);
  flights_each(&self->flights, extend_one, &extension);
  pthread_mutex_unlock(&self->mutex);
}

static bool is_over(source *self) {
  pthread_mutex_lock(&self->mutex);
  bool is_over = self->is_ending || self->fatal[0] != 0;
  pthread_mutex_unlock(&self->mutex);
  return is_over;
}

/* Waits until a request is possible or, without a connection, until the next attempt. */
static void wait_for_room(source *self, int64_t wait_ms) {
  pthread_mutex_lock(&self->mutex);
  if (!self->is_ending && wait_ms > 0) wait_at_most(&self->room, &self->mutex, wait_ms < POLL_MS ? wait_ms : POLL_MS);
  pthread_mutex_unlock(&self->mutex);
}

static void give_back_all(flights *flights, flight *flight, void *closure) {
  (void)flights;
  if (!flight->is_done) give_back(closure, flight, 0);
}

static int64_t close_ms(source *self) {
  pthread_mutex_lock(&self->mutex);
  int64_t left = self->close_by - now_ms();
  pthread_mutex_unlock(&self->mutex);
  return left > 0 ? left : 0;
}

/* Ends the request, and receives what the server has sent meanwhile: otherwise returned messages would arrive here
 * again. */
static void end_request(source *self) {
  pull_answer answer;
  if (natsSubscription_DrainTimeout(self->pull.subscription, close_ms(self) / 2 + 1) != NATS_OK) return;
  do {
    pull_next(&self->pull, &self->client, POLL_MS, &answer);
    if (answer.kind == PULL_MESSAGE) receive(self, answer.message, &answer.origin);
  } while (answer.kind != PULL_LOST && close_ms(self) > CLOSE_MS / 2);
}

/* Returns unacknowledged messages, which the server then delivers again immediately, here or elsewhere. */
static void leave(source *self) {
  if (!self->is_ready) return;
  end_request(self);
  pthread_mutex_lock(&self->mutex);
  flights_each(&self->flights, give_back_all, self);
  pthread_mutex_unlock(&self->mutex);
  if (close_ms(self) > 0) natsConnection_FlushTimeout(self->client.connection, close_ms(self));
}

static void *serve(void *opaque) {
  source *self = opaque;
  while (!is_over(self)) {
    if (self->client.connection == NULL) {
      if (now_ms() < self->connect_at) wait_for_room(self, self->connect_at - now_ms());
      else connect_now(self);
      continue;
    }
    extend(self);
    if (self->pull.left == 0) ask(self);
    if (self->client.connection != NULL && self->pull.subscription != NULL)
      receive_some(self, self->pull.left > 0 ? POLL_MS : 0);
    if (self->client.connection != NULL && self->pull.left == 0) wait_for_room(self, 5);
  }
  if (self->fatal[0] == 0) leave(self);
  disconnect(self);
  return NULL;
}

/* ---- Events, on the thread of `run` ---- */

/* Takes at most TAKEN_MOST messages from the queue, waiting briefly for the first. */
static size_t take(source *self, waiting **messages) {
  size_t count = 0, bytes = 0;
  pthread_mutex_lock(&self->mutex);
  if (self->head == NULL && self->fatal[0] == 0)
    wait_at_most(&self->changed, &self->mutex, POLL_MS);
  while (self->head != NULL && count < TAKEN_MOST && bytes < TAKEN_BYTES_MOST) {
    messages[count] = dequeue(self);
    bytes += messages[count++]->bytes;
  }
  if (count > 0) pthread_cond_signal(&self->room);
  pthread_mutex_unlock(&self->mutex);
  return count;
}

/* Handles rxd's acknowledgements; returns their number. */
static size_t take_acks(source *self, rxd_source *running, int64_t wait_ms) {
  rxd_ack acks[256];
  size_t count, all = 0;
  int64_t returned = 0;
  do {
    count = host->acks(running, acks, sizeof acks / sizeof acks[0], wait_ms * 1000000);
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < count; i++) returned += judge(self, &acks[i]);
    pthread_mutex_unlock(&self->mutex);
    all += count;
    wait_ms = 0;
  } while (count == sizeof acks / sizeof acks[0]);
  if (returned > 0) count_up(self, "returned", returned);
  return all;
}

/* Passes messages to rxd and handles acknowledgements. False: the source must stop. */
static bool turn(source *self, rxd_source *running, size_t *under_way) {
  waiting *messages[TAKEN_MOST];
  size_t count = take(self, messages);
  bool goes_on = true;
  for (size_t i = 0; i < count; i++) {
    origin origin;
    if (goes_on && read_origin(natsMsg_GetReply(messages[i]->message), &origin)) {
      goes_on = add_message(self->decode, running, messages[i]->message, &origin, messages[i]->token);
      ++*under_way;
    }
    natsMsg_Destroy(messages[i]->message);
    free(messages[i]);
  }
  if (host->flush(running) == RXD_STOP) goes_on = false;
  *under_way -= take_acks(self, running, 0);
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
  pthread_cond_signal(&self->room);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
  drop_queued(self);
  flights_clear(&self->flights);
  consumer_forget(&self->consumer);
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  if (pthread_create(&self->thread, NULL, serve, self) != 0) return fail_at(scope, "", "no thread can be started");
  size_t under_way = 0;
  while (turn(self, running, &under_way) && !is_over(self)) {}
  settle(self, running, under_way);
  stop(self);
  /* A missing object may exist later: rxd decides whether to retry. */
  return self->fatal[0] == 0 ? RXD_OK : fail_at(scope, "", "%s", self->fatal);
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  client_close(&self->client);
  free(self->stream);
  free(self->durable);
  free(self->filter);
  pthread_mutex_destroy(&self->mutex);
  pthread_cond_destroy(&self->changed);
  pthread_cond_destroy(&self->room);
  free(self);
}

/* Reads a time such as "2026-01-31T12:00:00Z", also with a fraction or another offset. False: the text is not a
 * time. */
static bool read_time(const char *text, int64_t *nanoseconds) {
  struct tm time = {0};
  const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &time);
  if (at == NULL) return false;
  int64_t fraction = 0, unit = 1000000000;
  if (*at == '.')
    for (at++; isdigit((unsigned char)*at); at++) fraction += (*at - '0') * (unit /= 10);
  int hours = 0, minutes = 0, read = 0;
  if (strcmp(at, "Z") != 0
      && (sscanf(at, "%3d:%2d%n", &hours, &minutes, &read) != 2 || read != 6 || at[6] != 0))
    return false;
  int64_t offset = hours * 3600 + (*at == '-' ? -minutes : minutes) * 60;
  *nanoseconds = ((int64_t)timegm(&time) - offset) * 1000000000 + fraction;
  return true;
}

static int time_parameter(const rxd_opening *opening, const char *name, int64_t *nanoseconds) {
  char *text;
  int status = text_parameter(opening, name, &text);
  if (status == RXD_OK && !read_time(text, nanoseconds))
    status = fail_at(opening->scope, name, "must be a time such as 2026-01-31T12:00:00Z");
  free(text);
  return status;
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
  if (by_time) return time_parameter(opening, "startTime", &self->config.OptStartTime);
  return RXD_OK;
}

static int consumer_parameters(const rxd_opening *opening, source *self) {
  int status = name_parameter(opening, "stream", &self->stream);
  if (status == RXD_OK) status = name_parameter(opening, "consumer", &self->durable);
  if (status == RXD_OK) status = text_parameter(opening, "filter", &self->filter);
  if (status != RXD_OK) return status;
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
  init_condition(&self->changed);
  init_condition(&self->room);
  pthread_mutex_init(&self->mutex, NULL);
  self->instance = opening->instance;
  self->usual_bytes = FIRST_BYTES;
  self->tail = &self->head;
  self->decode = decode_parameter(opening);
  jsConsumerConfig_Init(&self->config);
  int status = client_open(opening, &self->client);
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
