/* The source `natsKV`: the current value of each key, then each change. Reads the stream of the bucket through a
 * consumer without a name that tracks no acknowledgements. If a message is missing or the consumer is gone, a new
 * consumer continues after the last change that was seen; likewise after a restart, from the position that rxd has
 * saved. */
#include "consumer.h"
#include "pull.h"

enum {
  BATCH = 500,
  POLL_MS = 50,
  UNUSED_SECONDS = 300, /* time after which the server removes an idle consumer: a pipeline may be slow for long */
};

typedef struct source {
  rxd_source *running;
  client client;
  decoding decode;
  char *bucket, *stream, *filter;
  bool only_changes;   /* skip the current values */
  bool is_complete;    /* all values that existed at the start have been added */
  bool is_loaded;      /* and rxd has been notified */
  size_t buffer;       /* size of a request in bytes */
  uint64_t revision;   /* the last one seen; 0: none */
  uint64_t newest;     /* the last one of the bucket when the consumer was created */
  /* State of the connection. */
  consumer consumer;
  pull pull;
  uint64_t delivered;  /* messages from this consumer */
  bool is_too_large;
  size_t most;         /* messages per batch for rxd */
} source;

/* ---- The connection ---- */

static void disconnect(void *opaque, bool is_lost) {
  source *self = opaque;
  if (!is_lost) consumer_remove(&self->client, self->stream, &self->consumer);
  client_hang_up(&self->client);
  pull_end(&self->pull);
  consumer_forget(&self->consumer);
  client_disconnect(&self->client);
}

/* Determines where to start. With only changes, that is after the last revision, which is recorded so that no change is
 * missed between two connections. Revisions beyond the end of the bucket belong to a deleted bucket of the same name. */
static outcome look_at_revision(source *self) {
  uint64_t first = 0, last = 0;
  outcome outcome = stream_bounds(&self->client, self->stream, &first, &last);
  if (outcome != DONE) return outcome;
  self->newest = last;
  if (self->revision > last) {
    report(self->client.attempts.instance, "warning", "the bucket '%.80s' was created again: its keys are read from the beginning",
           self->bucket);
    self->revision = 0;
  } else if (self->only_changes && self->revision == 0) self->revision = last;
  self->only_changes = false;
  return DONE;
}

static outcome begin(source *self) {
  outcome outcome = look_at_revision(self);
  if (outcome != DONE) return outcome;
  jsConsumerConfig config;
  jsConsumerConfig_Init(&config);
  config.DeliverPolicy = self->revision > 0 ? js_DeliverByStartSequence : js_DeliverLastPerSubject;
  config.OptStartSeq = self->revision > 0 ? self->revision + 1 : 0;
  config.AckPolicy = js_AckNone;
  config.FilterSubject = self->filter;
  config.MemoryStorage = true;
  config.InactiveThreshold = UNUSED_SECONDS * 1000000000LL;
  config.Replicas = 1;
  outcome = consumer_make(&self->client, self->stream, &config, &self->consumer);
  if (outcome != DONE) return outcome;
  self->delivered = 0;
  if (self->consumer.pending == 0) self->is_complete = true;
  self->is_too_large = false;
  if (pull_begin(&self->pull, &self->client, self->stream, self->consumer.name) == RXD_OK) return DONE;
  client_trouble(&self->client, "the connection is lost");
  return UNREACHABLE;
}

static void keep_position(source *self) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)self->revision);
  host->position(self->running, text_of(text));
}

static outcome connect_source(void *opaque) {
  source *self = opaque;
  outcome outcome = client_connect(&self->client);
  if (outcome == DONE) outcome = begin(self);
  if (outcome != DONE) return outcome;
  client_works(&self->client);
  if (self->revision > 0) keep_position(self);
  return DONE;
}

/* ---- Events ---- */

/* "put", "delete", "purge". */
static const char *operation_of(natsMsg *message) {
  const char *operation = NULL;
  if (natsMsgHeader_Get(message, "KV-Operation", &operation) != NATS_OK || operation == NULL) return "put";
  return strcmp(operation, "DEL") == 0 ? "delete" : strcmp(operation, "PURGE") == 0 ? "purge" : "put";
}

static bool add_change(source *self, natsMsg *message, const origin *origin) {
  enum { MEMBERS = 6 };
  rxd_scope *scope = host->source_scope(self->running);
  const char *key = natsMsg_GetSubject(message) + strlen("$KV..") + strlen(self->bucket);
  const char *operation = operation_of(message);
  rxd_value value = host->make_null();
  if (strcmp(operation, "put") == 0 && !message_value(scope, self->decode, message, &value)) {
    host->reject_input(self->running, host->text(scope, &value), RXD_TEXT_OF("the value is not a JSON document"), 0);
    return true;
  }
  const rxd_text names[MEMBERS] = {RXD_TEXT_OF("bucket"), RXD_TEXT_OF("key"), RXD_TEXT_OF("operation"),
                                   RXD_TEXT_OF("value"), RXD_TEXT_OF("revision"), RXD_TEXT_OF("timestamp")};
  const rxd_value values[MEMBERS] = {host->make_text(scope, text_of(self->bucket)),
                                     value_of_bytes(scope, key, strlen(key)),
                                     host->make_text(scope, text_of(operation)),
                                     value,
                                     host->make_int((int64_t)origin->sequence),
                                     host->make_timestamp(origin->time)};
  rxd_value event = host->make_object(scope, names, values, MEMBERS);
  bool goes_on = host->add(self->running, &event, 0) != RXD_STOP;
  name_event(self->running, text_of(self->bucket), origin->sequence);
  return goes_on;
}

