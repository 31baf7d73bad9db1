/* The source `s3`: its parameters, and the action after an object was read. */
#include "source.h"

#include "xml.h"

enum { REQUEST_MS = 60000, TAGS_MOST = 10 };

bool source_is_stopping(const source *self) { return host->is_stopping(self->running) != 0; }

static bool source_is_over(void *closure) { return source_is_stopping(closure); }

/* Requests that belong to a stop, such as deletions, are not ended by it. */
static bool never_over(void *closure) {
  (void)closure;
  return false;
}

int source_fail(source *self, rxd_scope *scope) { return fail_at(scope, "", "%s", self->client.problem); }

bool source_rest(source *self, int64_t milliseconds) {
  int64_t until = now_ms() + milliseconds, left;
  while (!source_is_stopping(self) && (left = until - now_ms()) > 0) {
    if (self->works.count == 0) pause_source(self->running, left);
    else works_take_acks(&self->works, self->running, left < 50 ? left : 50);
  }
  return source_is_stopping(self);
}

void source_hurry(source *self) {
  enum { IDLE_MOST_MS = 5000 };
  if (self->client.idle_ms > IDLE_MOST_MS) self->client.idle_ms = IDLE_MOST_MS;
}

int source_page(source *self, rxd_scope *scope, const char *after, page *page) {
  while (!source_is_stopping(self)) {
    outcome outcome = page_get(&self->client, self->prefix, after, page);
    if (outcome == DONE) {
      client_works(&self->client);
      return RXD_OK;
    }
    if (outcome == OVER) break;
    if (outcome == NEVER) return source_fail(self, scope);
    if (source_rest(self, client_failed(&self->client, "requestErrors"))) break;
  }
  return RXD_STOP;
}

/* ---- Reading ---- */

reading source_read(source *self, object *object, progress *progress, const reader_calls *calls) {
  enum { CHANGES_MOST = 10 };
  reading reading = READ_CHANGED;
  for (int attempt = 0; attempt < CHANGES_MOST; attempt++) {
    reading = reader_read(&self->client, &self->settings, self->running, object, progress, calls);
    if (reading != READ_CHANGED) break;
    host->count_up(self->instance, RXD_TEXT_OF("changedObjects"), 1);
    report(self->instance, "info", "%.300s was replaced while it was read; it is read again from its start", object->key);
    free(object->etag);
    object->etag = NULL;
    object->size = -1;
    object->modified = 0;
    *progress = (struct progress){0};
  }
  if (reading == READ_ABSENT) host->count_up(self->instance, RXD_TEXT_OF("goneObjects"), 1);
  if (reading == READ_ALL || reading == READ_REJECTED) host->count_up(self->instance, RXD_TEXT_OF("objects"), 1);
  if (reading == READ_CHANGED) {
    client_trouble(&self->client, "%.300s changes too often to be read", object->key);
    reading = READ_FAILED;
  }
  return reading;
}

static uint64_t token_of_work(void *closure) { return work_token(closure); }

reading source_read_work(source *self, work *work) {
  progress progress = {0};
  reader_calls calls = {NULL, token_of_work, work, &self->events_most};
  work->has_failed = work->is_read = false;
  reading reading = source_read(self, &work->object, &progress, &calls);
  work->is_incomplete = progress.is_incomplete;
  work->is_read = reading != READ_STOP && reading != READ_FAILED;
  return reading;
}

/* ---- After an object was read ---- */

static outcome send_small(source *self, request *request, answer *answer) {
  request->timeout_ms = REQUEST_MS;
  self->client.is_over = never_over;
  outcome outcome = client_send(&self->client, request, answer);
  self->client.is_over = source_is_over;
  return outcome;
}

/* Whether the object is still the version that was read; some stores ignore `If-Match` on a deletion. */
static outcome check_unchanged(source *self, const object *object) {
  request request = {.method = "HEAD", .key = object->key};
  answer answer;
  outcome outcome = send_small(self, &request, &answer);
  bool is_same = object->etag == NULL || strcmp(answer.etag, object->etag) == 0;
  answer_free(&answer);
  return outcome == DONE && !is_same ? CHANGED : outcome;
}

static outcome delete_object(source *self, const object *object) {
  outcome outcome = check_unchanged(self, object);
  if (outcome != DONE) return outcome;
  request request = {.method = "DELETE", .key = object->key};
  if (object->etag != NULL) request_header(&request, "if-match", object->etag);
  answer answer;
  outcome = send_small(self, &request, &answer);
  answer_free(&answer);
  return outcome;
}

