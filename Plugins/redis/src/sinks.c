/* The sinks `redisStream`, `redisList`, `redisPublish` and `redisSet`. A batch is one pipeline of commands; an event is
 * delivered when the server has answered its command. */
#include "component.h"

enum command { ADD_TO_STREAM, PUSH, PUBLISH, SET };

typedef struct sink {
  rxd_instance *instance;
  settings settings;
  connection connection;
  enum command command;
  char *field;
  int64_t most, expiry; /* 0: unlimited; `expiry` in milliseconds */
  bool at_left;
  const char *key_name; /* name of the parameter */
} sink;

static void sink_close(void *opaque) {
  sink *self = opaque;
  connection_close(&self->connection);
  settings_close(&self->settings);
  free(self->field);
  free(self);
}

static int open_as(const rxd_opening *opening, void **instance, enum command command, const char *key_name) {
  sink *self = need(calloc(1, sizeof *self));
  connection_init(&self->connection);
  self->instance = opening->instance;
  self->command = command;
  self->key_name = key_name;
  int status = settings_open(opening, &self->settings);
  if (status == RXD_OK) status = text_parameter(opening, "field", &self->field);
  if (status == RXD_OK && self->field != NULL && *self->field == 0)
    status = fail_at(opening->scope, "field", "must not be empty");
  self->most = integer_parameter(opening, "maxLength", 0);
  self->expiry = milliseconds_parameter(opening, "expire", 0);
  self->at_left = choice_is(opening, "push", "left");
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static int stream_open(const rxd_opening *opening, void **instance) {
  return open_as(opening, instance, ADD_TO_STREAM, "stream");
}
static int list_open(const rxd_opening *opening, void **instance) { return open_as(opening, instance, PUSH, "key"); }
static int publish_open(const rxd_opening *opening, void **instance) {
  return open_as(opening, instance, PUBLISH, "channel");
}
static int set_open(const rxd_opening *opening, void **instance) { return open_as(opening, instance, SET, "key"); }

/* Makes an XADD, with the members of the event as fields, or the whole event as one field. False: refused. */
static bool add_entry(sink *self, rxd_scope *scope, const rxd_input *input, rxd_text key, rxd_verdicts *verdicts,
                      uint32_t index) {
  size_t members = self->field != NULL                       ? 1
                   : host->kind(&input->event) == RXD_OBJECT ? host->count(scope, &input->event)
                                                             : 0;
  if (members == 0) {
    host->refuse(
      verdicts, index,
      WORD("an entry of a stream needs a field, so the event must be an object with members; or set 'field'"));
    return false;
  }
  rxd_text *arguments = need(malloc((6 + 2 * members) * sizeof *arguments));
  char most[24];
  size_t count = 0;
  arguments[count++] = WORD("XADD");
  arguments[count++] = key;
  if (self->most > 0) {
    arguments[count++] = WORD("MAXLEN");
    arguments[count++] = WORD("~");
    arguments[count++] = number_text(most, sizeof most, self->most);
  }
  arguments[count++] = WORD("*");
  if (self->field != NULL) {
    arguments[count++] = text_of(self->field);
    arguments[count++] = bytes_of_value(scope, &input->event);
  }
  for (size_t i = 0; self->field == NULL && i < members; i++) {
    rxd_text name;
    rxd_value value = host->entry(scope, &input->event, i, &name);
    arguments[count++] = name;
    arguments[count++] = bytes_of_value(scope, &value);
  }
  connection_command(&self->connection, count, arguments);
  free(arguments);
  return true;
}

/* Whether the event retracts the value of its key. False: refused. */
static bool look_at_retraction(const sink *self, const rxd_input *input, rxd_verdicts *verdicts, uint32_t index,
                               bool *is_retracted) {
  enum { retracted = 2 }; /* after `key` and `value` */
  bool is_given = self->command == SET && retracted < input->argument_count;
  int kind = is_given ? host->kind(&input->arguments[retracted]) : RXD_ABSENT;
  *is_retracted = kind == RXD_BOOL && host->boolean(&input->arguments[retracted]) != 0;
  if (kind == RXD_ABSENT || kind == RXD_NULL || kind == RXD_BOOL) return true;
  host->refuse(verdicts, index, WORD("'retracted' must be true, false or null, and is something else for this event"));
  return false;
}

static bool add_command(sink *self, rxd_scope *scope, const rxd_input *input, rxd_verdicts *verdicts, uint32_t index) {
  rxd_text key = {NULL, 0}, value = {NULL, 0};
  char expiry[24], message[80];
  if (!argument(scope, input, 0, &key) || key.count == 0) {
    int count = snprintf(message, sizeof message, "'%s' is empty for this event", self->key_name);
    host->refuse(verdicts, index, (rxd_text){message, (size_t)count});
    return false;
  }
  if (self->command == ADD_TO_STREAM) return add_entry(self, scope, input, key, verdicts, index);
  bool is_retracted;
  if (!look_at_retraction(self, input, verdicts, index, &is_retracted)) return false;
  connection *connection = &self->connection;
  if (is_retracted) {
    COMMAND(connection, WORD("DEL"), key);
    return true;
  }
  if (!argument(scope, input, 1, &value)) value = bytes_of_value(scope, &input->event);
  if (self->command == PUBLISH) COMMAND(connection, WORD("PUBLISH"), key, value);
  else if (self->command == PUSH) COMMAND(connection, self->at_left ? WORD("LPUSH") : WORD("RPUSH"), key, value);
  else if (self->expiry > 0)
    COMMAND(connection, WORD("SET"), key, value, WORD("PX"), number_text(expiry, sizeof expiry, self->expiry));
  else COMMAND(connection, WORD("SET"), key, value);
  return true;
}

/* rxd logs the failure, and its end. */
static int again(const sink *self, rxd_scope *scope, const char *problem) {
  fail_at(scope, "", "%s: %s", self->settings.server_text, problem);
  return RXD_RETRY;
}

static int is_closing(void *instance) { return host->is_closing(instance); }

/* The next reply; while the pipeline stops, the wait is short. */
static enum outcome next_reply(sink *self, redisReply **reply) {
  int64_t end = now_ms() + self->settings.timeout;
  enum outcome outcome;
  do {
    int64_t left = end - now_ms();
    outcome = connection_reply(&self->connection, reply, left < 0 ? 0 : left > 500 ? 500 : left, -1);
  } while (outcome == TIMED_OUT && now_ms() < end && !is_closing(self->instance));
  return outcome;
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  if (!connection_is_usable(&self->connection)) {
    stopping stop = {is_closing, self->instance};
    enum outcome outcome = connection_open(&self->connection, &self->settings, &stop);
    if (outcome == REFUSED)
      return fail_at(scope, "server", "%s: %s", self->settings.server_text, self->connection.problem);
    if (outcome != DONE) return again(self, scope, self->connection.problem);
  }
  bool *is_sent = need(calloc(batch->count + 1, sizeof *is_sent));
  for (uint32_t i = 0; i < batch->count; i++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + i * batch->input_size);
    if (input->kind == RXD_EVENT) is_sent[i] = add_command(self, scope, input, verdicts, i);
  }
  int status = RXD_OK;
  uint32_t through = 0; /* the number of leading events that are settled */
  char problem[300] = "";
  for (uint32_t i = 0; i < batch->count && status == RXD_OK; i++) {
    if (is_sent[i]) {
      redisReply *reply;
      enum outcome outcome = next_reply(self, &reply);
      if (outcome != DONE) {
        snprintf(problem, sizeof problem, "%s", outcome == TIMED_OUT ? "no answer in time" : self->connection.problem);
        status = RXD_RETRY;
        break;
      }
      if (reply->type == REDIS_REPLY_ERROR) {
        enum fault fault = fault_of(reply);
        snprintf(problem, sizeof problem, "%.250s", reply->str);
        if (fault == FAULT_PASSING) status = RXD_RETRY;
        /* An event may name a key that this user may not access, or one of another type. Without any permission or in
         * a cluster, no event can succeed. */
        else if (fault == FAULT_OF_SETTING && strncmp(problem, "NOPERM", 6) != 0) status = RXD_FAILED;
        else host->refuse(verdicts, i, text_of(problem));
      }
      freeReplyObject(reply);
    }
    if (status == RXD_OK) through = i + 1;
  }
  free(is_sent);
  if (status == RXD_OK) return RXD_OK;
  /* Outstanding replies belong to commands that will be repeated. */
  connection_close(&self->connection);
  host->delivered(verdicts, through);
  if (status == RXD_RETRY) return again(self, scope, problem);
  return fail_at(scope, "server", "%s: %s", self->settings.server_text, problem);
}

#define SINK(variable, text, count, opening)                                                                           \
  const rxd_component variable = {                                                                                     \
    .size = sizeof(rxd_component),                                                                                     \
    .name = {text, count},                                                                                             \
    .kind = {"sink", 4},                                                                                               \
    .open = opening,                                                                                                   \
    .close = sink_close,                                                                                               \
    .write = sink_write,                                                                                               \
  }
SINK(redis_stream_sink, "redisStream", 11, stream_open);
SINK(redis_list_sink, "redisList", 9, list_open);
SINK(redis_publish_sink, "redisPublish", 12, publish_open);
SINK(redis_set_sink, "redisSet", 8, set_open);
