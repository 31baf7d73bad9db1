/* The sink `s3`: events of a batch with the same key become one object, or several. An event is delivered when its object
 * is complete. */
#include "pack.h"
#include "upload.h"

#include <openssl/rand.h>

/* The template parameters, in the order of the spec. */
enum { KEY, VALUE, ID };

enum { ID_DIGITS = 24, KEY_MOST = 1024, OBJECT_BYTES_MOST = 1 << 30 };

typedef enum encoding { ENCODE_NDJSON, ENCODE_TEXT, ENCODE_LINES, ENCODE_BYTES } encoding;

typedef struct sink {
  rxd_instance *instance;
  client client;
  upload_settings settings;
  packing packing;
  encoding encoding;
  bool spreads_lists;
  bool replaces;           /* keys may omit {id} */
  size_t bytes_most;
  int64_t events_most, timeout_ms;
  unsigned char nonce[16]; /* of this instance */
  uint64_t number;         /* number of the last object whose events have no names */
} sink;

/* ---- Objects ---- */

/* Events with one key, in order. */
typedef struct draft {
  char *key;
  uint32_t *indexes;
  size_t count, capacity;
  buffer content, names; /* content and names of the events */
  bool has_names;        /* all events have a name */
  int64_t lines;
} draft;

static void draft_clear(draft *self) {
  self->count = 0;
  self->lines = 0;
  self->has_names = true;
  buffer_clear(&self->content);
  buffer_clear(&self->names);
}

static void draft_free(draft *self) {
  free(self->key);
  free(self->indexes);
  buffer_free(&self->content);
  buffer_free(&self->names);
}

static void draft_index(draft *self, uint32_t index) {
  if (self->count == self->capacity) {
    self->capacity = self->capacity == 0 ? 64 : 2 * self->capacity;
    self->indexes = need(realloc(self->indexes, self->capacity * sizeof *self->indexes));
  }
  self->indexes[self->count++] = index;
}

static void add_text(const sink *self, draft *draft, rxd_text text) {
  if (self->encoding != ENCODE_LINES) buffer_add(&draft->content, text.bytes, text.count);
  else
    for (size_t i = 0; i < text.count; i++) {
      char c = text.bytes[i];
      if (c == '\n') buffer_put(&draft->content, "\\n");
      else if (c == '\r') buffer_put(&draft->content, "\\r");
      else buffer_add(&draft->content, &c, 1);
    }
  if (self->encoding != ENCODE_BYTES) buffer_put(&draft->content, "\n");
  draft->lines++;
}

static void add_value(const sink *self, draft *draft, rxd_scope *scope, const rxd_value *value) {
  add_text(self, draft, self->encoding == ENCODE_NDJSON ? host->json(scope, value) : bytes_of_value(scope, value));
}

static void add_event(const sink *self, draft *draft, rxd_scope *scope, const rxd_input *input, uint32_t index) {
  rxd_text text, name;
  if (argument(scope, input, VALUE, &text)) add_text(self, draft, text);
  else if (self->spreads_lists && host->kind(&input->event) == RXD_LIST) {
    size_t count = host->count(scope, &input->event);
    for (size_t i = 0; i < count; i++) {
      rxd_value element = host->element(scope, &input->event, i);
      add_value(self, draft, scope, &element);
    }
  } else add_value(self, draft, scope, &input->event);
  if (argument(scope, input, ID, &name) && name.count > 0) {
    uint64_t length = name.count;
    buffer_add(&draft->names, &length, sizeof length);
    buffer_add(&draft->names, name.bytes, name.count);
  } else draft->has_names = false;
  draft_index(draft, index);
}

/* The value of `{id}`: equal for the same named events with the same content; otherwise unique to this object. */
static void make_id(sink *self, const draft *draft, const char *content_hash, char id[HASH_TEXT]) {
  buffer from = {0};
  buffer_put(&from, content_hash);
  if (draft->has_names) buffer_add(&from, draft->names.bytes, draft->names.count);
  else {
    self->number++;
    buffer_add(&from, self->nonce, sizeof self->nonce);
    buffer_add(&from, &self->number, sizeof self->number);
  }
  sha256_text(from.bytes, from.count, id);
  id[ID_DIGITS] = 0;
  buffer_free(&from);
}

static const char mark[] = "{id}";

static char *named(const char *key, const char *id) {
  buffer name = {0};
  buffer_add(&name, "", 0);
  const char *at = key, *found;
  while ((found = strstr(at, mark)) != NULL) {
    buffer_add(&name, at, (size_t)(found - at));
    buffer_put(&name, id);
    at = found + strlen(mark);
  }
  buffer_put(&name, at);
  return name.bytes;
}

static void refuse_all(const draft *draft, rxd_verdicts *verdicts, const char *problem) {
  for (size_t i = 0; i < draft->count; i++) host->refuse(verdicts, draft->indexes[i], text_of(problem));
}

