#include "publish.h"
#include "consumer.h"

enum {
  WINDOW_MOST = 2048,          /* unacknowledged messages, */
  WINDOW_BYTES_MOST = 8 << 20, /* and their bytes */
  SLICE_MS = 100,              /* time between checks for a stop, */
  FLUSH_MS = 3000,             /* maximum time of a round trip */
};

enum { NO_STREAM = OWN_VERDICT }; /* a message that no stream has answered */

/* ---- The connection ---- */

static void disconnect(publisher *self) {
  client_hang_up(&self->client);
  if (self->acks != NULL) natsSubscription_Destroy(self->acks);
  self->acks = NULL;
  free(self->inbox);
  self->inbox = NULL;
  self->unanswered = 0;
  client_disconnect(&self->client);
}

/* Fails the batch. Answers on this connection are no longer awaited. */
static void fail(publisher *self) {
  self->sending.has_failed = true;
  disconnect(self);
}

static void fail_lost(publisher *self) {
  client_trouble(&self->client, "the connection is lost");
  fail(self);
}

static bool subscribe_to_acks(publisher *self) {
  char *wildcard;
  self->inbox = client_inbox(&self->client);
  if (asprintf(&wildcard, "%s.>", self->inbox) < 0) abort();
  natsStatus status = natsConnection_SubscribeSync(&self->acks, self->client.connection, wildcard);
  if (status == NATS_OK) status = natsSubscription_SetPendingLimits(self->acks, -1, -1);
  free(wildcard);
  return status == NATS_OK;
}

static outcome connect_publisher(publisher *self) {
  if (client_is_connected(&self->client)) return DONE;
  disconnect(self);
  outcome outcome = client_connect_any(&self->client);
  if (outcome == DONE && self->stream != NULL && !subscribe_to_acks(self)) {
    client_trouble(&self->client, "the connection is lost");
    disconnect(self);
    outcome = UNREACHABLE;
  }
  return outcome;
}

/* ---- Verdicts ---- */

/* Whether a message such as "Permissions Violation for Publish to "SUBJECT"" is about this subject. */
static bool names_subject(const char *violation, const char *subject) {
  const char *quote = strchr(violation, '"');
  size_t count = strlen(subject);
  return quote != NULL && strncmp(quote + 1, subject, count) == 0 && strcmp(quote + 1 + count, "\"") == 0
         && strcasestr(violation, "publish to") != NULL;
}

/* ---- Acknowledgements of a stream ---- */

/* The index of the message; the size of the batch if the ack belongs to an earlier batch. */
static size_t index_of_ack(const publisher *self, natsMsg *ack) {
  unsigned batch, index;
  const char *subject = natsMsg_GetSubject(ack);
  size_t count = strlen(self->inbox);
  bool is_own = strncmp(subject, self->inbox, count) == 0 && sscanf(subject + count, ".%u.%u", &batch, &index) == 2
                && batch == self->batch_number && index < self->sending.batch->count;
  return is_own && self->sending.verdicts[index].kind == SENT ? index : self->sending.batch->count;
}

/* A stream's error either concerns the message (400 and similar) or is temporary (503): limits, resources, no
 * leader. */
static void judge_error(publisher *self, size_t index, const rxd_value *error) {
  rxd_value code = host->member(self->sending.scope, error, RXD_TEXT_OF("code"));
  rxd_value number = host->member(self->sending.scope, error, RXD_TEXT_OF("err_code"));
  rxd_value description = host->member(self->sending.scope, error, RXD_TEXT_OF("description"));
  rxd_text text = host->text(self->sending.scope, &description);
  int64_t kind = host->integer(&code), detail = host->integer(&number);
  if ((kind >= 400 && kind < 500) || detail == JSStreamRollupFailedErr || detail == JSStreamMessageExceedsMaximumErr) {
    char problem[PROBLEM_MOST];
    snprintf(problem, sizeof problem, "the stream '%.80s' refuses the message: %.*s", self->stream,
             (int)(text.count < 120 ? text.count : 120), text.bytes);
    sending_refuse(&self->sending, index, problem);
    return;
  }
  client_trouble(&self->client, "the stream '%.80s' takes no messages: %.*s", self->stream,
                 (int)(text.count < 120 ? text.count : 120), text.bytes);
  self->sending.has_failed = true;
}

