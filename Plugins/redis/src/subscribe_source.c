/* The source `redisSubscribe`: pub/sub. Messages published while it is disconnected are lost. */
#include "component.h"

typedef struct subscribe_source {
  rxd_instance *instance;
  settings settings;
  char **channels, **patterns;
  size_t channel_count, pattern_count;
  bool as_json;
} subscribe_source;

static void subscribe_close(void *opaque) {
  subscribe_source *self = opaque;
  settings_close(&self->settings);
  for (size_t i = 0; i < self->channel_count; i++) free(self->channels[i]);
  for (size_t i = 0; i < self->pattern_count; i++) free(self->patterns[i]);
  free(self->channels);
  free(self->patterns);
  free(self);
}

static int names_parameter(const rxd_opening *opening, const char *name, char ***names, size_t *count) {
  rxd_value list = parameter(opening, name);
  size_t given = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  *names = need(calloc(given + 1, sizeof **names));
  for (size_t i = 0; i < given; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    rxd_text text = host->text(opening->scope, &element);
    char at[64];
    snprintf(at, sizeof at, "%s.%zu", name, i);
    if (text.count == 0) return fail_at(opening->scope, at, "must not be empty");
    if (memchr(text.bytes, 0, text.count) != NULL) return fail_at(opening->scope, at, "must not contain a zero byte");
    (*names)[(*count)++] = copy_text(text);
  }
  return RXD_OK;
}

static int subscribe_open(const rxd_opening *opening, void **instance) {
  subscribe_source *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  int status = settings_open(opening, &self->settings);
  if (status == RXD_OK) status = names_parameter(opening, "channels", &self->channels, &self->channel_count);
  if (status == RXD_OK) status = names_parameter(opening, "patterns", &self->patterns, &self->pattern_count);
  if (status == RXD_OK && self->channel_count + self->pattern_count == 0)
    status = fail_at(opening->scope, "channels", "needs a channel or a pattern");
  self->as_json = choice_is(opening, "decode", "json");
  if (status != RXD_OK) {
    subscribe_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static void subscribe(running *running, const char *command, char **names, size_t count) {
  if (count == 0) return;
  rxd_text *arguments = need(malloc((count + 1) * sizeof *arguments));
  arguments[0] = text_of(command);
  for (size_t i = 0; i < count; i++) arguments[i + 1] = text_of(names[i]);
  connection_command(&running->connection, count + 1, arguments);
  free(arguments);
}

/* RXD_STOP, or RXD_OK, also for replies that are not messages. */
static int send_message(subscribe_source *self, running *running, const redisReply *reply) {
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 || reply->element[0]->type != REDIS_REPLY_STRING)
    return RXD_OK;
  bool is_pattern = strcmp(reply->element[0]->str, "pmessage") == 0 && reply->elements == 4;
  if (!is_pattern && strcmp(reply->element[0]->str, "message") != 0) return RXD_OK;
  const redisReply *channel = reply->element[is_pattern ? 2 : 1], *message = reply->element[is_pattern ? 3 : 2];
  if (channel->type != REDIS_REPLY_STRING || message->type != REDIS_REPLY_STRING) return RXD_OK;
  rxd_scope *scope = host->source_scope(running->source);
  rxd_text names[] = {WORD("channel"), WORD("message"), WORD("pattern")};
  rxd_value values[3] = {
    host->make_text(scope, (rxd_text){channel->str, channel->len}),
    value_of_bytes(scope, message->str, message->len),
  };
  if (self->as_json && !decode_json(scope, message->str, message->len, &values[1])) {
    host->reject_input(running->source, (rxd_text){message->str, message->len}, WORD("the message is not a JSON document"),
                       0);
    return RXD_OK;
  }
  if (is_pattern) values[2] = host->make_text(scope, (rxd_text){reply->element[1]->str, reply->element[1]->len});
  rxd_value event = host->make_object(scope, names, values, is_pattern ? 3 : 2);
  return host->add(running->source, &event, 0);
}

static int subscribe_run(void *opaque, rxd_scope *scope, rxd_source *source) {
  subscribe_source *self = opaque;
  running running = {.instance = self->instance, .source = source, .scope = scope, .settings = &self->settings};
  connection_init(&running.connection);
  int wake = host->wake_descriptor(source), status = RXD_OK;
  bool failed = false, was_asked = false;
  size_t confirmed = 0;
  while (!failed && status != RXD_STOP && !is_stopping(&running)) {
    if (!connection_is_open(&running.connection)) {
      if (!connect_source(&running, &failed)) continue;
      subscribe(&running, "SUBSCRIBE", self->channels, self->channel_count);
      subscribe(&running, "PSUBSCRIBE", self->patterns, self->pattern_count);
      confirmed = 0;
      was_asked = false;
    }
    bool waits = confirmed < self->channel_count + self->pattern_count || was_asked;
    redisReply *reply;
    enum outcome outcome = connection_reply(&running.connection, &reply, waits ? self->settings.timeout : 30000, wake);
    if (outcome == WOKEN) {
      take_acks(&running, 0);
    } else if (outcome == TIMED_OUT && !waits) {
      /* A silent connection may be dead, so a reply is provoked. */
      COMMAND(&running.connection, WORD("PING"));
      was_asked = true;
    } else if (outcome != DONE) {
      running.failures++;
      lose(&running, outcome == TIMED_OUT ? "no answer in time" : running.connection.problem);
    } else if (reply->type == REDIS_REPLY_ERROR) {
      failed = judge(&running, reply, "SUBSCRIBE") == RXD_FAILED;
    } else {
      size_t added = 0;
      was_asked = false;
      do {
        bool is_confirmation =
          reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && reply->element[2]->type == REDIS_REPLY_INTEGER;
        if (is_confirmation && ++confirmed == self->channel_count + self->pattern_count) connected(&running);
        if (status != RXD_STOP) status = send_message(self, &running, reply);
        freeReplyObject(reply);
        if (++added % 1000 == 0 && host->flush(source) == RXD_STOP) status = RXD_STOP;
      } while ((reply = connection_next(&running.connection)) != NULL);
      if (host->flush(source) == RXD_STOP) status = RXD_STOP;
    }
  }
  connection_close(&running.connection);
  return failed ? RXD_FAILED : RXD_OK;
}

const rxd_component redis_subscribe_source = {
  .size = sizeof(rxd_component),
  .name = {"redisSubscribe", 14},
  .kind = {"source", 6},
  .open = subscribe_open,
  .close = subscribe_close,
  .run = subscribe_run,
};
