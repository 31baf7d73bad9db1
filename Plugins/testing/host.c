// A host for tests of native plugins without rxd: implements rxd_host over trees of JSON, and is called from Python
// (host.py). It performs none of rxd's checks, so it shows the behaviour of the plugin alone.
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "values.h"

static void host_fail(rxd_scope *scope, rxd_text message, rxd_text at) {
  free(scope->message);
  free(scope->at);
  scope->message = strndup(message.bytes, message.count);
  scope->at = strndup(at.bytes, at.count);
}

typedef struct handle {
  const rxd_component *component;
  void *instance;
  rxd_scope scope;
  rxd_source *source;
  pthread_mutex_t lock;
  char *log;  // lines
  atomic_int is_closing;
} handle;

static int host_is_closing(rxd_instance *instance) { return ((handle *)(void *)instance)->is_closing; }

static void host_log(rxd_instance *instance, rxd_text level, rxd_text message) {
  handle *self = (handle *)(void *)instance;
  pthread_mutex_lock(&self->lock);
  char *longer = NULL;
  if (asprintf(&longer, "%s%.*s %.*s\n", self->log ? self->log : "", (int)level.count, level.bytes, (int)message.count,
               message.bytes) > 0) {
    free(self->log);
    self->log = longer;
  }
  pthread_mutex_unlock(&self->lock);
}
static void host_count_up(rxd_instance *instance, rxd_text name, int64_t by) {
  char text[200];
  int count = snprintf(text, sizeof text, "%.*s %" PRId64, (int)name.count, name.bytes, by);
  host_log(instance, RXD_TEXT_OF("count"), (rxd_text){text, (size_t)count});
}

/// "gauge NAME OF VALUE" in the log; "none": removed.
static void host_gauge(rxd_instance *instance, rxd_text name, rxd_text of, double value) {
  char text[400];
  int count = snprintf(text, sizeof text, "%.*s %.*s ", (int)name.count, name.bytes, (int)of.count, of.bytes);
  snprintf(text + count, sizeof text - (size_t)count, value == value ? "%.17g" : "none", value);
  host_log(instance, RXD_TEXT_OF("gauge"), (rxd_text){text, strlen(text)});
}

struct rxd_output { FILE *sent; FILE *timers; int has_sent, has_timers; int64_t last; /* the input that the output ends with; -1: none */ };
static void host_finish(rxd_output *output, size_t index) { if (output->last < 0) output->last = (int64_t)index; }
static void begin_item(rxd_output *output, size_t index) {
  fprintf(output->sent, "%s{\"index\":%zu,", output->has_sent++ ? "," : "", index);
}
static void host_send(rxd_output *output, size_t index, const rxd_value *event) {
  begin_item(output, index);
  fputs("\"event\":", output->sent);
  put_value(output->sent, event);
  fputc('}', output->sent);
}
static void host_reject(rxd_output *output, size_t index, rxd_text message) {
  begin_item(output, index);
  fputs("\"error\":", output->sent);
  put_string(output->sent, message.bytes, message.count);
  fputc('}', output->sent);
}
static void host_timer(rxd_output *output, rxd_text name, int64_t nanoseconds) {
  fputs(output->has_timers++ ? "," : "", output->timers);
  put_string(output->timers, name.bytes, name.count);
  fprintf(output->timers, ":%" PRId64, nanoseconds);
}

struct rxd_verdicts { size_t delivered; FILE *refused; int has_refused; FILE *single; int has_single; };
static void host_delivered(rxd_verdicts *verdicts, size_t count) { verdicts->delivered = count; }
static void host_delivered_at(rxd_verdicts *verdicts, size_t index) {
  fprintf(verdicts->single, "%s%zu", verdicts->has_single++ ? "," : "", index);
}
static void host_refuse(rxd_verdicts *verdicts, size_t index, rxd_text message) {
  fprintf(verdicts->refused, "%s\"%zu\":", verdicts->has_refused++ ? "," : "", index);
  put_string(verdicts->refused, message.bytes, message.count);
}

struct rxd_source {
  rxd_scope scope;
  FILE *events;  // of the current batch
  char *text;
  size_t length, count;
  char *position;  // in hex
  pthread_mutex_t lock;
  pthread_cond_t change;
  char **batches;  // sent batches
  size_t batch_count;
  int64_t credit;
  int is_stopping, is_stop_known, wake;  // a stop ends one wait
  rxd_ack *acks;
  size_t ack_count;
};

