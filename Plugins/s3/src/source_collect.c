/* Objects that are deleted, moved or tagged when their events are acknowledged. The bucket itself shows what is left
 * to do, so no position is saved. */
#include "source.h"

enum { PASSED_MOST = 10000 };

typedef struct collector {
  source *source;
  /* Objects that are not read again: tagged ones, and those that stay because a part of them cannot be read. When it is
   * full, it is cleared: tags are checked again, and unreadable parts are rejected again. */
  seen passed;
} collector;

static void pass(collector *self, const object *object) {
  if (self->passed.count >= self->passed.most) {
    self->passed.count = 0;
    memset(self->passed.slots, 0, self->passed.slot_count * sizeof *self->passed.slots);
  }
  seen_add(&self->passed, object, NULL);
}

/* Performs the action on an object whose events are acknowledged. RXD_RETRY: later. */
static int settle(collector *self, rxd_scope *scope, work *work) {
  source *source = self->source;
  if (work->is_incomplete) {
    report(source->instance, "warning", "%.300s stays, because it could not be read completely", work->object.key);
    host->count_up(source->instance, RXD_TEXT_OF("keptObjects"), 1);
    pass(self, &work->object);
    works_remove(&source->works, work);
    return RXD_OK;
  }
  outcome outcome = source_settle(source, &work->object);
  if (outcome == AGAIN || outcome == OVER) {
    work->again_at = now_ms() + client_failed(&source->client, "requestErrors");
    return RXD_RETRY;
  }
  if (outcome == NEVER) return source_fail(source, scope);
  client_works(&source->client);
  if (outcome == REFUSED) report(source->instance, "warning", "%s; the object stays", source->client.problem);
  if (outcome == CHANGED) report(source->instance, "info", "%.300s was replaced after it was read: it is read again", work->object.key);
  if (source->after == AFTER_TAG && outcome != CHANGED) pass(self, &work->object);
  if (outcome == REFUSED) pass(self, &work->object);
  works_remove(&source->works, work);
  return RXD_OK;
}

/* Settles all objects whose events are answered. */
static int settle_all(collector *self, rxd_scope *scope) {
  works *works = &self->source->works;
  for (work *one = works_next(works, NULL), *next; one != NULL; one = next) {
    next = works_next(works, one);
    if (!one->is_read || one->open > 0 || now_ms() < one->again_at) continue;
    if (one->has_failed) {
      host->count_up(self->source->instance, RXD_TEXT_OF("returned"), 1);
      one->is_read = false;
      one->again_at = now_ms() + backoff_ms(one->failures++ + 2);
      continue;
    }
    int status = settle(self, scope, one);
    /* The other objects may fail too, each after a timeout; they are tried after the source has checked for a stop and
     * for acknowledgements. */
    if (status != RXD_OK) return status == RXD_RETRY ? RXD_OK : status;
  }
  return RXD_OK;
}

static int read_work(collector *self, rxd_scope *scope, work *work) {
  source *source = self->source;
  reading reading = source_read_work(source, work);
  if (reading == READ_STOP) return RXD_STOP;
  if (reading == READ_FAILED) return source_fail(source, scope);
  if (reading == READ_ABSENT && work->open == 0) works_remove(&source->works, work);
  works_take_acks(&source->works, source->running, 0);
  return settle_all(self, scope);
}

/* Reads failed objects again when they are due. */
static int read_again(collector *self, rxd_scope *scope) {
  source *source = self->source;
  work *due;
  do {
    due = NULL;
    for (work *one = works_next(&source->works, NULL); one != NULL && due == NULL; one = works_next(&source->works, one))
      if (!one->is_read && one->open == 0 && now_ms() >= one->again_at) due = one;
    int status = due != NULL ? read_work(self, scope, due) : RXD_OK;
    if (status != RXD_OK) return status;
  } while (due != NULL);
  return RXD_OK;
}

/* Handles acknowledgements and their consequences. */
static int turn(collector *self, rxd_scope *scope, int64_t wait_ms) {
  source *source = self->source;
  works_take_acks(&source->works, source->running, wait_ms);
  int status = settle_all(self, scope);
  if (status == RXD_OK && !source_is_stopping(source)) status = read_again(self, scope);
  return status;
}

static int take_object(collector *self, rxd_scope *scope, object *object) {
  source *source = self->source;
  if (works_of_key(&source->works, object->key) != NULL || seen_has(&self->passed, object)) return RXD_OK;
  while (source->works.count >= WORKS_MOST && !source_is_stopping(source)) {
    int status = turn(self, scope, 50);
    if (status != RXD_OK) return status;
  }
  bool has_tag = false;
  while (source->after == AFTER_TAG && !source_is_stopping(source)) {
    outcome outcome = source_has_tag(source, object, &has_tag);
    if (outcome == ABSENT) return RXD_OK;
    if (outcome == NEVER) return source_fail(source, scope);
    if (outcome == DONE) break;
    source_rest(source, client_failed(&source->client, "requestErrors"));
  }
  if (source_is_stopping(source)) return RXD_STOP;
  if (has_tag) {
    pass(self, object);
    return RXD_OK;
  }
  return read_work(self, scope, works_add(&source->works, object));
}

static int list_once(collector *self, rxd_scope *scope) {
  source *source = self->source;
  char *after = NULL;
  int status = RXD_OK;
  for (bool is_last = false; !is_last && status == RXD_OK;) {
    page page;
    status = source_page(source, scope, after, &page);
    if (status != RXD_OK) break;
    is_last = page.is_last;
    free(after);
    after = page.count > 0 ? need(strdup(page.objects[page.count - 1].key)) : NULL;
    for (size_t i = 0; i < page.count && status == RXD_OK; i++)
      status = source_is_stopping(source) ? RXD_STOP : take_object(self, scope, &page.objects[i]);
    page_free(&page);
  }
  free(after);
  return status;
}

/* Objects that were not read because the source stops stay unchanged. */
static bool is_open(const works *works) {
  for (work *one = works_next(works, NULL); one != NULL; one = works_next(works, one))
    if (one->is_read) return true;
  return false;
}

static int finish(collector *self, rxd_scope *scope) {
  source *source = self->source;
  enum { LAST_MS = 5000 }; /* time for a request that began before the end */
  int64_t until = now_ms() + STOP_MS - LAST_MS;
  int status = RXD_OK;
  source_hurry(source);
  while (status == RXD_OK && is_open(&source->works) && host->is_stopping(source->running) != 2 && now_ms() < until)
    status = turn(self, scope, 50);
  if (status == RXD_OK && is_open(&source->works)) status = turn(self, scope, 0);
  return status;
}

int run_collecting(source *source, rxd_scope *scope) {
  collector self = {.source = source, .passed = {.most = PASSED_MOST, .settled = INT64_MIN}};
  int status;
  do {
    status = list_once(&self, scope);
    int64_t until = now_ms() + source->every_ms;
    /* Without `every`, it completes when everything is done. */
    while (status == RXD_OK && !source_is_stopping(source)
           && (source->every_ms >= 0 ? now_ms() < until : source->works.count > 0))
      status = turn(&self, scope, 50);
  } while (status == RXD_OK && source->every_ms >= 0 && !source_is_stopping(source));
  if (status != RXD_FAILED) status = finish(&self, scope) == RXD_FAILED ? RXD_FAILED : RXD_OK;
  seen_free(&self.passed);
  return status;
}