static outcome move_object(source *self, const object *object) {
  buffer to = {0}, from = {0};
  buffer_print(&to, "%s%s", self->move_to, object->key + strlen(self->prefix));
  buffer_put(&from, "/");
  add_encoded(&from, self->client.bucket, strlen(self->client.bucket), false);
  buffer_put(&from, "/");
  add_encoded(&from, object->key, strlen(object->key), true);
  request request = {.method = "PUT", .key = to.bytes};
  request_header(&request, "x-amz-copy-source", from.bytes);
  if (object->etag != NULL) request_header(&request, "x-amz-copy-source-if-match", object->etag);
  answer answer;
  outcome outcome = send_small(self, &request, &answer);
  answer_free(&answer);
  buffer_free(&to), buffer_free(&from);
  return outcome == DONE ? delete_object(self, object) : outcome;
}

typedef struct tags {
  char *names[TAGS_MOST + 1], *values[TAGS_MOST + 1];
  size_t count;
} tags;

static void tag_element(void *closure, const char *parent, const char *name, const char *text, size_t count) {
  tags *self = closure;
  (void)count;
  if (strcmp(parent, "Tag") == 0 && self->count < TAGS_MOST) {
    char **to = strcmp(name, "Key") == 0 ? &self->names[self->count] : strcmp(name, "Value") == 0 ? &self->values[self->count] : NULL;
    if (to != NULL && *to == NULL) *to = need(strdup(text));
  }
  if (strcmp(name, "Tag") == 0 && self->count < TAGS_MOST && self->names[self->count] != NULL) self->count++;
}

static void free_tags(tags *tags) {
  for (size_t i = 0; i <= TAGS_MOST; i++) free(tags->names[i]), free(tags->values[i]);
}

static outcome get_tags(source *self, const object *object, tags *tags) {
  request request = {.method = "GET", .key = object->key};
  request_query(&request, "tagging", "");
  answer answer;
  outcome outcome = send_small(self, &request, &answer);
  if (outcome == DONE && !xml_read(buffer_text(&answer.body), answer.body.count, tag_element, tags)) {
    client_trouble(&self->client, "%.300s: the answer with its tags is none", object->key);
    outcome = AGAIN;
  }
  answer_free(&answer);
  return outcome;
}

outcome source_has_tag(source *self, const object *object, bool *has_tag) {
  tags tags = {0};
  outcome outcome = get_tags(self, object, &tags);
  *has_tag = false;
  for (size_t i = 0; i < tags.count; i++)
    if (strcmp(tags.names[i], self->tag_name) == 0 && tags.values[i] != NULL && strcmp(tags.values[i], self->tag_value) == 0)
      *has_tag = true;
  free_tags(&tags);
  return outcome;
}

static void put_escaped(buffer *buffer, const char *text) {
  for (; *text != 0; text++) {
    const char *name = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
    if (name != NULL) buffer_put(buffer, name);
    else buffer_add(buffer, text, 1);
  }
}

static void put_tag(buffer *buffer, const char *name, const char *value) {
  buffer_put(buffer, "<Tag><Key>");
  put_escaped(buffer, name);
  buffer_put(buffer, "</Key><Value>");
  put_escaped(buffer, value != NULL ? value : "");
  buffer_put(buffer, "</Value></Tag>");
}

/* Sets the tag together with the object's other tags, which setting tags replaces. */
static outcome tag_object(source *self, const object *object) {
  outcome outcome = check_unchanged(self, object);
  tags tags = {0};
  if (outcome == DONE) outcome = get_tags(self, object, &tags);
  if (outcome == DONE) {
    buffer body = {0};
    buffer_put(&body, "<Tagging><TagSet>");
    for (size_t i = 0; i < tags.count; i++)
      if (strcmp(tags.names[i], self->tag_name) != 0) put_tag(&body, tags.names[i], tags.values[i]);
    put_tag(&body, self->tag_name, self->tag_value);
    buffer_put(&body, "</TagSet></Tagging>");
    request request = {.method = "PUT", .key = object->key, .body = body.bytes, .body_count = body.count};
    request_query(&request, "tagging", "");
    answer answer;
    outcome = send_small(self, &request, &answer);
    answer_free(&answer);
    buffer_free(&body);
  }
  free_tags(&tags);
  return outcome;
}

