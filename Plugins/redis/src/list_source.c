/* The source `redisList`: a queue. Elements are moved to a second list (BLMOVE, LMOVE) and removed from it (LREM) when
 * rxd has acknowledged their events. Elements that are in the second list but not in `window` must be sent to rxd:
 * after a start, after a lost connection (with which replies may be lost), and when rxd could not deliver an event. */
#include "component.h"

typedef struct list_source {
  rxd_instance *instance;
  settings settings;
  char *key, *processing;
  bool from_right, as_json;
  uint32_t batch, window_size;
  window window;
} list_source;

static void list_close(void *opaque) {
  list_source *self = opaque;
  settings_close(&self->settings);
  free(self->key);
  free(self->processing);
  free(self);
}

static int list_open(const rxd_opening *opening, void **instance) {
  list_source *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  int status = settings_open(opening, &self->settings);
  if (status == RXD_OK) status = text_parameter(opening, "key", &self->key);
  if (status == RXD_OK) status = text_parameter(opening, "processing", &self->processing);
  if (status == RXD_OK && (self->key == NULL || *self->key == 0))
    status = fail_at(opening->scope, "key", "must not be empty");
  if (status == RXD_OK && self->processing == NULL) {
    size_t capacity = strlen(self->key) + 16;
    self->processing = need(malloc(capacity));
    snprintf(self->processing, capacity, "%s:processing", self->key);
  }
  if (status == RXD_OK && strcmp(self->key, self->processing) == 0)
    status = fail_at(opening->scope, "processing", "must be another list than 'key'");
  self->from_right = choice_is(opening, "take", "right");
  self->as_json = choice_is(opening, "decode", "json");
  self->batch = (uint32_t)integer_parameter(opening, "batch", 256);
  self->window_size = (uint32_t)integer_parameter(opening, "window", 1024);
  if (status == RXD_OK && self->batch > self->window_size)
    status = fail_at(opening->scope, "batch", "must not be above 'window', which is %u", self->window_size);
  if (status != RXD_OK) {
    list_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static int send_element(list_source *self, running *running, const redisReply *element) {
  rxd_scope *scope = host->source_scope(running->source);
  uint64_t token;
  slot *slot = window_take(&self->window, &token);
  slot->value.bytes = copy_text((rxd_text){element->str, element->len});
  slot->value.count = element->len;
  int status = RXD_OK;
  rxd_text names[] = {WORD("key"), WORD("value")};
  rxd_value values[] = {host->make_text(scope, text_of(self->key)), value_of_bytes(scope, element->str, element->len)};
  if (self->as_json && !decode_json(scope, element->str, element->len, &values[1])) {
    host->reject_input(running->source, (rxd_text){element->str, element->len}, WORD("the element is not a JSON document"),
                       token);
  } else {
    rxd_value event = host->make_object(scope, names, values, 2);
    status = host->add(running->source, &event, token);
  }
  if (self->window.used % 1000 == 0 && host->flush(running->source) == RXD_STOP) return RXD_STOP;
  return status;
}

static redisReply *ask(list_source *self, running *running, const char *doing, bool *failed) {
  redisReply *reply;
  enum outcome outcome = connection_reply(&running->connection, &reply, self->settings.timeout, -1);
  if (outcome != DONE) {
    running->failures++;
    lose(running, outcome == TIMED_OUT ? "no answer in time" : running->connection.problem);
    return NULL;
  }
  if (reply->type != REDIS_REPLY_ERROR) return reply;
  *failed = judge(running, reply, doing) == RXD_FAILED;
  return NULL;
}

/* Removes acknowledged elements. If the reply is lost, it is unknown whether the command was executed. Another element
 * with the same bytes may be outstanding, so the command must not be repeated: the slots are freed immediately, and
 * elements that are still in the list are sent to rxd again. */
static bool acknowledge(void *opaque, running *running, bool *failed) {
  list_source *self = opaque;
  window *window = &self->window;
  while (window->acknowledged_count > 0) {
    if (!connection_is_open(&running->connection)) return false;
    uint32_t count = window->acknowledged_count > 256 ? 256 : window->acknowledged_count;
    for (uint32_t i = 0; i < count; i++) {
      slot *slot = window_slot(window, window->acknowledged[i]);
      COMMAND(&running->connection, WORD("LREM"), text_of(self->processing), WORD("1"),
              (rxd_text){slot->value.bytes, slot->value.count});
    }
    for (uint32_t i = 0; i < count; i++) window_free(window, window_slot(window, window->acknowledged[i]));
    window->acknowledged_count -= count;
    memmove(window->acknowledged, window->acknowledged + count,
            window->acknowledged_count * sizeof *window->acknowledged);
    for (uint32_t i = 0; i < count; i++) {
      redisReply *reply = ask(self, running, "LREM", failed);
      if (reply == NULL) {
        connection_close(&running->connection);
        return false;
      }
      freeReplyObject(reply);
    }
  }
  return connection_is_open(&running->connection);
}

/* Sends the elements of the second list that are not in the window. True: none is left. */
static bool recover(list_source *self, running *running, bool *failed, int *status) {
  COMMAND(&running->connection, WORD("LRANGE"), text_of(self->processing), WORD("0"), WORD("-1"));
  redisReply *reply = ask(self, running, "LRANGE", failed);
  if (reply == NULL) return false;
  window *window = &self->window;
  bool *is_found = need(calloc(window->size, sizeof *is_found)), is_through = true;
  uint32_t *known = need(calloc(window->size, sizeof *known)), known_count = 0;
  for (uint32_t i = 0; i < window->size; i++)
    if (window->slots[i].state != FREE) known[known_count++] = i;
  for (size_t i = 0; i < reply->elements && *status != RXD_STOP; i++) {
    const redisReply *element = reply->element[i];
    uint32_t place = 0;
    while (place < known_count
           && (is_found[place]
               || !text_is((rxd_text){window->slots[known[place]].value.bytes, window->slots[known[place]].value.count},
                           (rxd_text){element->str, element->len})))
      place++;
    if (place < known_count) {
      is_found[place] = true;
      continue;
    }
    if (window_room(window) == 0) {
      is_through = false;
      break;
    }
    *status = send_element(self, running, element);
  }
  free(is_found);
  free(known);
  freeReplyObject(reply);
  if (host->flush(running->source) == RXD_STOP) *status = RXD_STOP;
  return is_through;
}

static int list_run(void *opaque, rxd_scope *scope, rxd_source *source) {
  list_source *self = opaque;
  running running = {
    .instance = self->instance, .source = source, .scope = scope, .settings = &self->settings, .window = &self->window};
  connection_init(&running.connection);
  window_open(&self->window, self->window_size, true);
  int wake = host->wake_descriptor(source), status = RXD_OK;
  bool failed = false, must_recover = true;
  rxd_text side = self->from_right ? WORD("RIGHT") : WORD("LEFT");
  char seconds[24];
  while (!failed && status != RXD_STOP && !is_stopping(&running)) {
    if (!connection_is_open(&running.connection)) {
      must_recover = true;
      if (!connect_source(&running, &failed)) continue;
    }
    take_acks(&running, window_room(&self->window) == 0 && self->window.acknowledged_count == 0 ? 1000 : 0);
    if (!acknowledge(self, &running, &failed)) continue;
    if (running.retry_at != 0 && now_ms() >= running.retry_at) {
      running.retry_at = 0;
      must_recover = true;
    }
    if (window_room(&self->window) == 0) continue;
    if (must_recover) {
      bool is_through = recover(self, &running, &failed, &status);
      if (connection_is_open(&running.connection)) connected(&running);
      must_recover = !is_through;
      continue;
    }
    bool is_idle = window_sent(&self->window) == 0 && running.retry_at == 0;
    double wait = is_idle ? 5 : 0.05;
    int count = snprintf(seconds, sizeof seconds, "%g", wait);
    COMMAND(&running.connection, WORD("BLMOVE"), text_of(self->key), text_of(self->processing), side, WORD("RIGHT"),
            (rxd_text){seconds, (size_t)count});
    redisReply *reply;
    enum outcome outcome;
    do
      outcome = connection_reply(&running.connection, &reply, (int64_t)(wait * 1000) + self->settings.timeout,
                                 is_idle ? wake : -1);
    while (outcome == WOKEN && !is_stopping(&running) && (take_acks(&running, 0), true));
    if (outcome == WOKEN) break;
    if (outcome != DONE) {
      lose(&running, outcome == TIMED_OUT ? "no answer in time" : running.connection.problem);
      continue;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
      failed = judge(&running, reply, "BLMOVE (which needs Redis 6.2)") == RXD_FAILED;
      continue;
    }
    bool is_there = reply->type == REDIS_REPLY_STRING;
    if (is_there) status = send_element(self, &running, reply);
    freeReplyObject(reply);
    if (!is_there) continue;
    /* Where there is one element, there are often more. */
    uint32_t room = window_room(&self->window), most = room < self->batch ? room : self->batch;
    for (uint32_t i = 0; i < most; i++)
      COMMAND(&running.connection, WORD("LMOVE"), text_of(self->key), text_of(self->processing), side, WORD("RIGHT"));
    for (uint32_t i = 0; i < most && !failed; i++) {
      reply = ask(self, &running, "LMOVE", &failed);
      if (reply == NULL) break;
      if (reply->type == REDIS_REPLY_STRING && status != RXD_STOP) status = send_element(self, &running, reply);
      freeReplyObject(reply);
    }
    if (host->flush(source) == RXD_STOP) status = RXD_STOP;
  }
  /* rxd still settles the events that it has; the next start finds the rest in the second list. */
  if (failed) connection_close(&running.connection);
  else settle(&running, acknowledge, self);
  window_close(&self->window);
  return failed ? RXD_FAILED : RXD_OK;
}

const rxd_component redis_list_source = {
  .size = sizeof(rxd_component),
  .name = {"redisList", 9},
  .kind = {"source", 6},
  .open = list_open,
  .close = list_close,
  .run = list_run,
};
