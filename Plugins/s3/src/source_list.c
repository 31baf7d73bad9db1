/* Objects that stay in the bucket: their keys are listed repeatedly. The source's position records how far they have
 * been read.
 *
 * A full listing reads every object that is not known. Between full listings, shorter ones start after the last key,
 * which finds the objects of most programs, whose names grow. Objects written before that key are found by the next full
 * listing.
 *
 * An object counts as read if it was modified at `seen.settled` or earlier; of newer ones, the table has those that were
 * read. A full listing moves `settled` to the time of its start, minus `lookback`: an object uploaded in several parts
 * has the time of the start of its upload, so uploads that take longer and sort before the last key are missed. */
#include "source.h"

enum {
  SEEN_MOST = 10000,
  LONG_COUNT = 1000, /* remembered objects above which a position is saved */
  KEPT_MS = 200,     /* at most this often, so that a kill repeats a little more */
};

typedef struct lister {
  source *source;
  seen seen;
  bool is_full;      /* a full listing is in progress */
  int64_t begun;     /* when it began, in the server's time, as milliseconds since 1970; 0: not begun */
  char *passed;      /* its last completed key; NULL: none */
  char *last;        /* the greatest completed key; NULL: none */
  int64_t forgotten; /* in a full listing: objects up to this time count as read at its end, because the table was full */
  bool skips;        /* objects that exist at the start count as read */
  /* The object that is being read. */
  object *object;
  progress progress; /* how much of it rxd has */
  char *resumed_key, *resumed_etag;
  progress resumed;
  buffer position;
  int64_t warn_at, kept_at; /* now_ms */
} lister;

/* ---- The position ---- */

static void put_text(buffer *buffer, const char *text) {
  buffer_put(buffer, text != NULL ? " =" : " -");
  for (; text != NULL && *text != 0; text++) buffer_print(buffer, "%02x", (unsigned char)*text);
}

static void put_number(buffer *buffer, uint64_t number) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> (8 * i));
  buffer_add(buffer, bytes, sizeof bytes);
}

/* A line of text, followed by 16 bytes for each object in the table. */
static void keep_position(lister *self) {
  buffer *to = &self->position;
  if (self->seen.count > LONG_COUNT && now_ms() - self->kept_at < KEPT_MS && !source_is_stopping(self->source)) return;
  self->kept_at = now_ms();
  buffer_clear(to);
  buffer_print(to, "1 %c %lld %lld", self->is_full ? 'F' : 'N', (long long)self->begun, (long long)self->seen.settled);
  put_text(to, self->passed);
  put_text(to, self->last);
  bool is_inside = self->object != NULL && self->progress.offset > 0;
  put_text(to, is_inside ? self->object->key : NULL);
  put_text(to, is_inside ? self->object->etag : NULL);
  buffer_print(to, " %llu %llu %d %lld\n", (unsigned long long)self->progress.offset, (unsigned long long)self->progress.line, self->skips,
               (long long)self->forgotten);
  for (size_t i = 0; i < self->seen.count; i++) {
    put_number(to, self->seen.entries[i].name);
    put_number(to, (uint64_t)self->seen.entries[i].modified);
  }
  host->position(self->source->running, (rxd_text){to->bytes, to->count});
}

static void progressed(void *closure, const progress *progress) {
  lister *self = closure;
  self->progress = *progress;
  keep_position(self);
}

static char *get_text(const char *word) {
  if (*word != '=') return NULL;
  size_t count = strlen(word + 1) / 2;
  char *text = need(malloc(count + 1));
  for (size_t i = 0; i < count; i++) {
    char digits[3] = {word[1 + 2 * i], word[2 + 2 * i], 0};
    text[i] = (char)strtoul(digits, NULL, 16);
  }
  text[count] = 0;
  return text;
}

static uint64_t get_number(const char *bytes) {
  uint64_t number = 0;
  for (int i = 7; i >= 0; i--) number = number << 8 | (unsigned char)bytes[i];
  return number;
}

/* False: not a position of this version. */
static bool restore(lister *self, rxd_text position) {
  enum { WORDS = 12 };
  const char *end = memchr(position.bytes, '\n', position.count);
  if (end == NULL) return false;
  char *line = need(strndup(position.bytes, (size_t)(end - position.bytes))), *rest = NULL, *words[WORDS];
  size_t count = 0;
  for (char *word = strtok_r(line, " ", &rest); word != NULL && count < WORDS; word = strtok_r(NULL, " ", &rest)) words[count++] = word;
  bool is_right = count == WORDS && strcmp(words[0], "1") == 0;
  if (is_right) {
    self->is_full = *words[1] == 'F';
    self->begun = self->is_full ? strtoll(words[2], NULL, 10) : 0;
    self->seen.settled = strtoll(words[3], NULL, 10);
    self->passed = self->is_full ? get_text(words[4]) : NULL;
    self->last = get_text(words[5]);
    self->resumed_key = get_text(words[6]);
    self->resumed_etag = get_text(words[7]);
    self->resumed.offset = strtoull(words[8], NULL, 10);
    self->resumed.line = strtoull(words[9], NULL, 10);
    self->skips = strcmp(words[10], "1") == 0;
    self->forgotten = strtoll(words[11], NULL, 10);
    for (const char *at = end + 1; at + 16 <= position.bytes + position.count; at += 16)
      seen_restore(&self->seen, get_number(at), (int64_t)get_number(at + 8));
  }
  free(line);
  return is_right;
}