/* Stores the draft. DONE: its events are delivered or refused. */
static outcome store(sink *self, draft *draft, rxd_verdicts *verdicts, int64_t until) {
  char hash[HASH_TEXT], id[HASH_TEXT];
  sha256_text(buffer_text(&draft->content), draft->content.count, hash);
  make_id(self, draft, hash, id);
  char *key = named(draft->key, id);
  buffer packed = {0};
  const buffer *content = &draft->content;
  if (self->packing != PACKED_NONE) {
    pack(self->packing, buffer_text(content), content->count, &packed);
    content = &packed;
  }
  upload upload = {.client = &self->client, .settings = &self->settings, .key = key, .bytes = buffer_text(content),
                   .count = content->count, .hash = hash, .until = until};
  outcome outcome = upload_object(&upload);
  if (outcome == DONE) {
    host->count_up(self->instance, RXD_TEXT_OF("objects"), 1);
    host->count_up(self->instance, RXD_TEXT_OF("storedBytes"), (int64_t)content->count);
  } else if (outcome == CHANGED) {
    char problem[200];
    snprintf(problem, sizeof problem, "another object has the key '%.100s'", key);
    refuse_all(draft, verdicts, problem);
    outcome = DONE;
  } else if (outcome == REFUSED || outcome == ABSENT) {
    refuse_all(draft, verdicts, self->client.problem);
    outcome = outcome == REFUSED ? DONE : NEVER;
  }
  free(key);
  buffer_free(&packed);
  return outcome;
}

/* ---- A batch ---- */

enum { DRAFTS_MOST = 64 };

typedef struct writing {
  sink *sink;
  rxd_verdicts *verdicts;
  int64_t until;
  draft drafts[DRAFTS_MOST];
  size_t count;
  uint32_t seen; /* events of the batch that are in drafts, delivered or refused */
} writing;

/* Only events before the first waiting one can be reported as delivered. */
static void report_delivered(writing *self) {
  uint32_t first = self->seen;
  for (size_t i = 0; i < self->count; i++)
    if (self->drafts[i].count > 0 && self->drafts[i].indexes[0] < first) first = self->drafts[i].indexes[0];
  host->delivered(self->verdicts, first);
}

static outcome store_draft(writing *self, draft *draft) {
  if (draft->count == 0) return DONE;
  outcome outcome = store(self->sink, draft, self->verdicts, self->until);
  if (outcome != DONE) return outcome;
  draft_clear(draft);
  report_delivered(self);
  return DONE;
}

static outcome store_all(writing *self) {
  outcome outcome = DONE;
  for (size_t i = 0; i < self->count && outcome == DONE; i++) outcome = store_draft(self, &self->drafts[i]);
  if (outcome != DONE) return outcome;
  for (size_t i = 0; i < self->count; i++) draft_free(&self->drafts[i]);
  self->count = 0;
  return DONE;
}

/* The draft for a key. NULL: all drafts are in use. */
static draft *draft_of(writing *self, rxd_text key) {
  for (size_t i = self->count; i-- > 0;)
    if (text_is(text_of(self->drafts[i].key), key)) return &self->drafts[i];
  if (self->count == DRAFTS_MOST) return NULL;
  draft *one = &self->drafts[self->count++];
  *one = (draft){.key = copy_text(key), .has_names = true};
  return one;
}

/* Why the text is not a valid key, or NULL. */
static const char *key_problem(const sink *self, rxd_text key) {
  if (key.count == 0) return "'key' is empty for this event";
  if (key.count > KEY_MOST) return "'key' has more than 1024 bytes for this event";
  if (!is_utf8(key.bytes, key.count) || memchr(key.bytes, 0, key.count) != NULL) return "'key' is not a text for this event";
  if (key.bytes[0] == '/') return "'key' begins with '/' for this event";
  if (!self->replaces && !self->settings.keeps_others && memmem(key.bytes, key.count, mark, strlen(mark)) == NULL)
    return "'key' needs {id}, without which an object would replace the one before; or set 'replace: true'";
  return NULL;
}

/* Without {id}, an object is one event, which may be a list of lines. */
static bool is_full(const sink *self, const draft *draft) {
  return draft->content.count >= self->bytes_most || draft->lines >= self->events_most || strstr(draft->key, mark) == NULL;
}

/* All drafts together must not exceed the size limit of one. */
static bool is_crowded(const writing *self) {
  size_t bytes = 0;
  for (size_t i = 0; i < self->count; i++) bytes += self->drafts[i].content.count;
  return bytes >= self->sink->bytes_most;
}

static outcome take_event(writing *self, rxd_scope *scope, const rxd_input *input, uint32_t index) {
  rxd_text key = {0};
  const char *problem = argument(scope, input, KEY, &key) ? key_problem(self->sink, key) : "'key' is missing";
  if (problem != NULL) {
    host->refuse(self->verdicts, index, text_of(problem));
    self->seen = index + 1;
    return DONE;
  }
  draft *draft = draft_of(self, key);
  if (draft == NULL) {
    outcome outcome = store_all(self);
    if (outcome != DONE) return outcome;
    draft = draft_of(self, key);
  }
  bool is_list = self->sink->spreads_lists && host->kind(&input->event) == RXD_LIST;
  if (is_list) {
    outcome outcome = store_draft(self, draft);
    if (outcome != DONE) return outcome;
  }
  add_event(self->sink, draft, scope, input, index);
  self->seen = index + 1;
  if (is_list || is_full(self->sink, draft)) return store_draft(self, draft);
  return is_crowded(self) ? store_all(self) : DONE;
}