static rxd_scope *host_source_scope(rxd_source *source) { return &source->scope; }
static int host_flush(rxd_source *source) {
  if (source->events != NULL) fclose(source->events);
  source->events = NULL;
  pthread_mutex_lock(&source->lock);
  while (source->credit < (int64_t)source->count && !source->is_stopping) pthread_cond_wait(&source->change, &source->lock);
  int status = source->is_stopping ? RXD_STOP : RXD_OK;
  if (source->credit >= (int64_t)source->count && (source->count > 0 || source->position != NULL)) {
    source->credit -= (int64_t)source->count;
    char *batch = NULL;
    if (asprintf(&batch, "{\"events\":[%s],\"position\":\"%s\"}", source->text ? source->text : "",
                 source->position ? source->position : "") > 0) {
      source->batches = realloc(source->batches, (source->batch_count + 1) * sizeof(char *));
      source->batches[source->batch_count++] = batch;
    }
  }
  pthread_cond_broadcast(&source->change);
  pthread_mutex_unlock(&source->lock);
  free(source->text);
  free(source->position);
  source->text = source->position = NULL;
  source->count = 0;
  clear(&source->scope);
  return status;
}
static int add_text(rxd_source *source, const char *bytes, size_t count, uint64_t token) {
  // Flushed before adding, so that a position set after the last event is sent with it.
  if (source->count >= 1024 && host_flush(source) == RXD_STOP) return RXD_STOP;
  if (source->events == NULL) source->events = open_memstream(&source->text, &source->length);
  fprintf(source->events, "%s{\"token\":%" PRIu64 ",\"event\":%.*s}", source->count++ ? "," : "", token, (int)count, bytes);
  return RXD_OK;
}
/// Replaces the closing bracket of the event that was added last.
static void host_name(rxd_source *source, rxd_text name) {
  if (source->count == 0 || name.count == 0) return;
  fseek(source->events, -1, SEEK_END);
  fputs(",\"name\":", source->events);
  put_string(source->events, name.bytes, name.count);
  fputc('}', source->events);
}
static int host_add(rxd_source *source, const rxd_value *event, uint64_t token) {
  rxd_scope scope = {0};
  rxd_text json = host_json(&scope, event);
  int status = add_text(source, json.bytes, json.count, token);
  clear(&scope);
  return status;
}
static int host_add_json(rxd_source *source, rxd_text json, uint64_t token) {
  rxd_scope scope = {0};
  int is_json = parse(&scope, json.bytes, json.count, 0) != NULL;
  clear(&scope);
  return is_json ? add_text(source, json.bytes, json.count, token) : RXD_FAILED;
}
static void host_reject_input(rxd_source *source, rxd_text input, rxd_text message, uint64_t token) {
  if (source->count >= 1024 && host_flush(source) == RXD_STOP) return;
  if (source->events == NULL) source->events = open_memstream(&source->text, &source->length);
  fprintf(source->events, "%s{\"token\":%" PRIu64 ",\"rejected\":", source->count++ ? "," : "", token);
  put_string(source->events, input.bytes, input.count);
  fputs(",\"error\":", source->events);
  put_string(source->events, message.bytes, message.count);
  fputc('}', source->events);
}
static void host_position(rxd_source *source, rxd_text position) {
  free(source->position);
  source->position = calloc(1, position.count * 2 + 1);
  for (size_t i = 0; i < position.count; i++) sprintf(source->position + 2 * i, "%02x", (unsigned char)position.bytes[i]);
}
static size_t host_acks(rxd_source *source, rxd_ack *acks, size_t most, int64_t wait_nanoseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t wait = wait_nanoseconds < 0 ? 0 : wait_nanoseconds;
  until.tv_sec += wait / 1000000000;
  until.tv_nsec += wait % 1000000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&source->lock);
  while (source->ack_count == 0 && (!source->is_stopping || source->is_stop_known)) {
    if (wait_nanoseconds < 0) pthread_cond_wait(&source->change, &source->lock);
    else if (pthread_cond_timedwait(&source->change, &source->lock, &until) != 0) break;
  }
  if (source->is_stopping) source->is_stop_known = 1;
  size_t count = source->ack_count < most ? source->ack_count : most;
  memcpy(acks, source->acks, count * sizeof *acks);
  memmove(source->acks, source->acks + count, (source->ack_count - count) * sizeof *acks);
  source->ack_count -= count;
  uint64_t ignored;
  if (source->ack_count == 0 && read(source->wake, &ignored, sizeof ignored) < 0 && errno != EAGAIN) abort();
  pthread_mutex_unlock(&source->lock);
  return count;
}
static int host_wake_descriptor(rxd_source *source) { return source->wake; }
static int host_is_stopping(rxd_source *source) {
  pthread_mutex_lock(&source->lock);
  int is_stopping = source->is_stopping;
  pthread_mutex_unlock(&source->lock);
  return is_stopping;
}

