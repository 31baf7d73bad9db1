#include "reader.h"

enum {
  EVENTS_MOST = 1000,         /* events before they are given to rxd, */
  BYTES_MOST = 1 << 20,       /* and their bytes */
  AGE_MS = 1000,              /* and their age */
  WAITED_MS = 500,            /* a wait for the pipeline after which a broken transfer is not the server's fault */
  SLOW_MS = 20,               /* a pipeline slower than this gets smaller batches, each with a position */
  SHOWN_MOST = 1000,          /* maximum number of bytes of a rejected line that are reported */
};

int reader_open(const rxd_opening *opening, reader_settings *settings) {
  settings->decode = choice_is(opening, "decode", "json")    ? DECODE_JSON
                     : choice_is(opening, "decode", "bytes") ? DECODE_BYTES
                                                             : DECODE_TEXT;
  int64_t most = integer_parameter(opening, "maxLine", 1 << 20);
  if (most < 1 || most > 64 << 20) return fail_at(opening->scope, "maxLine", "must be 1B to 64MiB");
  settings->line_most = (size_t)most;
  settings->is_packing_given = !choice_is(opening, "compression", "auto");
  settings->packing = choice_is(opening, "compression", "gzip")   ? PACKED_GZIP
                      : choice_is(opening, "compression", "zstd") ? PACKED_ZSTD
                                                                  : PACKED_NONE;
  return RXD_OK;
}

bool reader_rest(rxd_source *running, int64_t milliseconds) {
  int64_t until = now_ms() + milliseconds;
  while (host->is_stopping(running) == 0) {
    int64_t left = until - now_ms();
    if (left <= 0) return false;
    struct timespec pause = {0, (left < 20 ? left : 20) * 1000000};
    nanosleep(&pause, NULL);
  }
  return true;
}

typedef struct reader {
  client *client;
  const reader_settings *settings;
  rxd_source *running;
  object *object;
  progress *progress; /* progress of the events given to rxd */
  const reader_calls *calls;
  answer *answer;
  unpacker *unpacker;
  packing packing;
  uint64_t received;  /* received bytes of the stored object: where to continue after a broken transfer */
  uint64_t to_skip;   /* bytes of this answer that were received before */
  uint64_t content;   /* bytes of content before `line` */
  uint64_t known;     /* bytes of content that an earlier run has read */
  buffer line;        /* the incomplete line */
  uint64_t line_bytes; /* its length, including bytes that are not stored */
  bool has_checked, is_stopping;
  bool needs_start;   /* the object is compressed, although its name does not show it */
  bool has_waited;    /* it has waited for the pipeline during this answer, so the server may have given up */
  size_t added, added_bytes;
  int64_t added_at;
  rxd_value names_values[5]; /* members that are the same for all events */
  bool has_values;
} reader;

/* ---- Events ---- */

static bool hand_over(reader *self) {
  if (self->calls->keep != NULL) self->calls->keep(self->calls->closure, self->progress);
  self->added = self->added_bytes = 0;
  self->has_values = false;
  size_t *most = self->calls->events_most;
  int64_t begin = now_ms();
  if (host->flush(self->running) == RXD_STOP) self->is_stopping = true;
  if (now_ms() - begin > WAITED_MS) self->has_waited = true;
  if (now_ms() - begin > SLOW_MS) *most = (*most + 1) / 2;
  else if (*most < EVENTS_MOST) *most = *most * 2 < EVENTS_MOST ? *most * 2 : EVENTS_MOST;
  return !self->is_stopping;
}

static bool after_adding(reader *self, size_t bytes) {
  if (self->added++ == 0) self->added_at = now_ms();
  self->added_bytes += bytes + 100;
  if (self->added < *self->calls->events_most && self->added_bytes < BYTES_MOST && now_ms() - self->added_at < AGE_MS) return true;
  return hand_over(self);
}

static uint64_t token_of(reader *self) { return self->calls->token != NULL ? self->calls->token(self->calls->closure) : 0; }

