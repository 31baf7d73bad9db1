/* Objects named by an SQS queue: the bucket sends a message for each written object. A message is deleted when the events
 * of all its objects are acknowledged. A separate thread extends the visibility of outstanding messages, so that no other
 * consumer receives them, however long the pipeline takes. */
#include "source.h"

#include "xml.h"

enum {
  MESSAGES_MOST = 200,   /* outstanding messages */
  RECEIVED_MOST = 10,    /* messages per request */
  WAIT_SECONDS = 2,      /* wait of a receive when nothing is outstanding: it also delays a stop */
  ANSWER_MS = 2000,      /* during a stop: extra time for a receive */
  GIVE_BACK_MS = 5000,   /* and for returning messages */
  REQUEST_MS = 30000,
  KEEPER_MS = 200,
};

typedef struct queue {
  source *source;
  client keeper;         /* used by the extending thread */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  /* Protected by the mutex. */
  message *messages;
  size_t count;
  bool is_ending;
  /* Used only by the thread of `run`. */
  int64_t receive_by;    /* when a stop ends a receive (now_ms) */
} queue;

/* ---- Requests ---- */

typedef struct field {
  const char *name, *value;
} field;

static outcome call(client *client, const origin *origin, const field *fields, size_t count, answer *answer) {
  buffer form = {0};
  buffer_put(&form, "Version=2012-11-05");
  for (size_t i = 0; i < count; i++) {
    buffer_print(&form, "&%s=", fields[i].name);
    add_encoded(&form, fields[i].value, strlen(fields[i].value), false);
  }
  request request = {.method = "POST", .service = "sqs", .origin = origin, .body = form.bytes, .body_count = form.count,
                     .timeout_ms = REQUEST_MS};
  request_header(&request, "content-type", "application/x-www-form-urlencoded");
  outcome outcome = client_send(client, &request, answer);
  buffer_free(&form);
  return outcome;
}

static outcome change_visibility(client *client, const origin *origin, const char *receipt, int64_t seconds) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)seconds);
  const field fields[] = {{"Action", "ChangeMessageVisibility"}, {"ReceiptHandle", receipt}, {"VisibilityTimeout", text}};
  answer answer;
  outcome outcome = call(client, origin, fields, 3, &answer);
  answer_free(&answer);
  return outcome;
}

static outcome delete_message(source *self, const char *receipt) {
  const field fields[] = {{"Action", "DeleteMessage"}, {"ReceiptHandle", receipt}};
  answer answer;
  outcome outcome = call(&self->client, &self->queue, fields, 2, &answer);
  answer_free(&answer);
  return outcome;
}

/* ---- The thread ---- */

static bool keeper_is_over(void *closure) {
  queue *self = closure;
  pthread_mutex_lock(&self->mutex);
  bool is_ending = self->is_ending;
  pthread_mutex_unlock(&self->mutex);
  return is_ending;
}

/* The message that was extended longest ago, if it is due; returns a copy of its receipt. */
static char *due(queue *self, message **found) {
  message *oldest = NULL;
  for (message *one = self->messages; one != NULL; one = one->next)
    if (oldest == NULL || one->extended_at < oldest->extended_at) oldest = one;
  *found = oldest;
  return oldest != NULL && now_ms() - oldest->extended_at >= self->source->visibility_ms / 3 ? need(strdup(oldest->receipt)) : NULL;
}

