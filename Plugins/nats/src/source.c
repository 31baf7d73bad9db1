/* The source `nats`: messages published while it is connected. The library reads ahead into the bounded queue of a
 * subscription, and drops messages when the queue is full. */
#include "event.h"

enum {
  SUBJECTS_MOST = 100,
  QUEUE_MOST = 100000, /* messages */
  WAIT_MS = 50,        /* wait for a message; */
  ROUND_MS = 5,        /* wait for each of several subscriptions */
  DROPS_MS = 10000,    /* time between two warnings about dropped messages */
  SETUP_MS = 5000,     /* wait for the answer to subscriptions */
};

typedef struct source {
  rxd_source *running;
  client client;
  decoding decode;
  char *group;   /* NULL: every source gets every message */
  size_t buffer; /* read-ahead of the library in bytes */
  char *subjects[SUBJECTS_MOST];
  natsSubscription *subscriptions[SUBJECTS_MOST];
  int64_t dropped[SUBJECTS_MOST]; /* dropped messages that have been counted */
  size_t count, next;
  int64_t warn_at;
} source;

/* ---- The connection ---- */

static void disconnect(void *opaque, bool is_lost) {
  source *self = opaque;
  (void)is_lost;
  client_hang_up(&self->client);
  for (size_t i = 0; i < self->count; i++) {
    if (self->subscriptions[i] != NULL) natsSubscription_Destroy(self->subscriptions[i]);
    self->subscriptions[i] = NULL;
    self->dropped[i] = 0;
  }
  client_disconnect(&self->client);
}

static natsStatus subscribe(source *self, size_t index) {
  natsSubscription **subscription = &self->subscriptions[index];
  natsStatus status =
    self->group != NULL
      ? natsConnection_QueueSubscribeSync(subscription, self->client.connection, self->subjects[index], self->group)
      : natsConnection_SubscribeSync(subscription, self->client.connection, self->subjects[index]);
  if (status != NATS_OK) return status;
  return natsSubscription_SetPendingLimits(*subscription, QUEUE_MOST, (int)(self->buffer / self->count));
}

/* DONE when the server has accepted all subscriptions. */
static outcome connect_source(void *opaque) {
  source *self = opaque;
  outcome outcome = client_connect(&self->client);
  if (outcome != DONE) return outcome;
  natsStatus status = NATS_OK;
  for (size_t i = 0; i < self->count && status == NATS_OK; i++) status = subscribe(self, i);
  if (status == NATS_OK) status = natsConnection_FlushTimeout(self->client.connection, SETUP_MS);
  const char *violation = client_violation(&self->client);
  if (violation != NULL) {
    client_trouble(&self->client, "%.180s; allow it to the user", violation);
    return REFUSED;
  }
  if (status == NATS_OK) {
    client_works(&self->client);
    return DONE;
  }
  client_trouble(&self->client, "no subscription: %s", natsStatus_GetText(status));
  return UNREACHABLE;
}

/* ---- Messages ---- */

/* Counts messages that the library has dropped since the last check because rxd was too slow. */
static void look_for_drops(source *self) {
  int64_t dropped = 0;
  for (size_t i = 0; i < self->count; i++) {
    int64_t all = 0;
    if (natsSubscription_GetDropped(self->subscriptions[i], &all) != NATS_OK || all <= self->dropped[i]) continue;
    dropped += all - self->dropped[i];
    self->dropped[i] = all;
  }
  if (dropped == 0) return;
  host->count_up(self->client.attempts.instance, RXD_TEXT_OF("droppedMessages"), dropped);
  if (now_ms() < self->warn_at) return;
  self->warn_at = now_ms() + DROPS_MS;
  report(self->client.attempts.instance, "warning",
         "the pipeline is too slow: messages were dropped (the counter droppedMessages says how many)");
}

/* The next message, from the subscriptions in turn. NULL: there is none. False: the connection is lost. */
static bool next_message(source *self, int64_t wait_ms, natsMsg **message) {
  *message = NULL;
  for (size_t tried = 0; tried < self->count; tried++) {
    size_t index = (self->next + tried) % self->count;
    bool waits = wait_ms > 0 && tried + 1 == self->count;
    natsStatus status = natsSubscription_NextMsg(message, self->subscriptions[index], waits ? wait_ms : 0);
    if (status == NATS_OK) {
      self->next = index;
      return true;
    }
    *message = NULL;
    if (status != NATS_TIMEOUT && status != NATS_SLOW_CONSUMER) return false;
  }
  self->next = (self->next + 1) % self->count;
  return client_is_connected(&self->client);
}

/* Passes available messages to rxd. */
static outcome turn(void *opaque) {
  source *self = opaque;
  natsMsg *message;
  size_t bytes = 0;
  bool is_connected = true, goes_on = true;
  for (int taken = 0; taken < TAKEN_MOST && bytes < TAKEN_BYTES_MOST && goes_on; taken++) {
    is_connected = next_message(self, taken > 0 ? 0 : self->count == 1 ? WAIT_MS : ROUND_MS, &message);
    if (message == NULL) break;
    bytes += message_size(message);
    goes_on = add_message(self->decode, self->running, message, NULL, 0);
    natsMsg_Destroy(message);
  }
  look_for_drops(self);
  host->flush(self->running);
  if (is_connected) return DONE;
  client_trouble(&self->client, "the connection is lost");
  return UNREACHABLE;
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  static const reader reader = {connect_source, turn, disconnect};
  source *self = opaque;
  self->running = running;
  return reader_run(&reader, self, &self->client.attempts, scope, running);
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  client_close(&self->client);
  for (size_t i = 0; i < self->count; i++) free(self->subjects[i]);
  free(self->group);
  free(self);
}

static int subjects_parameter(const rxd_opening *opening, source *self) {
  rxd_value list = parameter(opening, "subjects");
  size_t given = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  if (given == 0) return fail_at(opening->scope, "subjects", "needs a subject");
  if (given > SUBJECTS_MOST) return fail_at(opening->scope, "subjects", "may have at most %d subjects", SUBJECTS_MOST);
  for (size_t i = 0; i < given; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    rxd_text text = host->text(opening->scope, &element);
    char at[32];
    snprintf(at, sizeof at, "subjects.%zu", i);
    if (!is_subject(text, true))
      return fail_at(opening->scope, at, "must be parts without spaces, separated by dots; %s", wildcards_help);
    self->subjects[self->count++] = copy_text(text);
  }
  return RXD_OK;
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->decode = decode_parameter(opening);
  int status = client_open(opening, &self->client);
  if (status == RXD_OK) status = buffer_parameter(opening, &self->buffer);
  if (status == RXD_OK) status = subjects_parameter(opening, self);
  if (status == RXD_OK) status = text_parameter(opening, "group", &self->group);
  if (status == RXD_OK && self->group != NULL && !is_subject(text_of(self->group), false))
    status = fail_at(opening->scope, "group", "must be a name without spaces and wildcards");
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

const rxd_component nats_source = {
  .size = sizeof(rxd_component),
  .name = {"nats", 4},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