__attribute__((format(printf, 4, 5)))
static bool reject(reader *self, const char *bytes, size_t count, const char *format, ...) {
  char message[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  host->reject_input(self->running, (rxd_text){bytes, count}, text_of(message), token_of(self));
  host->count_up(self->client->instance, RXD_TEXT_OF("rejected"), 1);
  return after_adding(self, count);
}

static void make_values(reader *self, rxd_scope *scope) {
  const object *object = self->object;
  const char *etag = object->etag != NULL ? object->etag : "";
  size_t length = strlen(etag);
  bool is_quoted = length >= 2 && etag[0] == '"' && etag[length - 1] == '"';
  rxd_text bare = is_quoted ? (rxd_text){etag + 1, length - 2} : (rxd_text){etag, length};
  self->names_values[0] = host->make_text(scope, text_of(self->client->bucket));
  self->names_values[1] = value_of_bytes(scope, object->key, strlen(object->key));
  self->names_values[2] = object->size >= 0 ? host->make_int(object->size) : host->make_null();
  self->names_values[3] = object->modified != 0 ? host->make_timestamp(object->modified * 1000000) : host->make_null();
  self->names_values[4] = value_of_bytes(scope, bare.bytes, bare.count);
  self->has_values = true;
}

static bool add_line(reader *self, const char *bytes, size_t count) {
  enum { MEMBERS = 8 };
  rxd_scope *scope = host->source_scope(self->running);
  uint64_t at = self->progress->offset, number = self->progress->line;
  self->progress->line++;
  self->progress->offset = self->content;
  if (count > 0 && bytes[count - 1] == '\r') count--;
  if (count == 0 && self->settings->decode == DECODE_JSON) return true;
  rxd_value value;
  if (self->settings->decode == DECODE_BYTES) value = host->make_bytes(scope, (rxd_text){bytes, count});
  else if (self->settings->decode == DECODE_TEXT) value = value_of_bytes(scope, bytes, count);
  else if (!decode_json(scope, bytes, count, &value))
    return reject(self, bytes, count, "%.400s: line %llu at byte %llu is not a JSON document", self->object->key,
                  (unsigned long long)number + 1, (unsigned long long)at);
  if (!self->has_values) make_values(self, scope);
  const rxd_text names[MEMBERS] = {RXD_TEXT_OF("bucket"), RXD_TEXT_OF("key"), RXD_TEXT_OF("size"), RXD_TEXT_OF("lastModified"),
                                   RXD_TEXT_OF("etag"), RXD_TEXT_OF("line"), RXD_TEXT_OF("offset"), RXD_TEXT_OF("value")};
  const rxd_value *same = self->names_values;
  const rxd_value values[MEMBERS] = {same[0], same[1], same[2], same[3], same[4], host->make_int((int64_t)number + 1),
                                     host->make_int((int64_t)at), value};
  rxd_value event = host->make_object(scope, names, values, MEMBERS);
  if (host->add(self->running, &event, token_of(self)) == RXD_STOP) self->is_stopping = true;
  return after_adding(self, count) && !self->is_stopping;
}

/* ---- Lines ---- */

/* Handles the end of a line; `end`: the size of its line feed. */
static bool end_line(reader *self, const char *rest, size_t count, size_t end) {
  self->line_bytes += count;
  bool is_too_long = self->line_bytes > self->settings->line_most;
  self->content += self->line_bytes + end;
  bool goes_on;
  if (is_too_long) {
    unsigned long long at = self->progress->offset, number = ++self->progress->line, length = self->line_bytes;
    self->progress->offset = self->content;
    self->progress->is_incomplete = true;
    if (self->line.count < SHOWN_MOST) buffer_add(&self->line, rest, count < SHOWN_MOST ? count : SHOWN_MOST);
    goes_on = reject(self, self->line.bytes, self->line.count < SHOWN_MOST ? self->line.count : SHOWN_MOST, "%.300s: line %llu at byte %llu has %llu bytes, more than maxLine (%zu)",
                     self->object->key, number, at, length, self->settings->line_most);
  } else if (self->line.count > 0) {
    buffer_add(&self->line, rest, count);
    goes_on = add_line(self, self->line.bytes, self->line.count);
  } else goes_on = add_line(self, rest, count);
  buffer_clear(&self->line);
  self->line_bytes = 0;
  return goes_on;
}

static bool take_lines(void *opaque, const char *bytes, size_t count) {
  reader *self = opaque;
  if (self->known > 0) {
    size_t skipped = count < self->known ? count : (size_t)self->known;
    self->known -= skipped;
    bytes += skipped;
    count -= skipped;
  }
  while (count > 0) {
    const char *end = memchr(bytes, '\n', count);
    if (end == NULL) {
      /* Bytes beyond the maximum length are not stored. */
      size_t room = self->line.count > self->settings->line_most ? 0 : self->settings->line_most + 1 - self->line.count;
      buffer_add(&self->line, bytes, count < room ? count : room);
      self->line_bytes += count;
      return true;
    }
    if (!end_line(self, bytes, (size_t)(end - bytes), 1)) return false;
    count -= (size_t)(end - bytes) + 1;
    bytes = end + 1;
  }
  return true;
}

/* ---- The body ---- */

static bool ends_with(const char *text, const char *end) {
  size_t count = strlen(text), length = strlen(end);
  return count >= length && strcasecmp(text + count - length, end) == 0;
}

/* The answer's encoding is unknown until its headers have arrived. */
static packing packing_of(const reader *self) {
  const char *encoding = self->answer->encoding, *key = self->object->key;
  if (self->settings->is_packing_given) return self->settings->packing;
  if (strcasestr(encoding, "gzip") != NULL) return PACKED_GZIP;
  if (strcasestr(encoding, "zstd") != NULL) return PACKED_ZSTD;
  if (ends_with(key, ".gz") || ends_with(key, ".gzip")) return PACKED_GZIP;
  if (ends_with(key, ".zst") || ends_with(key, ".zstd")) return PACKED_ZSTD;
  return PACKED_NONE;
}

/* Checks the object's headers in a successful answer. False: the answer does not match the request. */
static bool check_answer(reader *self) {
  answer *answer = self->answer;
  object *object = self->object;
  self->has_checked = true;
  self->to_skip = 0;
  uint64_t first = 0, last = 0, total = 0;
  bool is_part = answer->status == 206
                 && sscanf(answer->range, "bytes %lu-%lu/%lu", &first, &last, &total) == 3;
  if (answer->status == 206 && (!is_part || first != self->received)) return false;
  /* A server without support for ranges sends everything. */
  if (!is_part) self->to_skip = self->received;
  if (object->etag == NULL && answer->etag[0] != 0) object->etag = need(strdup(answer->etag));
  if (object->etag != NULL && answer->etag[0] != 0 && strcmp(object->etag, answer->etag) != 0) return false;
  int64_t size = is_part ? (int64_t)total : answer->length;
  if (size >= 0) object->size = size;
  if (object->modified == 0) object->modified = answer->last_modified * 1000;
  self->needs_start = self->unpacker == NULL && self->received > 0 && packing_of(self) != PACKED_NONE;
  return !self->needs_start;
}

static bool take_part(void *opaque, const char *bytes, size_t count) {
  reader *self = opaque;
  if (!self->has_checked && !check_answer(self)) return false;
  if (self->to_skip > 0) {
    size_t skipped = count < self->to_skip ? count : (size_t)self->to_skip;
    self->to_skip -= skipped;
    bytes += skipped;
    count -= skipped;
  }
  if (self->unpacker == NULL) {
    self->packing = packing_of(self);
    self->unpacker = unpacker_make(self->packing);
  }
  self->received += count;
  return unpacker_feed(self->unpacker, bytes, count, take_lines, self);
}

/* Determines where to start. Packed content, recognized by the name or the answer, must be unpacked from its start. */
static void begin(reader *self) {
  self->content = self->progress->offset;
  if (packing_of(self) == PACKED_NONE) self->received = self->progress->offset;
  else self->known = self->progress->offset;
}

typedef enum step { STEP_DONE, STEP_CUT, STEP_ABSENT, STEP_CHANGED, STEP_STOP, STEP_REJECT, STEP_FAILED, STEP_AGAIN } step;

/* Makes one request for the missing part. */
static step fetch(reader *self) {
  client *client = self->client;
  object *object = self->object;
  char range[40];
  request request = {.method = "GET", .key = object->key, .take = take_part, .closure = self};
  if (self->received > 0) {
    snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)self->received);
    request_header(&request, "range", range);
  }
  if (object->etag != NULL) request_header(&request, "if-match", object->etag);
  self->has_checked = self->has_waited = false;
  outcome outcome = client_send(client, &request, self->answer);
  /* The stop arrived after the last byte. */
  if (outcome == OVER && !self->answer->is_stopped && self->has_checked && object->size >= 0 && self->received >= (uint64_t)object->size)
    outcome = DONE;
  if (self->is_stopping || outcome == OVER) return STEP_STOP;
  if (self->unpacker != NULL && unpacker_problem(self->unpacker) != NULL) return STEP_REJECT;
  /* An offset in unpacked content may lie beyond the end of the packed object; the server then answers 416. */
  bool is_behind = self->unpacker == NULL && self->received > 0 && self->answer->status == 416;
  if (self->needs_start || is_behind) {
    self->needs_start = false;
    self->known = self->received;
    self->received = 0;
    return STEP_AGAIN;
  }
  if (self->answer->is_stopped) {
    /* Another version, or a range that was not requested. */
    const char *etag = self->answer->etag;
    if (object->etag != NULL && *etag != 0 && strcmp(etag, object->etag) != 0) return STEP_CHANGED;
    client_trouble(client, "%.200s: the server has sent another part than was asked for", object->key);
    return STEP_CUT;
  }
  switch (outcome) {
    case DONE: break;
    case ABSENT: return STEP_ABSENT;
    case CHANGED: return STEP_CHANGED;
    case REFUSED: return STEP_REJECT;
    case NEVER: return STEP_FAILED;
    default: return STEP_CUT;
  }
  /* An empty body calls no callback. */
  if (!self->has_checked && !check_answer(self)) return STEP_CHANGED;
  if (object->size >= 0 && self->received < (uint64_t)object->size) {
    client_trouble(client, "%.200s: the body ended after %llu of %lld bytes", object->key, (unsigned long long)self->received,
                   (long long)object->size);
    return STEP_CUT;
  }
  return STEP_DONE;
}