/* ---- Objects ---- */

static void forget_resumed(lister *self) {
  free(self->resumed_key);
  free(self->resumed_etag);
  self->resumed_key = self->resumed_etag = NULL;
}

static void replace(char **text, const char *with) {
  char *copy = need(strdup(with));
  free(*text);
  *text = copy;
}

static void remember(lister *self, const object *object) {
  source *source = self->source;
  /* Objects that the full listing will settle at its end need not be in the table: `passed` covers them. */
  bool is_old = self->is_full && object->modified <= self->begun - source->lookback_ms;
  if (!is_old && seen_add(&self->seen, object, self->is_full ? &self->forgotten : NULL) && now_ms() >= self->warn_at) {
    self->warn_at = now_ms() + 3600000;
    report(source->instance, "warning",
           "more than %d objects were written within 'lookback' and 'fullEvery': objects that are written late, with names before "
           "the last one, may be missed; make one of the two shorter",
           SEEN_MOST);
  }
}

static void mark(lister *self, const char *key) {
  if (self->is_full) replace(&self->passed, key);
  if (self->last == NULL || strcmp(key, self->last) > 0) replace(&self->last, key);
  self->object = NULL;
  self->progress = (progress){0};
}

static int read_object(lister *self, rxd_scope *scope, object *object) {
  source *source = self->source;
  char *key = need(strdup(object->key));
  progress progress = {0};
  if (self->resumed_key != NULL && strcmp(self->resumed_key, key) == 0) {
    if (object->etag != NULL && self->resumed_etag != NULL && strcmp(object->etag, self->resumed_etag) == 0) progress = self->resumed;
    forget_resumed(self);
  }
  self->object = object;
  self->progress = progress;
  reader_calls calls = {progressed, NULL, self, &source->events_most};
  int64_t modified = object->modified;
  reading reading = source_read(source, object, &progress, &calls);
  int status = RXD_OK;
  if (reading == READ_STOP) status = RXD_STOP;
  else if (reading == READ_FAILED) status = source_fail(source, scope);
  else {
    if (object->modified == 0) object->modified = modified;
    if (reading != READ_ABSENT) remember(self, object);
    mark(self, key);
    keep_position(self);
    if (host->flush(source->running) == RXD_STOP) status = RXD_STOP;
  }
  self->object = NULL;
  free(key);
  return status;
}

static int take_object(lister *self, rxd_scope *scope, object *object) {
  if (self->is_full && seen_has(&self->seen, object)) {
    mark(self, object->key);
    return RXD_OK;
  }
  if (self->skips) {
    remember(self, object);
    mark(self, object->key);
    return RXD_OK;
  }
  return read_object(self, scope, object);
}

/* ---- Listings ---- */

/* Gets one page after another, from a key on. */
static int list(lister *self, rxd_scope *scope) {
  source *source = self->source;
  for (bool is_last = false; !is_last;) {
    page page;
    const char *after = self->is_full ? self->passed : self->last;
    int status = source_page(source, scope, after, &page);
    if (status != RXD_OK) return status;
    is_last = page.is_last;
    if (self->is_full && self->begun == 0) self->begun = page.date;
    for (size_t i = 0; i < page.count && status == RXD_OK; i++) {
      /* A skipped object may be followed by a long series of others, so the stop is checked here too. */
      if (source_is_stopping(source)) status = RXD_STOP;
      else status = take_object(self, scope, &page.objects[i]);
    }
    page_free(&page);
    if (status != RXD_OK) return status;
    self->kept_at = 0;
    keep_position(self);
    if (host->flush(source->running) == RXD_STOP) return RXD_STOP;
  }
  return RXD_OK;
}

static int list_fully(lister *self, rxd_scope *scope) {
  if (!self->is_full) {
    self->is_full = true;
    self->begun = 0;
    self->forgotten = INT64_MIN;
    free(self->passed);
    self->passed = NULL;
  }
  int status = list(self, scope);
  if (status != RXD_OK) return status;
  int64_t settled = self->begun - self->source->lookback_ms;
  seen_settle(&self->seen, self->forgotten > settled ? self->forgotten : settled);
  self->is_full = self->skips = false;
  free(self->passed);
  self->passed = NULL;
  keep_position(self);
  return host->flush(self->source->running) == RXD_STOP ? RXD_STOP : RXD_OK;
}

int run_listing(source *source, rxd_scope *scope) {
  lister self = {.source = source, .skips = source->starts_new, .forgotten = INT64_MIN};
  self.seen.most = SEEN_MOST;
  self.seen.settled = INT64_MIN;
  if (source->position.bytes != NULL && !restore(&self, source->position))
    report(source->instance, "warning", "the saved position cannot be read: the bucket is read from the start");
  int status = list_fully(&self, scope);
  int64_t full_at = now_ms() + source->full_ms;
  while (status == RXD_OK && source->every_ms >= 0) {
    if (source_rest(source, source->every_ms)) break;
    if (now_ms() >= full_at) {
      status = list_fully(&self, scope);
      full_at = now_ms() + source->full_ms;
    } else status = list(&self, scope);
  }
  forget_resumed(&self);
  seen_free(&self.seen);
  buffer_free(&self.position);
  free(self.passed);
  free(self.last);
  return status;
}
