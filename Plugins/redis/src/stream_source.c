/* The source `redisStream`: a consumer of a group.
 *
 * An entry is acknowledged (XACK) when rxd has acknowledged its event. Until then it is in the group's list of pending
 * entries, under the name of this consumer. Entries in that list that are not in `window` must be sent to rxd: after a
 * lost connection (with which replies may be lost), after a start, and when rxd could not deliver an event. */
#include "component.h"

typedef struct stream_source {
  rxd_instance *instance;
  settings settings;
  char *stream, *group, *consumer;
  bool from_end, as_json;
  int64_t claim_after; /* milliseconds */
  uint32_t batch, window_size;
  window window;
} stream_source;

static void stream_close(void *opaque) {
  stream_source *self = opaque;
  settings_close(&self->settings);
  free(self->stream);
  free(self->group);
  free(self->consumer);
  free(self);
}

static int stream_open(const rxd_opening *opening, void **instance) {
  stream_source *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  int status = settings_open(opening, &self->settings);
  if (status == RXD_OK) status = text_parameter(opening, "stream", &self->stream);
  if (status == RXD_OK) status = text_parameter(opening, "group", &self->group);
  if (status == RXD_OK) status = text_parameter(opening, "consumer", &self->consumer);
  if (status == RXD_OK && (self->stream == NULL || *self->stream == 0))
    status = fail_at(opening->scope, "stream", "must not be empty");
  if (status == RXD_OK && (self->group == NULL || *self->group == 0))
    status = fail_at(opening->scope, "group", "must not be empty");
  if (status == RXD_OK && self->consumer != NULL && *self->consumer == 0)
    status = fail_at(opening->scope, "consumer", "must not be empty");
  if (status == RXD_OK && self->consumer == NULL) {
    char machine[256] = "", name[1024];
    gethostname(machine, sizeof machine - 1);
    rxd_text pipeline = opening->pipeline, step = opening->step;
    snprintf(name, sizeof name, "rxd:%s:%.*s:%.*s", machine, (int)(pipeline.count > 256 ? 256 : pipeline.count),
             pipeline.bytes, (int)(step.count > 256 ? 256 : step.count), step.bytes);
    self->consumer = copy_text(text_of(name));
  }
  self->from_end = choice_is(opening, "start", "end");
  self->as_json = choice_is(opening, "decode", "json");
  self->claim_after = milliseconds_parameter(opening, "claimAfter", 60000);
  self->batch = (uint32_t)integer_parameter(opening, "batch", 512);
  self->window_size = (uint32_t)integer_parameter(opening, "window", 4096);
  if (status == RXD_OK && self->batch > self->window_size)
    status = fail_at(opening->scope, "batch", "must not be above 'window', which is %u", self->window_size);
  if (status != RXD_OK) {
    stream_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

/* ---- Entries ---- */

static bool parse_id(const redisReply *reply, uint64_t *time, uint64_t *sequence) {
  if (reply->type != REDIS_REPLY_STRING) return false;
  char *end;
  *time = strtoull(reply->str, &end, 10);
  if (*end != '-') return false;
  *sequence = strtoull(end + 1, &end, 10);
  return *end == 0;
}

static bool is_known(const window *window, uint64_t time, uint64_t sequence) {
  for (uint32_t i = 0; i < window->size; i++) {
    const slot *slot = &window->slots[i];
    if (slot->state != FREE && slot->id.time == time && slot->id.sequence == sequence) return true;
  }
  return false;
}

static rxd_value event_of(const stream_source *self, rxd_scope *scope, const redisReply *id, uint64_t time,
                          const redisReply *pairs) {
  size_t most = pairs->elements / 2, count = 0;
  rxd_text *names = need(malloc((most + 1) * sizeof *names));
  rxd_value *values = need(malloc((most + 1) * sizeof *values));
  for (size_t i = 0; i < most; i++) {
    const redisReply *name = pairs->element[2 * i], *value = pairs->element[2 * i + 1];
    if (name->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING) continue;
    rxd_text text = {name->str, name->len};
    if (!is_utf8(text.bytes, text.count)) {
      rxd_value replaced = host->make_text(scope, text);
      text = host->text(scope, &replaced);
    }
    size_t place = 0; /* An entry may repeat a field; the last one wins. */
    while (place < count && !text_is(names[place], text)) place++;
    names[place] = text;
    values[place] = value_of_bytes(scope, value->str, value->len);
    if (self->as_json) decode_json(scope, value->str, value->len, &values[place]);
    if (place == count) count++;
  }
  rxd_text members[] = {WORD("stream"), WORD("id"), WORD("time"), WORD("fields")};
  rxd_value contents[] = {
    host->make_text(scope, text_of(self->stream)),
    host->make_text(scope, (rxd_text){id->str, id->len}),
    host->make_timestamp(time > (uint64_t)INT64_MAX / 1000000 ? INT64_MAX : (int64_t)time * 1000000),
    host->make_object(scope, names, values, count),
  };
  free(names);
  free(values);
  return host->make_object(scope, members, contents, 4);
}

typedef struct gone {
  redisReply **ids;
  size_t count;
} gone;

/* Sends the entries that rxd does not have yet. `last`, if not NULL, receives the id of the last entry. Pending entries
 * that were deleted have no fields: they are acknowledged, because there is nothing to deliver. */
static int send_entries(stream_source *self, running *running, const redisReply *entries, bool may_be_known, char *last,
                        size_t capacity) {
  rxd_scope *scope = host->source_scope(running->source);
  int status = RXD_OK;
  size_t deleted = 0, added = 0;
  for (size_t i = 0; i < entries->elements && status != RXD_STOP; i++) {
    const redisReply *entry = entries->element[i];
    uint64_t time, sequence;
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 || !parse_id(entry->element[0], &time, &sequence))
      continue;
    if (last != NULL) snprintf(last, capacity, "%s", entry->element[0]->str);
    if (entry->element[1]->type != REDIS_REPLY_ARRAY) {
      COMMAND(&running->connection, WORD("XACK"), text_of(self->stream), text_of(self->group),
              (rxd_text){entry->element[0]->str, entry->element[0]->len});
      deleted++;
      continue;
    }
    if (may_be_known && is_known(&self->window, time, sequence)) continue;
    if (window_room(&self->window) == 0) {
      /* Only possible if the server sends more than requested: the entry stays pending. */
      if (running->retry_at == 0) running->retry_at = now_ms() + 1000;
      break;
    }
    uint64_t token;
    slot *slot = window_take(&self->window, &token);
    slot->id.time = time;
    slot->id.sequence = sequence;
    rxd_value event = event_of(self, scope, entry->element[0], time, entry->element[1]);
    status = host->add(running->source, &event, token);
    if (++added % 1000 == 0 && host->flush(running->source) == RXD_STOP) status = RXD_STOP;
    scope = host->source_scope(running->source);
  }
  if (deleted > 0) {
    host->count_up(self->instance, WORD("deletedEntries"), (int64_t)deleted);
    for (size_t i = 0; i < deleted; i++) {
      redisReply *reply;
      if (connection_reply(&running->connection, &reply, self->settings.timeout, -1) != DONE) {
        connection_close(&running->connection);
        break;
      }
      freeReplyObject(reply);
    }
  }
  if (host->flush(running->source) == RXD_STOP) status = RXD_STOP;
  return status;
}

/* ---- Commands ---- */

/* The reply of the single outstanding command. NULL: the connection is lost, or `*failed` is set. NOGROUP: the server
 * has lost the group, and connecting again recreates it. */
static redisReply *ask(stream_source *self, running *running, const char *doing, bool *failed) {
  redisReply *reply;
  enum outcome outcome = connection_reply(&running->connection, &reply, self->settings.timeout, -1);
  if (outcome != DONE) {
    lose(running, outcome == TIMED_OUT ? "no answer in time" : running->connection.problem);
    return NULL;
  }
  if (reply->type != REDIS_REPLY_ERROR) return reply;
  if (strncmp(reply->str, "NOGROUP", 7) == 0) {
    running->failures++;
    lose(running, "the group is gone");
    freeReplyObject(reply);
    return NULL;
  }
  *failed = judge(running, reply, doing) == RXD_FAILED;
  return NULL;
}

static void id_text(char *buffer, size_t capacity, const slot *slot) {
  snprintf(buffer, capacity, "%llu-%llu", (unsigned long long)slot->id.time, (unsigned long long)slot->id.sequence);
}

/* Acknowledges entries to the server. An entry stays in the window until the server has answered: XACK may be
 * repeated, but an entry that was forgotten earlier would be sent to rxd again. */
static bool acknowledge(void *opaque, running *running, bool *failed) {
  stream_source *self = opaque;
  window *window = &self->window;
  while (window->acknowledged_count > 0 && connection_is_open(&running->connection)) {
    uint32_t count = window->acknowledged_count > 500 ? 500 : window->acknowledged_count;
    rxd_text arguments[503] = {WORD("XACK"), text_of(self->stream), text_of(self->group)};
    char ids[500][44];
    for (uint32_t i = 0; i < count; i++) {
      id_text(ids[i], sizeof ids[i], window_slot(window, window->acknowledged[i]));
      arguments[3 + i] = text_of(ids[i]);
    }
    connection_command(&running->connection, 3 + count, arguments);
    redisReply *reply = ask(self, running, "XACK", failed);
    if (reply == NULL) return false;
    freeReplyObject(reply);
    for (uint32_t i = 0; i < count; i++) window_free(window, window_slot(window, window->acknowledged[i]));
    window->acknowledged_count -= count;
    memmove(window->acknowledged, window->acknowledged + count,
            window->acknowledged_count * sizeof *window->acknowledged);
  }
  return connection_is_open(&running->connection);
}

/* Resets the idle time of outstanding entries, because other consumers claim idle ones. Entries that another consumer
 * has claimed meanwhile are not taken back: their idle time is shorter. */
static bool keep(stream_source *self, running *running, bool *failed) {
  int64_t now = now_ms();
  char ids[500][44], least[24];
  rxd_text arguments[506] = {WORD("XCLAIM"), text_of(self->stream), text_of(self->group), text_of(self->consumer),
                             number_text(least, sizeof least, self->claim_after / 4)};
  size_t count = 0;
  for (uint32_t i = 0; i < self->window.size; i++) {
    slot *slot = &self->window.slots[i];
    if (slot->state == SENT && now - slot->touched >= self->claim_after / 4) {
      slot->touched = now;
      id_text(ids[count], sizeof ids[count], slot);
      arguments[5 + count] = text_of(ids[count]);
      count++;
    }
    if (count == 500 || (count > 0 && i + 1 == self->window.size)) {
      arguments[5 + count] = WORD("JUSTID");
      connection_command(&running->connection, 6 + count, arguments);
      redisReply *reply = ask(self, running, "XCLAIM", failed);
      if (reply == NULL) return false;
      freeReplyObject(reply);
      count = 0;
    }
  }
  return true;
}

/* Claims entries that other consumers left behind. True: all have been examined. */
static bool claim(stream_source *self, running *running, char *cursor, size_t capacity, bool *failed, int *status) {
  char idle[24], most[24];
  uint32_t room = window_room(&self->window), count = room < 100 ? room : 100;
  if (count == 0) return false;
  COMMAND(&running->connection, WORD("XAUTOCLAIM"), text_of(self->stream), text_of(self->group),
          text_of(self->consumer), number_text(idle, sizeof idle, self->claim_after), text_of(cursor), WORD("COUNT"),
          number_text(most, sizeof most, count));
  redisReply *reply = ask(self, running, "XAUTOCLAIM (which needs Redis 6.2)", failed);
  if (reply == NULL) return false;
  bool is_through = true;
  if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 && reply->element[0]->type == REDIS_REPLY_STRING
      && reply->element[1]->type == REDIS_REPLY_ARRAY) {
    snprintf(cursor, capacity, "%s", reply->element[0]->str);
    is_through = strcmp(cursor, "0-0") == 0;
    if (reply->element[1]->elements > 0) {
      report(self->instance, "info", "%s: took over %zu entries that a consumer has not acknowledged for %lld s",
             self->stream, reply->element[1]->elements, (long long)self->claim_after / 1000);
      host->count_up(self->instance, WORD("claimed"), (int64_t)reply->element[1]->elements);
      *status = send_entries(self, running, reply->element[1], true, NULL, 0);
    }
  }
  freeReplyObject(reply);
  return is_through;
}