outcome source_settle(source *self, const object *object) {
  switch (self->after) {
    case AFTER_DELETE: return delete_object(self, object);
    case AFTER_MOVE: return move_object(self, object);
    case AFTER_TAG: return tag_object(self, object);
    default: return DONE;
  }
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  works_clear(&self->works);
  client_close(&self->client);
  origin_free(&self->queue);
  free(self->prefix);
  free(self->move_to);
  free(self->tag_name);
  free(self->tag_value);
  free((char *)(uintptr_t)self->position.bytes);
  free(self);
}

static int after_parameters(const rxd_opening *opening, source *self) {
  self->after = choice_is(opening, "after", "delete") ? AFTER_DELETE
                : choice_is(opening, "after", "move") ? AFTER_MOVE
                : choice_is(opening, "after", "tag")  ? AFTER_TAG
                                                      : AFTER_KEEP;
  char *tag = NULL;
  if (text_parameter(opening, "moveTo", &self->move_to) != RXD_OK || text_parameter(opening, "tag", &tag) != RXD_OK) return RXD_FAILED;
  const char *equals = strchr(tag != NULL ? tag : "rxd=read", '=');
  bool is_tag = equals != NULL && equals != tag;
  if (is_tag) {
    const char *text = tag != NULL ? tag : "rxd=read";
    self->tag_name = need(strndup(text, (size_t)(equals - text)));
    self->tag_value = need(strdup(equals + 1));
  }
  free(tag);
  if (!is_tag) return fail_at(opening->scope, "tag", "must be NAME=VALUE");
  if (self->after == AFTER_MOVE && self->move_to == NULL) return fail_at(opening->scope, "after", "'move' needs 'moveTo'");
  if (self->after != AFTER_MOVE && self->move_to != NULL) return fail_at(opening->scope, "moveTo", "has no effect without 'after: move'");
  if (self->after == AFTER_MOVE && strncmp(self->move_to, self->prefix, strlen(self->prefix)) == 0)
    return fail_at(opening->scope, "moveTo", "must not begin with 'prefix': objects would be read again");
  return RXD_OK;
}

static int queue_parameters(const rxd_opening *opening, source *self) {
  char *queue = NULL, problem[200] = "";
  bool is_secure;
  if (text_parameter(opening, "queue", &queue) != RXD_OK) return RXD_FAILED;
  bool is_given = queue != NULL && *queue != 0;
  bool is_right = !is_given || origin_parse(queue, &self->queue, &is_secure, problem, sizeof problem);
  if (is_right && is_given && self->queue.path[0] == 0) {
    snprintf(problem, sizeof problem, "must be the URL of the queue, with the account and its name");
    is_right = false;
  }
  free(queue);
  if (!is_right) return fail_at(opening->scope, "queue", "%s", problem);
  if (!is_given) return RXD_OK;
  if (self->every_ms >= 0) return fail_at(opening->scope, "every", "cannot be combined with 'queue'");
  if (self->starts_new) return fail_at(opening->scope, "start", "cannot be 'new' together with 'queue'");
  return RXD_OK;
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  self->events_most = 1;
  self->every_ms = is_given(opening, "every") ? milliseconds_parameter(opening, "every", 60000) : -1;
  self->full_ms = milliseconds_parameter(opening, "fullEvery", 3600000);
  self->lookback_ms = milliseconds_parameter(opening, "lookback", 3600000);
  self->visibility_ms = milliseconds_parameter(opening, "visibility", 120000);
  self->starts_new = choice_is(opening, "start", "new");
  int status = client_open(opening, &self->client);
  if (status == RXD_OK) status = reader_open(opening, &self->settings);
  if (status == RXD_OK) status = text_parameter(opening, "prefix", &self->prefix);
  if (self->prefix == NULL) self->prefix = need(strdup(""));
  if (status == RXD_OK) status = after_parameters(opening, self);
  if (status == RXD_OK) status = queue_parameters(opening, self);
  if (status == RXD_OK && self->starts_new && self->after != AFTER_KEEP)
    status = fail_at(opening->scope, "start", "cannot be 'new' together with 'after'");
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  if (opening->position.bytes != NULL) self->position = (rxd_text){copy_text(opening->position), opening->position.count};
  self->client.is_over = source_is_over;
  self->client.is_over_closure = self;
  *instance = self;
  return RXD_OK;
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  self->running = running;
  int status = self->queue.host != NULL       ? run_queue(self, scope)
               : self->after != AFTER_KEEP ? run_collecting(self, scope)
                                           : run_listing(self, scope);
  return status == RXD_FAILED ? RXD_FAILED : RXD_OK;
}

const rxd_component s3_source = {
  .size = sizeof(rxd_component),
  .name = {"s3", 2},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