static int host_loaded(rxd_source *source) { return host_flush(source); }

static rxd_host the_host = {
    .size = sizeof(rxd_host), .contract = RXD_CONTRACT, .fail = host_fail, .log = host_log, .count_up = host_count_up,
    .send = host_send, .reject = host_reject, .timer = host_timer, .delivered = host_delivered, .refuse = host_refuse,
    .source_scope = host_source_scope, .add = host_add, .add_json = host_add_json, .flush = host_flush,
    .position = host_position, .acks = host_acks, .wake_descriptor = host_wake_descriptor, .is_stopping = host_is_stopping,
    .reject_input = host_reject_input, .is_closing = host_is_closing, .finish = host_finish, .loaded = host_loaded,
    .gauge = host_gauge, .name = host_name, .delivered_at = host_delivered_at};

// ---- Called from Python. Returned texts are freed with `test_free`. ----

void test_free(void *pointer) { free(pointer); }

const rxd_plugin *test_load(const char *path, char **problem) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) { *problem = strdup(dlerror()); return NULL; }
  const rxd_magic *magic = dlsym(library, "rxd_plugin_magic");
  if (magic == NULL || memcmp(magic->name, "rxdplug", 8) || magic->size != sizeof(rxd_magic)
      || magic->contract != RXD_CONTRACT || magic->pointer_bytes != sizeof(void *)) {
    *problem = strdup("no magic");
    return NULL;
  }
  offer_values(&the_host);
  rxd_plugin_init_function *init;
  *(void **)&init = dlsym(library, "rxd_plugin_init");
  const rxd_plugin *plugin = NULL;
  rxd_text why = {"", 0};
  if (init(RXD_CONTRACT, &the_host, &plugin, &why) != RXD_OK) {
    *problem = strndup(why.bytes, why.count);
    return NULL;
  }
  return plugin;
}

char *test_spec(const rxd_plugin *plugin) { return strndup(plugin->spec.bytes, plugin->spec.count); }

static int is(rxd_text text, const char *string) {
  return text.count == strlen(string) && !memcmp(text.bytes, string, text.count);
}

handle *test_open(const rxd_plugin *plugin, const char *kind, const char *name, const char *parameters,
                  const char *state, size_t state_count, uint32_t version, const char *position, size_t position_count,
                  char **problem) {
  const rxd_component *component = NULL;
  for (uint32_t i = 0; i < plugin->component_count; i++) {
    const rxd_component *one = (const rxd_component *)((const char *)plugin->components + i * plugin->component_size);
    if (is(one->name, name) && is(one->kind, kind)) component = one;
  }
  if (component == NULL) { *problem = strdup("no such component"); return NULL; }
  handle *self = calloc(1, sizeof *self);
  pthread_mutex_init(&self->lock, NULL);
  self->component = component;
  rxd_opening opening = {
      .size = sizeof(rxd_opening), .instance = (rxd_instance *)(void *)self, .scope = &self->scope,
      .parameters = value_of(parse(&self->scope, parameters, strlen(parameters), 1)), .step = RXD_TEXT_OF("test/1"),
      .pipeline = RXD_TEXT_OF("test"), .component = component->name, .state = {state, state_count}, .state_version = version, .position = {position, position_count}};
  // Functions and formats may have no `open`.
  const int status = component->open == NULL ? RXD_OK : component->open(&opening, &self->instance);
  // An operator whose output has already completed is open too.
  if (status != RXD_OK && status != RXD_FINISH) {
    if (asprintf(problem, "%s\n%s", self->scope.at ? self->scope.at : "", self->scope.message ? self->scope.message : "") < 0)
      abort();
    clear(&self->scope);
    free(self->log);
    free(self);
    return NULL;
  }
  clear(&self->scope);
  return self;
}