static void judge_ack(publisher *self, natsMsg *ack) {
  size_t index = index_of_ack(self, ack);
  if (index == self->sending.batch->count) return;
  rxd_value answer;
  rxd_text text = {natsMsg_GetData(ack), (size_t)natsMsg_GetDataLength(ack)};
  bool is_json = text.count > 0 && host->parse_json(self->sending.scope, text, &answer) == RXD_OK;
  rxd_value error = is_json ? host->member(self->sending.scope, &answer, RXD_TEXT_OF("error")) : host->make_null();
  rxd_value sequence = is_json ? host->member(self->sending.scope, &answer, RXD_TEXT_OF("seq")) : host->make_null();
  if (host->kind(&error) == RXD_OBJECT) judge_error(self, index, &error);
  else if (host->integer(&sequence) > 0) sending_mark(&self->sending, index, DELIVERED);
  else {
    client_trouble(&self->client, "the receiver that accepted a message is not a stream");
    self->sending.has_failed = true;
  }
}

/* Handles available acknowledgements; waits for the first. False: none arrived. */
static bool take_acks(publisher *self, int64_t wait_ms) {
  for (bool has_come = false;; has_come = true) {
    natsMsg *ack = NULL;
    natsStatus status = natsSubscription_NextMsg(&ack, self->acks, has_come ? 0 : wait_ms);
    if (status == NATS_NO_RESPONDERS) self->unanswered++;
    else if (status == NATS_OK) judge_ack(self, ack);
    else {
      if (status != NATS_TIMEOUT) fail_lost(self);
      return has_come;
    }
    natsMsg_Destroy(ack);
  }
}

/* Once all other messages have an answer, the remaining ones are those without a responder. */
static void mark_unanswered(publisher *self) {
  for (size_t i = 0; i < self->sending.batch->count && self->unanswered > 0; i++)
    if (self->sending.verdicts[i].kind == SENT) sending_mark(&self->sending, i, NO_STREAM);
  self->unanswered = 0;
}

/* Waits until at most so many are missing. False: something has failed, or a message is not permitted. */
static bool wait_for_acks(publisher *self, size_t most, size_t most_bytes) {
  while (!self->sending.has_failed && self->sending.missing > self->unanswered
         && (self->sending.missing > most || self->sending.missing_bytes > most_bytes)) {
    if (take_acks(self, SLICE_MS) || self->sending.has_failed) continue;
    if (client_violation(&self->client) != NULL) return false;
    if (sending_is_over(&self->sending)) {
      client_trouble(&self->client, "%zu messages were not acknowledged within %lld ms", self->sending.missing,
                     (long long)self->sending.timeout);
      self->sending.has_failed = true;
    }
  }
  if (!self->sending.has_failed && self->sending.missing == self->unanswered) mark_unanswered(self);
  return !self->sending.has_failed;
}

/* ---- Sending ---- */

static void judge_publish(publisher *self, size_t index, natsStatus status, size_t bytes) {
  char problem[PROBLEM_MOST];
  switch (status) {
    case NATS_OK:
      sending_sent(&self->sending, index, bytes);
      break;
    case NATS_MAX_PAYLOAD:
      snprintf(problem, sizeof problem, "the message has more bytes, with its headers, than the server takes: %lld",
               (long long)natsConnection_GetMaxPayload(self->client.connection));
      sending_refuse(&self->sending, index, problem);
      break;
    case NATS_INVALID_SUBJECT: sending_refuse(&self->sending, index, "the subject is not valid"); break;
    case NATS_NO_SERVER_SUPPORT: sending_refuse(&self->sending, index, "the server does not know headers"); break;
    default: fail_lost(self);
  }
}