static bool make_group(stream_source *self, running *running, const char *after, bool *failed) {
  COMMAND(&running->connection, WORD("XGROUP"), WORD("CREATE"), text_of(self->stream), text_of(self->group),
          text_of(after), WORD("MKSTREAM"));
  redisReply *reply;
  enum outcome outcome = connection_reply(&running->connection, &reply, self->settings.timeout, -1);
  if (outcome != DONE) {
    running->failures++;
    lose(running, outcome == TIMED_OUT ? "no answer in time" : running->connection.problem);
    return false;
  }
  if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSYGROUP", 9) != 0) {
    *failed = judge(running, reply, "XGROUP CREATE") == RXD_FAILED;
    return false;
  }
  freeReplyObject(reply);
  return true;
}

/* The entries of the one stream in the reply of XREADGROUP, or NULL. */
static const redisReply *entries_of(const redisReply *reply) {
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1) return NULL;
  const redisReply *stream = reply->element[0];
  if (stream->type != REDIS_REPLY_ARRAY || stream->elements != 2 || stream->element[1]->type != REDIS_REPLY_ARRAY)
    return NULL;
  return stream->element[1];
}

static int stream_run(void *opaque, rxd_scope *scope, rxd_source *source) {
  stream_source *self = opaque;
  running running = {
    .instance = self->instance, .source = source, .scope = scope, .settings = &self->settings, .window = &self->window};
  connection_init(&running.connection);
  window_open(&self->window, self->window_size, false);
  int wake = host->wake_descriptor(source), status = RXD_OK;
  bool failed = false, reads_pending = true;
  char pending[48] = "0", cursor[48] = "0-0", newest[48] = "";
  int64_t claim_at = 0, keep_at = 0;
  char most[24], block[24];
  while (!failed && status != RXD_STOP && !is_stopping(&running)) {
    if (!connection_is_open(&running.connection)) {
      if (!connect_source(&running, &failed)) continue;
      const char *after = *newest != 0 ? newest : self->from_end ? "$" : "0";
      if (!make_group(self, &running, after, &failed)) continue;
      connected(&running);
      reads_pending = true;
      strcpy(pending, "0");
    }
    bool is_full = window_room(&self->window) == 0;
    take_acks(&running, is_full && self->window.acknowledged_count == 0 ? 1000 : 0);
    if (!acknowledge(self, &running, &failed)) continue;
    int64_t now = now_ms();
    if (running.retry_at != 0 && now >= running.retry_at) {
      running.retry_at = 0;
      reads_pending = true;
      strcpy(pending, "0");
    }
    if (now >= keep_at) {
      if (!keep(self, &running, &failed)) continue;
      keep_at = now + self->claim_after / 8;
    }
    uint32_t room = window_room(&self->window);
    if (room == 0) continue;
    if (now >= claim_at && !reads_pending) {
      bool is_through = claim(self, &running, cursor, sizeof cursor, &failed, &status);
      if (is_through) claim_at = now_ms() + (self->claim_after / 4 < 1000 ? 1000 : self->claim_after / 4);
      if (!is_through || failed || status == RXD_STOP) continue;
      room = window_room(&self->window);
      if (room == 0) continue;
    }
    /* While rxd has events, their acknowledgements must be sent soon, and the server does not serve a connection that
     * blocks. Otherwise only a stop can follow, and then the connection is closed. */
    bool is_idle = window_sent(&self->window) == 0 && running.retry_at == 0;
    int64_t wait = is_idle ? claim_at - now : 50;
    wait = wait < 50 ? 50 : wait > 5000 ? 5000 : wait;
    COMMAND(&running.connection, WORD("XREADGROUP"), WORD("GROUP"), text_of(self->group), text_of(self->consumer),
            WORD("COUNT"), number_text(most, sizeof most, room < self->batch ? room : self->batch), WORD("BLOCK"),
            number_text(block, sizeof block, wait), WORD("STREAMS"), text_of(self->stream),
            text_of(reads_pending ? pending : ">"));
    redisReply *reply;
    enum outcome outcome;
    do outcome = connection_reply(&running.connection, &reply, wait + self->settings.timeout, is_idle ? wake : -1);
    while (outcome == WOKEN && !is_stopping(&running) && (take_acks(&running, 0), true));
    if (outcome == WOKEN) break;
    if (outcome != DONE) {
      lose(&running, outcome == TIMED_OUT ? "no answer in time" : running.connection.problem);
      continue;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
      if (strncmp(reply->str, "NOGROUP", 7) == 0) {
        running.failures++;
        lose(&running, "the group is gone");
        freeReplyObject(reply);
      } else {
        failed = judge(&running, reply, "XREADGROUP") == RXD_FAILED;
      }
      continue;
    }
    const redisReply *entries = entries_of(reply);
    if (reads_pending) {
      if (entries == NULL || entries->elements == 0) reads_pending = false;
      else status = send_entries(self, &running, entries, true, pending, sizeof pending);
    } else if (entries != NULL && entries->elements > 0) {
      status = send_entries(self, &running, entries, false, newest, sizeof newest);
    }
    freeReplyObject(reply);
  }
  /* rxd still settles the events that it has; the others stay pending, and the next start reads them. */
  if (failed) connection_close(&running.connection);
  else settle(&running, acknowledge, self);
  window_close(&self->window);
  return failed ? RXD_FAILED : RXD_OK;
}

const rxd_component redis_stream_source = {
  .size = sizeof(rxd_component),
  .name = {"redisStream", 11},
  .kind = {"source", 6},
  .open = stream_open,
  .close = stream_close,
  .run = stream_run,
};