void test_close(handle *self) {
  if (self->component->close != NULL) self->component->close(self->instance);
  if (self->source != NULL) {
    for (size_t i = 0; i < self->source->batch_count; i++) free(self->source->batches[i]);
    free(self->source->batches);
    free(self->source->acks);
    close(self->source->wake);
    free(self->source);
  }
  free(self->log);
  free(self);
}

/// Returns log records and counts since the last call, one per line.
char *test_log(handle *self) {
  pthread_mutex_lock(&self->lock);
  char *log = self->log ? self->log : strdup("");
  self->log = NULL;
  pthread_mutex_unlock(&self->lock);
  return log;
}

static void put_failure(FILE *to, rxd_scope *scope, int status) {
  fprintf(to, "\"status\":%d,\"error\":", status);
  put_string(to, scope->message ? scope->message : "", scope->message ? strlen(scope->message) : 0);
  fputs(",\"at\":", to);
  put_string(to, scope->at ? scope->at : "", scope->at ? strlen(scope->at) : 0);
}

static char *run_row(handle *self, rxd_scope *scope, rxd_value value, const rxd_value *arguments, int is_typed) {
  char *text = NULL;
  size_t count;
  int status = self->component->row(self->instance, scope, &value, arguments);
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, scope, status);
  fputs(",\"event\":", to);
  (is_typed ? put_typed_value : put_value)(to, &value);
  fputc('}', to);
  fclose(to);
  clear(scope);
  return text;
}

char *test_row(handle *self, const char *event, const char *arguments, int is_typed) {
  rxd_scope scope = {0};  // `row` may be called on several threads
  rxd_value value = value_of(parse(&scope, event, strlen(event), 1));
  node *given = parse(&scope, arguments, strlen(arguments), 1);
  rxd_value values[32];
  for (size_t i = 0; i < given->items.count && i < 32; i++) values[i] = value_of(given->items.values[i]);
  return run_row(self, &scope, value, values, is_typed);
}

/// The bytes are the event and the only argument.
char *test_row_of_bytes(handle *self, const char *bytes, size_t count) {
  rxd_scope scope = {0};
  rxd_value value = bytes_value(&scope, bytes, count);
  return run_row(self, &scope, value, &value, 1);
}

/// `inputs`: a list of {"event": ..., "with": [...]}, {"timer": name}, {"complete": true}.
static rxd_batch make_batch(rxd_scope *scope, const char *inputs, int64_t monotonic) {
  node *list = parse(scope, inputs, strlen(inputs), 1);
  rxd_input *made = allocate(scope, list->items.count * sizeof(rxd_input));
  for (size_t i = 0; i < list->items.count; i++) {
    rxd_value item = value_of(list->items.values[i]);
    rxd_value timer = host_member(scope, &item, RXD_TEXT_OF("timer"));
    rxd_value complete = host_member(scope, &item, RXD_TEXT_OF("complete"));
    rxd_value with = host_member(scope, &item, RXD_TEXT_OF("with"));
    made[i].event = host_member(scope, &item, RXD_TEXT_OF("event"));
    made[i].kind = host_kind(&timer) ? RXD_TIMER : host_kind(&complete) ? RXD_COMPLETE : RXD_EVENT;
    made[i].name = host_text(scope, &timer);
    made[i].argument_count = (uint32_t)host_count(scope, &with);
    rxd_value *arguments = allocate(scope, made[i].argument_count * sizeof(rxd_value));
    for (uint32_t j = 0; j < made[i].argument_count; j++) arguments[j] = host_element(scope, &with, j);
    made[i].arguments = arguments;
  }
  return (rxd_batch){sizeof(rxd_batch), (uint32_t)list->items.count, made, sizeof(rxd_input), monotonic, monotonic};
}