static void publish(publisher *self, size_t index) {
  char inbox[200], *reply = self->stream != NULL ? inbox : NULL, problem[PROBLEM_MOST];
  if (reply != NULL) snprintf(inbox, sizeof inbox, "%s.%u.%zu", self->inbox, self->batch_number, index);
  natsMsg *message = self->make(self->sink, self->sending.scope, sending_input(&self->sending, index), reply, problem);
  if (message == NULL) {
    sending_refuse(&self->sending, index, problem);
    return;
  }
  size_t bytes = (size_t)natsMsg_GetDataLength(message) + strlen(natsMsg_GetSubject(message));
  natsStatus status = natsConnection_PublishMsg(self->client.connection, message);
  judge_publish(self, index, status, bytes);
  natsMsg_Destroy(message);
}

/* Makes a round trip, after which the server has received everything before it and reported every violation. Each try
 * waits longer than the last, so that a stop is noticed. */
static bool flush(publisher *self) {
  natsStatus status = NATS_TIMEOUT;
  for (int64_t slice = SLICE_MS; status == NATS_TIMEOUT; slice = slice < FLUSH_MS ? slice * 2 : slice) {
    if (slice > SLICE_MS && (sending_is_over(&self->sending))) break;
    status = natsConnection_FlushTimeout(self->client.connection, slice);
  }
  if (status == NATS_OK) return true;
  if (status == NATS_TIMEOUT)
    client_trouble(&self->client, "the server did not answer within %lld ms", (long long)self->sending.timeout);
  else client_trouble(&self->client, "the connection is lost");
  fail(self);
  return false;
}

/* Sends all messages, with a window of unacknowledged ones. */
static void send_all(publisher *self) {
  bool goes_on = true;
  for (size_t i = 0; i < self->sending.batch->count && goes_on && !self->sending.has_failed; i++) {
    if (!sending_is_event(&self->sending, i)) sending_mark(&self->sending, i, DELIVERED);
    else publish(self, i);
    if (self->stream != NULL && (self->sending.missing >= WINDOW_MOST || self->sending.missing_bytes >= WINDOW_BYTES_MOST))
      goes_on = wait_for_acks(self, WINDOW_MOST / 2, WINDOW_BYTES_MOST / 2);
  }
  if (self->sending.has_failed || !goes_on) return;
  if (self->stream != NULL) wait_for_acks(self, 0, 0);
  else flush(self);
}

/* After an answer that fails the batch, waits for the answers to the other messages in flight, so that fewer messages
 * are uncertain and sent again. */
static void settle(publisher *self) {
  enum { SETTLE_MS = 2000 };
  int64_t end = now_ms() + SETTLE_MS;
  while (self->acks != NULL && self->sending.missing > self->unanswered && now_ms() < end && !sending_is_over(&self->sending))
    take_acks(self, SLICE_MS);
}

/* Without a stream, the round trip is the confirmation. */
static void confirm_sent(publisher *self) {
  for (size_t i = 0; i < self->sending.batch->count; i++)
    if (self->sending.verdicts[i].kind == SENT) sending_mark(&self->sending, i, DELIVERED);
}

/* The subject of a message, for an error message. */
static char *subject_of(publisher *self, size_t index) {
  char problem[PROBLEM_MOST];
  natsMsg *message = self->make(self->sink, self->sending.scope, sending_input(&self->sending, index), NULL, problem);
  char *subject = need(strdup(message != NULL ? natsMsg_GetSubject(message) : ""));
  natsMsg_Destroy(message);
  return subject;
}

static void refuse_denied(publisher *self, size_t index) {
  const char *violation = client_violation(&self->client);
  char *subject = subject_of(self, index), problem[PROBLEM_MOST];
  if (names_subject(violation, subject)) {
    snprintf(problem, sizeof problem, "the server does not permit this user to publish to '%.120s'", subject);
    sending_refuse(&self->sending, index, problem);
  } else {
    client_trouble(&self->client, "%.180s; allow it to the user", violation);
    self->sending.has_failed = true;
  }
  free(subject);
}