static int give_up(sink *self, rxd_scope *scope, outcome outcome) {
  if (outcome == OVER) client_trouble(&self->client, "the sink is closing");
  fail_at(scope, "", "%s", self->client.problem);
  return outcome == NEVER ? RXD_FAILED : RXD_RETRY;
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  writing *writing = need(calloc(1, sizeof *writing));
  *writing = (struct writing){.sink = self, .verdicts = verdicts, .until = now_ms() + self->timeout_ms};
  outcome outcome = DONE;
  for (uint32_t i = 0; i < batch->count && outcome == DONE; i++) {
    const rxd_input *input = (const rxd_input *)(const void *)((const char *)batch->inputs + i * batch->input_size);
    if (input->kind == RXD_EVENT) outcome = take_event(writing, scope, input, i);
  }
  if (outcome == DONE) outcome = store_all(writing);
  for (size_t i = 0; i < writing->count; i++) draft_free(&writing->drafts[i]);
  free(writing);
  return outcome == DONE ? RXD_OK : give_up(self, scope, outcome);
}

/* ---- Opening ---- */

static void sink_close(void *opaque) {
  sink *self = opaque;
  client_close(&self->client);
  free(self->settings.type);
  free(self->settings.storage_class);
  free(self->settings.encryption);
  free(self->settings.encryption_key);
  free(self);
}

static bool sink_is_over(void *closure) {
  sink *self = closure;
  return host->is_closing(self->instance) != 0;
}

static bool is_line(const char *text) {
  for (; text != NULL && *text != 0; text++)
    if ((unsigned char)*text < ' ' || *text == 127) return false;
  return true;
}

static int settings_parameters(const rxd_opening *opening, sink *self) {
  upload_settings *settings = &self->settings;
  if (text_parameter(opening, "contentType", &settings->type) != RXD_OK
      || text_parameter(opening, "storageClass", &settings->storage_class) != RXD_OK
      || text_parameter(opening, "encryptionKey", &settings->encryption_key) != RXD_OK)
    return RXD_FAILED;
  if (choice_is(opening, "encryption", "aes256")) settings->encryption = need(strdup("AES256"));
  if (choice_is(opening, "encryption", "kms")) settings->encryption = need(strdup("aws:kms"));
  if (settings->encryption_key != NULL && !choice_is(opening, "encryption", "kms"))
    return fail_at(opening->scope, "encryptionKey", "has no effect without 'encryption: kms'");
  if (!is_line(settings->type)) return fail_at(opening->scope, "contentType", "must be one line");
  if (!is_line(settings->storage_class)) return fail_at(opening->scope, "storageClass", "must be one line");
  if (!is_line(settings->encryption_key)) return fail_at(opening->scope, "encryptionKey", "must be one line");
  int64_t part = integer_parameter(opening, "partSize", 16 << 20), most = integer_parameter(opening, "maxBytes", 64 << 20);
  if (part < 5 << 20 || part > 1 << 30) return fail_at(opening->scope, "partSize", "must be 5MiB to 1GiB");
  if (most < 1 || most > OBJECT_BYTES_MOST) return fail_at(opening->scope, "maxBytes", "must be 1B to 1GiB");
  settings->part_bytes = (size_t)part;
  self->bytes_most = (size_t)most;
  settings->keeps_others = boolean_parameter(opening, "onlyNew");
  self->replaces = boolean_parameter(opening, "replace");
  if (self->replaces && settings->keeps_others) return fail_at(opening->scope, "onlyNew", "cannot be combined with 'replace'");
  return RXD_OK;
}

static int sink_open(const rxd_opening *opening, void **instance) {
  sink *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  self->events_most = integer_parameter(opening, "maxEvents", 1000000);
  self->timeout_ms = milliseconds_parameter(opening, "timeout", 60000);
  self->spreads_lists = choice_is(opening, "lists", "lines");
  self->packing = choice_is(opening, "compress", "gzip")   ? PACKED_GZIP
                  : choice_is(opening, "compress", "zstd") ? PACKED_ZSTD
                                                           : PACKED_NONE;
  self->encoding = choice_is(opening, "encode", "text")    ? ENCODE_TEXT
                   : choice_is(opening, "encode", "lines") ? ENCODE_LINES
                   : choice_is(opening, "encode", "bytes") ? ENCODE_BYTES
                                                           : ENCODE_NDJSON;
  if (RAND_bytes(self->nonce, sizeof self->nonce) != 1) abort();
  int status = client_open(opening, &self->client);
  if (status == RXD_OK) status = settings_parameters(opening, self);
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  self->client.is_over = sink_is_over;
  self->client.is_over_closure = self;
  *instance = self;
  return RXD_OK;
}

const rxd_component s3_sink = {
  .size = sizeof(rxd_component),
  .name = {"s3", 2},
  .kind = {"sink", 4},
  .open = sink_open,
  .close = sink_close,
  .write = sink_write,
};