static bool ask(source *self) {
  bool is_alone = self->is_too_large;
  self->is_too_large = false;
  int batch = is_alone ? 1 : BATCH;
  if (pull_request(&self->pull, &self->client, batch, is_alone ? 0 : self->buffer) == RXD_OK) return true;
  client_trouble(&self->client, "the connection is lost");
  return false;
}

/* In servers of version 2.9, a purge of one key makes consumers of all keys continue after the purge: undelivered messages
 * before it are skipped, even the purge marker. So a message that was stored after the consumer was created is accepted only
 * if it directly follows the last one; otherwise a new consumer determines what lies between. */
static bool may_have_skipped(const source *self, const origin *origin) {
  return origin->sequence > self->newest && origin->sequence > self->revision + 1;
}

/* Continues after the last change with a new consumer. */
static outcome begin_again(source *self) {
  pull_end(&self->pull);
  consumer_remove(&self->client, self->stream, &self->consumer);
  consumer_forget(&self->consumer);
  return begin(self);
}

/* Handles an answer without a message. False: a new consumer is needed. */
static bool judge(source *self, const pull_answer *answer) {
  switch (answer->kind) {
    case PULL_NO_CONSUMER: client_trouble(&self->client, "the consumer has gone"); return false;
    case PULL_REFUSED:
      client_trouble(&self->client, "the server refuses requests: %.100s", answer->problem);
      return false;
    case PULL_LOST: client_trouble(&self->client, "the connection is lost"); return false;
    default: self->is_too_large = answer->kind == PULL_TOO_LARGE; return true;
  }
}

static void hand_over(source *self) {
  int64_t begin = now_ms();
  if (self->is_complete && !self->is_loaded) {
    self->is_loaded = true;
    host->loaded(self->running);
  } else host->flush(self->running);
  self->most = next_batch(self->most, BATCH, begin);
}

/* Passes available messages to rxd. UNREACHABLE: a new consumer is needed. */
static outcome turn(void *opaque) {
  source *self = opaque;
  pull_answer answer;
  size_t bytes = 0, taken = 0;
  bool goes_on = true, is_usable = self->pull.left > 0 || ask(self), is_skipping = false;
  while (goes_on && is_usable && !is_skipping && taken < self->most && bytes < TAKEN_BYTES_MOST) {
    pull_next(&self->pull, &self->client, taken == 0 ? POLL_MS : 0, &answer);
    if (answer.kind != PULL_MESSAGE) {
      is_usable = judge(self, &answer);
      break;
    }
    if (answer.origin.consumer_sequence != self->delivered + 1) {
      client_trouble(&self->client, "messages are missing");
      is_usable = false;
    } else if (may_have_skipped(self, &answer.origin)) {
      is_skipping = true;
    } else {
      self->delivered++;
      self->revision = answer.origin.sequence;
      if (answer.origin.pending == 0) self->is_complete = true;
      bytes += message_size(answer.message);
      taken++;
      goes_on = add_change(self, answer.message, &answer.origin);
    }
    natsMsg_Destroy(answer.message);
  }
  if (taken > 0) keep_position(self);
  hand_over(self);
  if (!is_usable) return UNREACHABLE;
  return is_skipping && host->is_stopping(self->running) == 0 ? begin_again(self) : DONE;
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
  free(self->bucket);
  free(self->stream);
  free(self->filter);
  free(self);
}

static int bucket_parameters(const rxd_opening *opening, source *self) {
  char *keys = NULL;
  int status = bucket_parameter(opening, &self->bucket);
  if (status == RXD_OK) status = text_parameter(opening, "keys", &keys);
  if (status == RXD_OK && keys != NULL && !is_subject(text_of(keys), true))
    status = fail_at(opening->scope, "keys", "must be parts without spaces, separated by dots; %s", wildcards_help);
  if (status == RXD_OK
      && (asprintf(&self->stream, "KV_%s", self->bucket) < 0
          || asprintf(&self->filter, "$KV.%s.%s", self->bucket, keys != NULL ? keys : ">") < 0))
    abort();
  free(keys);
  self->client.bucket = self->bucket;
  return status;
}

static void position_parameter(const rxd_opening *opening, source *self) {
  if (opening->position.bytes == NULL) return;
  char *text = copy_text(opening->position);
  self->revision = strtoull(text, NULL, 10);
  free(text);
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->most = 1;
  self->decode = decode_parameter(opening);
  self->only_changes = choice_is(opening, "start", "changes");
  position_parameter(opening, self);
  int status = client_open(opening, &self->client);
  if (status == RXD_OK) status = buffer_parameter(opening, &self->buffer);
  if (status == RXD_OK) status = bucket_parameters(opening, self);
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

const rxd_component nats_kv_source = {
  .size = sizeof(rxd_component),
  .name = {"natsKV", 6},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