/* Sends one message alone: the server reports the subject of a violation, but only of the last one. */
static void send_alone(publisher *self, size_t index) {
  if (host->is_closing(self->sending.instance)) {
    client_trouble(&self->client, "the pipeline has stopped");
    self->sending.has_failed = true;
    return;
  }
  self->sending.end = now_ms() + self->sending.timeout;
  if (connect_publisher(self) != DONE) {
    self->sending.has_failed = true;
    return;
  }
  publish(self, index);
  if (self->sending.has_failed || self->sending.verdicts[index].kind != SENT || !flush(self)) return;
  if (client_violation(&self->client) != NULL) {
    refuse_denied(self, index);
    /* A new connection has no violations. */
    disconnect(self);
  } else if (self->stream == NULL) sending_mark(&self->sending, index, DELIVERED);
  else wait_for_acks(self, 0, 0);
}

/* Sends each uncertain message again after a violation, alone. */
static void send_singly(publisher *self) {
  disconnect(self);
  sending_again(&self->sending);
  for (size_t i = 0; i < self->sending.batch->count && !self->sending.has_failed; i++)
    if (self->sending.verdicts[i].kind == TO_SEND) send_alone(self, i);
}

/* Handles messages without an answer: no stream has their subject, or JetStream or the stream is unavailable. */
static void look_for_stream(publisher *self) {
  size_t first = 0;
  while (first < self->sending.batch->count && self->sending.verdicts[first].kind != NO_STREAM) first++;
  if (first == self->sending.batch->count || self->sending.has_failed) return;
  uint64_t ignored;
  if (connect_publisher(self) != DONE || stream_bounds(&self->client, self->stream, &ignored, &ignored) != DONE) {
    self->sending.has_failed = true;
    return;
  }
  for (size_t i = first; i < self->sending.batch->count && !self->sending.has_failed; i++) {
    if (self->sending.verdicts[i].kind != NO_STREAM) continue;
    sending_mark(&self->sending, i, TO_SEND);
    send_alone(self, i);
    if (self->sending.verdicts[i].kind != NO_STREAM) continue;
    char *subject = subject_of(self, i), problem[PROBLEM_MOST];
    snprintf(problem, sizeof problem, "the stream '%.80s' has no subject that matches '%.100s'", self->stream, subject);
    sending_refuse(&self->sending, i, problem);
    free(subject);
  }
}

/* Messages of a subject must stay in order. */
static uint64_t order_of(const void *closure, size_t index) {
  char *subject = subject_of((publisher *)closure, index);
  uint64_t order = order_hash(0, subject, strlen(subject));
  free(subject);
  return order;
}

/* ---- A batch ---- */

int publisher_write(publisher *self, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  outcome outcome = connect_publisher(self);
  if (outcome != DONE) {
    host->count_up(self->client.attempts.instance, RXD_TEXT_OF("connectionErrors"), 1);
    fail_at(scope, "", "%s", self->client.attempts.problem);
    return outcome == REFUSED ? RXD_FAILED : RXD_RETRY;
  }
  self->batch_number++;
  sending_begin(&self->sending, scope, batch);
  send_all(self);
  if (self->sending.has_failed) settle(self);
  if (!self->sending.has_failed && client_violation(&self->client) != NULL) send_singly(self);
  else if (!self->sending.has_failed && self->stream == NULL) confirm_sent(self);
  if (self->stream != NULL) look_for_stream(self);
  size_t through = sending_report(&self->sending, verdicts);
  sending_report_later(&self->sending, verdicts, through, order_of, self);
  sending_end(&self->sending);
  if (through == batch->count) return RXD_OK;
  fail_at(scope, "", "%s", self->client.attempts.problem);
  disconnect(self);
  return RXD_RETRY;
}

/* ---- Opening ---- */

int publisher_open(const rxd_opening *opening, publisher *self, make_message *make, void *sink) {
  self->make = make;
  self->sink = sink;
  self->sending.instance = opening->instance;
  self->sending.timeout = milliseconds_parameter(opening, "timeout", 30000);
  return client_open(opening, &self->client);
}

void publisher_close(publisher *self) {
  disconnect(self);
  client_close(&self->client);
  free(self->stream);
}