static reading finish(reader *self) {
  if (self->unpacker != NULL && !unpacker_end(self->unpacker)) return READ_REJECTED;
  /* Emits a last line without a line feed. */
  if (self->line_bytes > 0 && !end_line(self, "", 0, 0)) return READ_STOP;
  return READ_ALL;
}

static reading read_on(reader *self) {
  client *client = self->client;
  uint64_t before = self->received;
  for (;;) {
    step step = fetch(self);
    bool is_empty_rest = step == STEP_FAILED && self->answer->status == 416;
    answer_free(self->answer);
    if (step != STEP_CUT && step != STEP_FAILED && step != STEP_STOP) client_works(client);
    switch (step) {
      case STEP_DONE: return finish(self);
      case STEP_ABSENT: return READ_ABSENT;
      case STEP_CHANGED: return READ_CHANGED;
      case STEP_STOP: return READ_STOP;
      case STEP_REJECT: return READ_REJECTED;
      case STEP_FAILED:
        if (is_empty_rest && self->object->size >= 0 && self->received >= (uint64_t)self->object->size) return finish(self);
        return is_empty_rest ? READ_CHANGED : READ_FAILED;
      case STEP_AGAIN: continue;
      case STEP_CUT: break;
    }
    host->count_up(client->instance, RXD_TEXT_OF("resumedReads"), 1);
    bool has_more = self->received > before;
    if (has_more) client->failures = 0;
    before = self->received;
    if (has_more && self->has_waited) continue;
    /* Completed events do not wait for the rest. */
    if (self->added > 0 && !hand_over(self)) return READ_STOP;
    if (reader_rest(self->running, client_failed(client, "requestErrors"))) return READ_STOP;
  }
}