static void *keep(void *opaque) {
  queue *self = opaque;
  source *source = self->source;
  pthread_mutex_lock(&self->mutex);
  while (!self->is_ending) {
    message *one;
    char *receipt = due(self, &one);
    if (receipt == NULL) {
      wait_at_most(&self->changed, &self->mutex, KEEPER_MS);
      continue;
    }
    /* Also after a failure: a third of the time remains for two more attempts. */
    one->extended_at = now_ms();
    pthread_mutex_unlock(&self->mutex);
    outcome outcome = change_visibility(&self->keeper, &source->queue, receipt, (source->visibility_ms + 999) / 1000);
    if (outcome == DONE) client_works(&self->keeper);
    else if (outcome == AGAIN) client_failed(&self->keeper, "requestErrors");
    free(receipt);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

/* ---- Messages ---- */

static void add_message(queue *self, message *one) {
  pthread_mutex_lock(&self->mutex);
  one->next = self->messages;
  self->messages = one;
  self->count++;
  pthread_mutex_unlock(&self->mutex);
}

static void remove_message(queue *self, message *one) {
  pthread_mutex_lock(&self->mutex);
  message **at = &self->messages;
  while (*at != one) at = &(*at)->next;
  *at = one->next;
  self->count--;
  pthread_mutex_unlock(&self->mutex);
  free(one->receipt);
  free(one);
}

/* Deletes or returns a message whose objects are all settled. False: failed, and will be retried. */
static bool end_message(queue *self, message *one) {
  source *source = self->source;
  outcome outcome;
  if (one->has_failed) {
    host->count_up(source->instance, RXD_TEXT_OF("returned"), 1);
    int64_t pause = backoff_ms(one->deliveries < 8 ? one->deliveries + 2 : 9) / 1000;
    outcome = change_visibility(&source->client, &source->queue, one->receipt, pause);
  } else outcome = delete_message(source, one->receipt);
  if (outcome == AGAIN) {
    client_failed(&source->client, "requestErrors");
    return false;
  }
  remove_message(self, one);
  return true;
}

/* ---- Work items ---- */

static int settle_all(queue *self, rxd_scope *scope) {
  source *source = self->source;
  works *works = &source->works;
  for (work *one = works_next(works, NULL), *next; one != NULL; one = next) {
    next = works_next(works, one);
    if (!one->is_read || one->open > 0 || now_ms() < one->again_at) continue;
    outcome outcome = one->has_failed || one->is_incomplete ? DONE : source_settle(source, &one->object);
    if (outcome == NEVER) return source_fail(source, scope);
    if (outcome == AGAIN || outcome == OVER) {
      /* The other messages may fail too, each after a timeout; they are tried after the source has checked for a stop
       * and for acknowledgements. */
      one->again_at = now_ms() + client_failed(&source->client, "requestErrors");
      return RXD_OK;
    }
    if (one->has_failed) one->message->has_failed = true;
    one->message->works--;
    works_remove(works, one);
  }
  for (message *one = self->messages, *next; one != NULL; one = next) {
    next = one->next;
    if (one->is_read && one->works == 0 && !end_message(self, one)) break;
  }
  return RXD_OK;
}

/* ---- Notifications ---- */

static rxd_value member(rxd_scope *scope, rxd_value object, const char *name) { return host->member(scope, &object, text_of(name)); }

static bool text_member(rxd_scope *scope, rxd_value object, const char *name, rxd_text *text) {
  rxd_value value = member(scope, object, name);
  if (host->kind(&value) != RXD_TEXT) return false;
  *text = host->text(scope, &value);
  return true;
}

static char *key_of(rxd_text text, bool is_encoded) {
  buffer key = {0};
  buffer_add(&key, "", 0);
  for (size_t i = 0; i < text.count; i++) {
    unsigned value;
    char c = text.bytes[i], digits[3] = {0};
    if (is_encoded && c == '+') c = ' ';
    if (is_encoded && c == '%' && i + 2 < text.count) {
      memcpy(digits, text.bytes + i + 1, 2);
      if (isxdigit((unsigned char)digits[0]) && isxdigit((unsigned char)digits[1]) && sscanf(digits, "%x", &value) == 1) {
        c = (char)value;
        i += 2;
      }
    }
    buffer_add(&key, &c, 1);
  }
  return key.bytes;
}

typedef enum meaning { NAMES_OBJECT, NAMES_NOTHING, NAMES_OTHER, UNKNOWN } meaning;

static meaning object_of(source *self, rxd_scope *scope, rxd_value bucket, rxd_value described, bool is_encoded, object *object) {
  rxd_text name, key, etag;
  if (!text_member(scope, bucket, "name", &name) || !text_member(scope, described, "key", &key)) return UNKNOWN;
  if (!text_is(name, text_of(self->client.bucket))) return NAMES_OTHER;
  *object = (struct object){.key = key_of(key, is_encoded), .size = -1};
  bool is_wanted = strncmp(object->key, self->prefix, strlen(self->prefix)) == 0 && strlen(object->key) > 0;
  if (is_wanted && (text_member(scope, described, "eTag", &etag) || text_member(scope, described, "etag", &etag)) && etag.count > 0
      && asprintf(&object->etag, etag.bytes[0] == '"' ? "%.*s" : "\"%.*s\"", (int)etag.count, etag.bytes) < 0)
    abort();
  rxd_value size = member(scope, described, "size");
  if (host->kind(&size) == RXD_INT) object->size = host->integer(&size);
  if (is_wanted) return NAMES_OBJECT;
  object_free(object);
  return NAMES_NOTHING;
}

/* A record of S3; MinIO and Ceph write "s3:ObjectCreated:...". */
static meaning record_object(source *self, rxd_scope *scope, rxd_value record, object *object) {
  rxd_text event;
  if (!text_member(scope, record, "eventName", &event)) return UNKNOWN;
  if (event.count > 3 && memcmp(event.bytes, "s3:", 3) == 0) event.bytes += 3, event.count -= 3;
  if (event.count < 14 || memcmp(event.bytes, "ObjectCreated:", 14) != 0) return NAMES_NOTHING;
  rxd_value s3 = member(scope, record, "s3");
  return object_of(self, scope, member(scope, s3, "bucket"), member(scope, s3, "object"), true, object);
}

static int read_named(queue *self, rxd_scope *scope, message *message, object *object) {
  source *source = self->source;
  work *work = works_add(&source->works, object);
  work->message = message;
  message->works++;
  reading reading = source_read_work(source, work);
  works_take_acks(&source->works, source->running, 0);
  if (reading == READ_FAILED) return source_fail(source, scope);
  if (reading == READ_ABSENT) work->is_incomplete = true;
  return reading == READ_STOP ? RXD_STOP : RXD_OK;
}

static uint64_t rejection_token(works *works, message *message) {
  object none = {.key = need(strdup(""))};
  work *work = works_add(works, &none);
  work->message = message;
  work->is_read = work->is_incomplete = true;
  message->works++;
  return work_token(work);
}

static void reject(queue *self, message *message, rxd_text body, const char *reason) {
  host->reject_input(self->source->running, body, text_of(reason), rejection_token(&self->source->works, message));
  host->count_up(self->source->instance, RXD_TEXT_OF("rejected"), 1);
}

/* Reads the objects of a notification immediately, one by one. The body may be wrapped by SNS; EventBridge names one
 * object. */
static int take_notification(queue *self, rxd_scope *scope, message *message, rxd_text body) {
  source *source = self->source;
  rxd_scope *values = host->source_scope(source->running);
  rxd_value json;
  rxd_text inner, type;
  if (host->parse_json(values, body, &json) != RXD_OK || host->kind(&json) != RXD_OBJECT) {
    reject(self, message, body, "the message is not an S3 notification: it is not a JSON object");
    return RXD_OK;
  }
  rxd_value records = member(values, json, "Records");
  if (host->kind(&records) == RXD_ABSENT && text_member(values, json, "Message", &inner)
      && host->parse_json(values, inner, &json) == RXD_OK)
    records = member(values, json, "Records");
  if (text_member(values, json, "Event", &type) && text_is(type, RXD_TEXT_OF("s3:TestEvent"))) return RXD_OK;
  /* Reading clears the scope, so the objects are collected first. */
  size_t count = host->kind(&records) == RXD_LIST ? host->count(values, &records) : 0, named = 0;
  object *objects = need(calloc(count + 1, sizeof *objects));
  const char *problem = NULL;
  rxd_value detail = member(values, json, "detail");
  if (host->kind(&detail) == RXD_OBJECT && text_member(values, json, "detail-type", &type)) {
    meaning meaning = !text_is(type, RXD_TEXT_OF("Object Created"))
                        ? NAMES_NOTHING
                        : object_of(source, values, member(values, detail, "bucket"), member(values, detail, "object"), false, &objects[0]);
    named = meaning == NAMES_OBJECT;
    if (meaning == NAMES_OTHER) problem = "the message names an object of another bucket";
    if (meaning == UNKNOWN) problem = "the message is not an S3 notification";
  } else if (host->kind(&records) != RXD_LIST) problem = "the message is not an S3 notification: it has no 'Records'";
  for (size_t i = 0; i < count; i++) {
    meaning meaning = record_object(source, values, host->element(values, &records, i), &objects[named]);
    if (meaning == NAMES_OBJECT) named++;
    if (meaning == NAMES_OTHER) problem = "the message names an object of another bucket";
    if (meaning == UNKNOWN) problem = "the message has a record that is none of S3";
  }
  if (problem != NULL) reject(self, message, body, problem);
  int status = RXD_OK;
  for (size_t i = 0; i < named && status == RXD_OK; i++) status = read_named(self, scope, message, &objects[i]);
  for (size_t i = 0; i < named; i++) object_free(&objects[i]);
  free(objects);
  return status;
}

/* ---- Receiving ---- */

typedef struct received {
  struct {
    char *receipt, *body;
    unsigned deliveries;
  } messages[RECEIVED_MOST];
  size_t count;
  char *receipt, *body, *name;
  unsigned deliveries;
} received;

static void element(void *closure, const char *parent, const char *name, const char *text, size_t count) {
  received *self = closure;
  (void)count;
  if (strcmp(parent, "Message") == 0) {
    char **to = strcmp(name, "ReceiptHandle") == 0 ? &self->receipt : strcmp(name, "Body") == 0 ? &self->body : NULL;
    if (to != NULL && *to == NULL) *to = need(strdup(text));
  } else if (strcmp(parent, "Attribute") == 0 && strcmp(name, "Name") == 0) {
    free(self->name);
    self->name = need(strdup(text));
  } else if (strcmp(parent, "Attribute") == 0 && strcmp(name, "Value") == 0 && self->name != NULL
             && strcmp(self->name, "ApproximateReceiveCount") == 0) {
    self->deliveries = (unsigned)strtoul(text, NULL, 10);
  }
  if (strcmp(name, "Message") != 0) return;
  if (self->receipt != NULL && self->body != NULL && self->count < RECEIVED_MOST) {
    self->messages[self->count].receipt = self->receipt;
    self->messages[self->count].body = self->body;
    self->messages[self->count++].deliveries = self->deliveries;
  } else {
    free(self->receipt);
    free(self->body);
  }
  self->receipt = self->body = NULL;
  self->deliveries = 0;
}

/* Messages of an aborted receive stay hidden until their visibility timeout, so a stop waits a little for it. */
static bool receive_is_over(void *closure) {
  queue *self = closure;
  return source_is_stopping(self->source) && now_ms() >= self->receive_by;
}

static void forget_received(received *received) {
  for (size_t i = 0; i < received->count; i++) free(received->messages[i].receipt), free(received->messages[i].body);
  received->count = 0;
}

static outcome receive(queue *self, received *received) {
  source *source = self->source;
  client *client = &source->client;
  is_over *usual = client->is_over;
  void *closure = client->is_over_closure;
  char wait[8], visibility[24];
  /* The answer must arrive before the connection counts as silent. */
  int64_t most = source->client.idle_ms / 2000;
  snprintf(wait, sizeof wait, "%d", self->count > 0 ? 1 : most < WAIT_SECONDS ? (int)most : WAIT_SECONDS);
  snprintf(visibility, sizeof visibility, "%lld", (long long)(source->visibility_ms + 999) / 1000);
  const field fields[] = {{"Action", "ReceiveMessage"}, {"MaxNumberOfMessages", "10"}, {"WaitTimeSeconds", wait},
                          {"VisibilityTimeout", visibility}, {"AttributeName.1", "ApproximateReceiveCount"}};
  answer answer;
  self->receive_by = now_ms() + strtoll(wait, NULL, 10) * 1000 + ANSWER_MS;
  client->is_over = receive_is_over;
  client->is_over_closure = self;
  outcome outcome = call(client, &source->queue, fields, 5, &answer);
  client->is_over = usual;
  client->is_over_closure = closure;
  if (outcome == DONE && !xml_read(buffer_text(&answer.body), answer.body.count, element, received)) {
    client_trouble(&source->client, "%.100s answers with what is none", source->queue.host);
    forget_received(received);
    outcome = AGAIN;
  }
  free(received->name);
  free(received->receipt);
  free(received->body);
  answer_free(&answer);
  return outcome == ABSENT || outcome == CHANGED || outcome == REFUSED ? NEVER : outcome;
}

static int take_received(queue *self, rxd_scope *scope, received *received) {
  source *source = self->source;
  message *messages[RECEIVED_MOST];
  for (size_t i = 0; i < received->count; i++) {
    messages[i] = need(calloc(1, sizeof *messages[i]));
    *messages[i] = (message){.receipt = received->messages[i].receipt, .deliveries = received->messages[i].deliveries,
                             .extended_at = now_ms()};
    add_message(self, messages[i]);
  }
  int status = RXD_OK;
  for (size_t i = 0; i < received->count && status == RXD_OK; i++) {
    char *body = received->messages[i].body;
    status = take_notification(self, scope, messages[i], text_of(body));
    messages[i]->is_read = status == RXD_OK;
    if (status == RXD_OK && host->flush(source->running) == RXD_STOP) status = RXD_STOP;
    if (status == RXD_OK) status = settle_all(self, scope);
  }
  for (size_t i = 0; i < received->count; i++) free(received->messages[i].body);
  return status;
}

static int serve(queue *self, rxd_scope *scope) {
  source *source = self->source;
  while (!source_is_stopping(source)) {
    works_take_acks(&source->works, source->running, 0);
    if (settle_all(self, scope) == RXD_FAILED) return RXD_FAILED;
    if (self->count >= MESSAGES_MOST || source->works.count >= WORKS_MOST) {
      works_take_acks(&source->works, source->running, 50);
      continue;
    }
    received received = {0};
    outcome outcome = receive(self, &received);
    if (outcome == OVER) break;
    if (outcome == NEVER) return source_fail(source, scope);
    if (outcome == AGAIN) {
      source_rest(source, client_failed(&source->client, "requestErrors"));
      continue;
    }
    client_works(&source->client);
    int status = take_received(self, scope, &received);
    if (status != RXD_OK) return status;
  }
  return RXD_STOP;
}

/* Returns unacknowledged messages, which are delivered again immediately, here or elsewhere. */
static void leave(queue *self, rxd_scope *scope) {
  source *source = self->source;
  int64_t until = now_ms() + STOP_MS - GIVE_BACK_MS;
  bool is_waiting = true;
  while (is_waiting && now_ms() < until) {
    works_take_acks(&source->works, source->running, 50);
    if (settle_all(self, scope) == RXD_FAILED) break;
    is_waiting = false;
    for (work *one = works_next(&source->works, NULL); one != NULL; one = works_next(&source->works, one))
      is_waiting = is_waiting || one->open > 0 || one->is_read;
    if (host->is_stopping(source->running) == 2) is_waiting = false;
  }
  works_take_acks(&source->works, source->running, 0);
  settle_all(self, scope);
  until = now_ms() + GIVE_BACK_MS;
  for (message *one = self->messages, *next; one != NULL; one = next) {
    next = one->next;
    if (now_ms() < until) change_visibility(&source->client, &source->queue, one->receipt, 0);
    remove_message(self, one);
  }
}

static bool never_over(void *closure) {
  (void)closure;
  return false;
}

int run_queue(source *source, rxd_scope *scope) {
  queue self = {.source = source};
  client_copy(&source->client, &self.keeper);
  self.keeper.is_over = keeper_is_over;
  self.keeper.is_over_closure = &self;
  pthread_mutex_init(&self.mutex, NULL);
  init_condition(&self.changed);
  bool has_thread = pthread_create(&self.thread, NULL, keep, &self) == 0;
  int status = has_thread ? serve(&self, scope) : fail_at(scope, "", "the source cannot get a thread");
  source->client.is_over = never_over;
  source_hurry(source);
  leave(&self, scope);
  pthread_mutex_lock(&self.mutex);
  self.is_ending = true;
  pthread_cond_signal(&self.changed);
  pthread_mutex_unlock(&self.mutex);
  if (has_thread) pthread_join(self.thread, NULL);
  client_fork_close(&self.keeper);
  pthread_cond_destroy(&self.changed);
  pthread_mutex_destroy(&self.mutex);
  return status;
}