char *test_process(handle *self, const char *inputs, int64_t monotonic) {
  char *sent = NULL, *timers = NULL, *text = NULL;
  size_t count;
  rxd_output output = {open_memstream(&sent, &count), open_memstream(&timers, &count), 0, 0, -1};
  rxd_batch batch = make_batch(&self->scope, inputs, monotonic);
  int status = self->component->process(self->instance, &self->scope, &batch, &output);
  fclose(output.sent);
  fclose(output.timers);
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &self->scope, status);
  fprintf(to, ",\"sent\":[%s],\"timers\":{%s},\"finished\":%" PRId64 "}", sent, timers, output.last);
  fclose(to);
  free(sent);
  free(timers);
  clear(&self->scope);
  return text;
}

char *test_write(handle *self, const char *inputs) {
  char *refused = NULL, *single = NULL, *text = NULL;
  size_t count;
  rxd_verdicts verdicts = {0, open_memstream(&refused, &count), 0, open_memstream(&single, &count), 0};
  rxd_batch batch = make_batch(&self->scope, inputs, 0);
  int status = self->component->write(self->instance, &self->scope, &batch, &verdicts);
  fclose(verdicts.refused);
  fclose(verdicts.single);
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &self->scope, status);
  fprintf(to, ",\"delivered\":%zu,\"deliveredAt\":[%s],\"refused\":{%s}}", verdicts.delivered, single, refused);
  fclose(to);
  free(refused);
  free(single);
  clear(&self->scope);
  return text;
}

char *test_save(handle *self, size_t *count) {
  rxd_bytes bytes = {0};
  *count = 0;
  if (self->component->save(self->instance, &self->scope, &bytes) != RXD_OK) { clear(&self->scope); return NULL; }
  char *copy = malloc(bytes.count + 1);
  memcpy(copy, bytes.bytes, bytes.count);
  *count = bytes.count;
  if (bytes.release != NULL) bytes.release(&bytes);
  clear(&self->scope);
  return copy;
}

/// `is_closing` returns 1 from now on.
void test_begin_closing(handle *self) { self->is_closing = 1; }

void test_begin_source(handle *self, int64_t credit) {
  rxd_source *source = self->source = calloc(1, sizeof *source);
  pthread_mutex_init(&source->lock, NULL);
  pthread_cond_init(&source->change, NULL);
  source->credit = credit;
  source->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/// Blocks until the source has ended.
char *test_run(handle *self) {
  int status = self->component->run(self->instance, &self->scope, self->source);
  // Events that were added but not sent.
  if (status != RXD_FAILED) host_flush(self->source);
  char *text = NULL;
  size_t count;
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &self->scope, status);
  fputc('}', to);
  fclose(to);
  clear(&self->scope);
  return text;
}

static void wake(rxd_source *source) {
  uint64_t one = 1;
  if (write(source->wake, &one, sizeof one) < 0 && errno != EAGAIN) abort();
  pthread_cond_broadcast(&source->change);
}

/// The next batch, or NULL if none arrives within `seconds`.
char *test_take(handle *self, double seconds) {
  rxd_source *source = self->source;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
  until.tv_sec += nanoseconds / 1000000000;
  until.tv_nsec = nanoseconds % 1000000000;
  pthread_mutex_lock(&source->lock);
  while (source->batch_count == 0) {
    if (pthread_cond_timedwait(&source->change, &source->lock, &until) != 0) break;
  }
  char *batch = NULL;
  if (source->batch_count > 0) {
    batch = source->batches[0];
    memmove(source->batches, source->batches + 1, --source->batch_count * sizeof(char *));
  }
  pthread_mutex_unlock(&source->lock);
  return batch;
}

void test_credit(handle *self, int64_t credit) {
  pthread_mutex_lock(&self->source->lock);
  self->source->credit += credit;
  pthread_cond_broadcast(&self->source->change);
  pthread_mutex_unlock(&self->source->lock);
}

void test_acknowledge(handle *self, uint64_t token, int is_failed) {
  rxd_source *source = self->source;
  pthread_mutex_lock(&source->lock);
  source->acks = realloc(source->acks, (source->ack_count + 1) * sizeof(rxd_ack));
  source->acks[source->ack_count++] = (rxd_ack){token, (uint32_t)is_failed, 0};
  wake(source);
  pthread_mutex_unlock(&source->lock);
}

void test_stop(handle *self) {
  pthread_mutex_lock(&self->source->lock);
  self->source->is_stopping = 1;
  wake(self->source);
  pthread_mutex_unlock(&self->source->lock);
}