/* Sends the reason to the errors output, with the key and the offset. */
static bool reject_rest(reader *self) {
  const char *problem = self->unpacker != NULL ? unpacker_problem(self->unpacker) : NULL;
  const char *key = self->object->key;
  self->progress->is_incomplete = true;
  if (problem == NULL) return reject(self, key, strlen(key), "%.400s", self->client->problem);
  return reject(self, key, strlen(key), "%.300s: at byte %zu of the object the %s data cannot be read: %.100s; the lines before line %llu were sent",
                key, unpacker_taken(self->unpacker), self->packing == PACKED_GZIP ? "gzip" : "Zstandard", problem,
                (unsigned long long)self->progress->line + 1);
}

reading reader_read(client *client, const reader_settings *settings, rxd_source *running, object *object, progress *progress,
                    const reader_calls *calls) {
  answer answer = {0};
  reader self = {.client = client, .settings = settings, .running = running, .object = object, .progress = progress,
                 .calls = calls, .answer = &answer};
  begin(&self);
  /* An empty object needs no request, such as the folder markers of some programs. */
  reading reading = object->size == 0 && object->etag != NULL ? READ_ALL : read_on(&self);
  if (reading == READ_REJECTED && !reject_rest(&self)) reading = READ_STOP;
  /* The caller flushes the end of an object, because it knows the next position. */
  if (self.added > 0 && (self.calls->keep == NULL || reading == READ_STOP)) hand_over(&self);
  unpacker_free(self.unpacker);
  buffer_free(&self.line);
  answer_free(&answer);
  return reading;
}
