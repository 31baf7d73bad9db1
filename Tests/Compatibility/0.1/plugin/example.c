// Five small components that show every part of the native plugin contract; see rxd_plugin.h.
//
// What holds in all of them: texts of rxd have no zero at the end and live only as long as the call, so `open` copies
// what it keeps. A function that fails says why with `fail`, once, as a sentence without a full stop.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rxd_plugin.h"

RXD_PLUGIN_MAGIC;

// Made from spec.json by the Makefile.
static const char spec[] =
#include "spec.h"
    ;

static const rxd_host *host;

// ---- Helpers ----

static rxd_text text_of(const char *string) { return (rxd_text){string, strlen(string)}; }

/// A copy with a zero at the end.
static char *copy(rxd_text text) {
  char *result = malloc(text.count + 1);
  if (result == NULL) return NULL;
  if (text.count > 0) memcpy(result, text.bytes, text.count);
  result[text.count] = 0;
  return result;
}

static rxd_value parameter(const rxd_opening *opening, const char *name) {
  return host->member(opening->scope, &opening->parameters, text_of(name));
}

/// NULL if the parameter is absent.
static char *text_parameter(const rxd_opening *opening, const char *name) {
  rxd_value value = parameter(opening, name);
  if (host->kind(&value) != RXD_TEXT) return NULL;
  return copy(host->text(opening->scope, &value));
}

static int fail(rxd_scope *scope, const char *message, const char *at) {
  host->fail(scope, text_of(message), text_of(at));
  return RXD_FAILED;
}

static int out_of_memory(rxd_scope *scope) { return fail(scope, "no memory", ""); }

static void release_copy(rxd_bytes *bytes) { free(bytes->owner); }

/// Hands over `string`, which `malloc` has made.
static int hand_over(rxd_scope *scope, rxd_bytes *state, char *string) {
  if (string == NULL) return out_of_memory(scope);
  *state = (rxd_bytes){string, strlen(string), release_copy, string};
  return RXD_OK;
}

// ---- exampleShorten: a row operator ----
// `row` is called on several threads at once: the instance never changes after `open`.

typedef struct {
  char *field;
  size_t to;
} shorten;

static void shorten_close(void *instance) {
  shorten *self = instance;
  free(self->field);
  free(self);
}

static int shorten_open(const rxd_opening *opening, void **instance) {
  shorten *self = calloc(1, sizeof *self);
  if (self == NULL) return out_of_memory(opening->scope);
  rxd_value to = parameter(opening, "to");
  self->to = (size_t)host->integer(&to);
  self->field = text_parameter(opening, "field");
  if (self->field == NULL || self->field[0] == 0) {
    shorten_close(self);
    return fail(opening->scope, "the name of the member is empty", "field");
  }
  *instance = self;
  return RXD_OK;
}

static int shorten_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  const shorten *self = instance;
  rxd_value value = host->member(scope, event, text_of(self->field));
  if (host->kind(&value) != RXD_TEXT) {
    char message[200];
    snprintf(message, sizeof message, "no text '%.100s'", self->field);
    return fail(scope, message, "");
  }
  rxd_text text = host->text(scope, &value);
  size_t characters = 0;
  for (size_t index = 0; index < text.count; index++) {
    // Each byte but 10xxxxxx begins a character.
    if (((unsigned char)text.bytes[index] & 0xC0) == 0x80 || characters++ < self->to) continue;
    rxd_value cut = host->make_text(scope, (rxd_text){text.bytes, index});
    *event = host->with_member(scope, event, text_of(self->field), &cut);
    break;
  }
  return RXD_OK;
}

// ---- exampleRunningSum: a stream operator with state ----

typedef struct {
  char *field, *as;
  int64_t sum;
} running_sum;

static void running_sum_close(void *instance) {
  running_sum *self = instance;
  free(self->field);
  free(self->as);
  free(self);
}

static int running_sum_open(const rxd_opening *opening, void **instance) {
  running_sum *self = calloc(1, sizeof *self);
  if (self == NULL) return out_of_memory(opening->scope);
  self->field = text_parameter(opening, "field");
  self->as = text_parameter(opening, "as");
  if (self->field == NULL || self->as == NULL) {
    running_sum_close(self);
    return out_of_memory(opening->scope);
  }
  if (opening->state.bytes != NULL && opening->state_version == 1) {
    char *saved = copy(opening->state);
    if (saved != NULL) self->sum = strtoll(saved, NULL, 10);
    free(saved);
  }
  *instance = self;
  return RXD_OK;
}

static int running_sum_process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  running_sum *self = instance;
  for (size_t index = 0; index < batch->count; index++) {
    // A newer rxd may have longer inputs.
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + index * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    rxd_value value = host->member(scope, &input->event, text_of(self->field));
    int64_t sum;
    if (host->kind(&value) != RXD_INT) {
      char message[200];
      snprintf(message, sizeof message, "no whole number '%.100s'", self->field);
      host->reject(output, index, text_of(message));
    } else if (__builtin_add_overflow(self->sum, host->integer(&value), &sum)) {
      host->reject(output, index, RXD_TEXT_OF("the sum needs more than 64 bits"));
    } else {
      self->sum = sum;
      rxd_value with = host->make_int(sum);
      rxd_value event = host->with_member(scope, &input->event, text_of(self->as), &with);
      host->send(output, index, &event);
    }
  }
  return RXD_OK;
}

static int running_sum_save(void *instance, rxd_scope *scope, rxd_bytes *state) {
  const running_sum *self = instance;
  char digits[32];
  snprintf(digits, sizeof digits, "%lld", (long long)self->sum);
  return hand_over(scope, state, strdup(digits));
}

// ---- exampleDebounce: a stream operator with a timer ----
// Values end with the call, so the held event is encoded in between. rxd keeps the timer itself, also in a saved state.

typedef struct {
  int64_t quiet;
  rxd_text held;  // `bytes` is NULL: none
} debounce;

static void debounce_forget(debounce *self) {
  free((char *)self->held.bytes);
  self->held = (rxd_text){NULL, 0};
}

static void debounce_close(void *instance) {
  debounce_forget(instance);
  free(instance);
}

static int debounce_hold(debounce *self, rxd_text encoded) {
  debounce_forget(self);
  char *bytes = copy(encoded);
  if (bytes == NULL) return RXD_FAILED;
  self->held = (rxd_text){bytes, encoded.count};
  return RXD_OK;
}

static int debounce_open(const rxd_opening *opening, void **instance) {
  debounce *self = calloc(1, sizeof *self);
  if (self == NULL) return out_of_memory(opening->scope);
  rxd_value quiet = parameter(opening, "quiet");
  self->quiet = host->integer(&quiet);
  if (opening->state.count > 0 && opening->state_version == 1 && debounce_hold(self, opening->state) != RXD_OK) {
    debounce_close(self);
    return out_of_memory(opening->scope);
  }
  *instance = self;
  return RXD_OK;
}

static void debounce_send_held(debounce *self, rxd_scope *scope, rxd_output *output, size_t index) {
  rxd_value event;
  if (self->held.bytes != NULL && host->decode(scope, self->held, &event) == RXD_OK) host->send(output, index, &event);
  debounce_forget(self);
}

static int debounce_process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  debounce *self = instance;
  for (size_t index = 0; index < batch->count; index++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + index * batch->input_size);
    switch (input->kind) {
      case RXD_EVENT:
        if (debounce_hold(self, host->encode(scope, &input->event)) != RXD_OK) return out_of_memory(scope);
        host->timer(output, RXD_TEXT_OF("quiet"), self->quiet);
        break;
      case RXD_TIMER: debounce_send_held(self, scope, output, index); break;
      case RXD_COMPLETE:
        host->timer(output, RXD_TEXT_OF("quiet"), -1);
        debounce_send_held(self, scope, output, index);
        break;
      default: break;
    }
  }
  return RXD_OK;
}

static int debounce_save(void *instance, rxd_scope *scope, rxd_bytes *state) {
  (void)scope;
  const debounce *self = instance;
  // rxd copies the state before the next call, so the instance keeps it.
  *state = (rxd_bytes){self->held.bytes == NULL ? "" : self->held.bytes, self->held.count, NULL, NULL};
  return RXD_OK;
}

// ---- exampleCounter: a source with a position ----

typedef struct {
  int64_t n, to, every;
} counter;

static int counter_open(const rxd_opening *opening, void **instance) {
  counter *self = calloc(1, sizeof *self);
  if (self == NULL) return out_of_memory(opening->scope);
  rxd_value to = parameter(opening, "to"), every = parameter(opening, "every");
  self->to = host->kind(&to) == RXD_ABSENT ? INT64_MAX : host->integer(&to);
  self->every = host->integer(&every);
  if (opening->position.bytes != NULL) {
    char *position = copy(opening->position);
    if (position != NULL) self->n = strtoll(position, NULL, 10);
    free(position);
  }
  *instance = self;
  return RXD_OK;
}

static int counter_run(void *instance, rxd_scope *scope, rxd_source *source) {
  (void)scope;
  counter *self = instance;
  const rxd_text names[] = {RXD_TEXT_OF("n")};
  while (self->n < self->to && !host->is_stopping(source)) {
    if (self->every > 0 && self->n > 0) {
      // Sleeps, but not when the source is to stop.
      struct pollfd wake = {.fd = host->wake_descriptor(source), .events = POLLIN};
      int64_t milliseconds = (self->every + 999999) / 1000000;
      poll(&wake, 1, milliseconds > 3600000 ? 3600000 : (int)milliseconds);
      if (host->is_stopping(source)) break;
    }
    self->n++;
    rxd_value value = host->make_int(self->n);
    rxd_value event = host->make_object(host->source_scope(source), names, &value, 1);
    if (host->add(source, &event, 0) == RXD_STOP) return RXD_OK;
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)self->n);
    host->position(source, text_of(digits));
    // Otherwise `add` hands over 1,024 at once.
    if (self->every > 0 && host->flush(source) == RXD_STOP) return RXD_OK;
  }
  host->flush(source);
  return RXD_OK;
}

// ---- exampleLog: a sink that confirms what is on the disk ----

typedef struct {
  char *field;
  int file;
  off_t size;  // of whole lines
} log_file;

static void log_close(void *instance) {
  log_file *self = instance;
  if (self->file >= 0) close(self->file);
  free(self->field);
  free(self);
}

static int log_open(const rxd_opening *opening, void **instance) {
  log_file *self = calloc(1, sizeof *self);
  if (self == NULL) return out_of_memory(opening->scope);
  self->field = text_parameter(opening, "field");
  char *path = text_parameter(opening, "path");
  self->file = path == NULL ? -1 : open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  free(path);
  struct stat status;
  if (self->file < 0 || fstat(self->file, &status) != 0) {
    char message[200];
    snprintf(message, sizeof message, "cannot open the file: %s", strerror(errno));
    log_close(self);
    return fail(opening->scope, message, "path");
  }
  self->size = status.st_size;
  // A line that a crash has torn is ended, so that it does not spoil the next one.
  char last = '\n';
  if (self->size > 0 && pread(self->file, &last, 1, self->size - 1) == 1 && last != '\n' && write(self->file, "\n", 1) == 1)
    self->size++;
  *instance = self;
  return RXD_OK;
}

/// 0 or -1 with `errno`.
static int write_all(int file, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(file, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return -1;
    bytes += written;
    count -= (size_t)written;
  }
  return 0;
}

static int log_write(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  log_file *self = instance;
  char *lines = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&lines, &length);
  if (stream == NULL) return out_of_memory(scope);
  for (size_t index = 0; index < batch->count; index++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + index * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    if (self->field != NULL) {
      rxd_value value = host->member(scope, &input->event, text_of(self->field));
      if (host->kind(&value) == RXD_ABSENT) {
        char message[200];
        snprintf(message, sizeof message, "no member '%.100s'", self->field);
        host->refuse(verdicts, index, text_of(message));
        continue;
      }
    }
    rxd_text json = host->json(scope, &input->event);
    fwrite(json.bytes, 1, json.count, stream);
    fputc('\n', stream);
  }
  if (fclose(stream) != 0) {
    free(lines);
    return out_of_memory(scope);
  }
  int status = RXD_OK;
  if (write_all(self->file, lines, length) != 0 || (length > 0 && fdatasync(self->file) != 0)) {
    char message[200];
    snprintf(message, sizeof message, "cannot write the file: %s", strerror(errno));
    // The whole batch comes again, so nothing of it stays.
    if (ftruncate(self->file, self->size) != 0) self->size = lseek(self->file, 0, SEEK_END);
    host->fail(scope, text_of(message), text_of(""));
    status = RXD_RETRY;
  } else {
    self->size += (off_t)length;
  }
  free(lines);
  return status;
}

// ---- The plugin ----

static const rxd_component components[] = {
    {.size = sizeof(rxd_component), .name = {"exampleShorten", 14}, .kind = {"operator", 8},
     .open = shorten_open, .close = shorten_close, .row = shorten_row},
    {.size = sizeof(rxd_component), .name = {"exampleRunningSum", 17}, .kind = {"operator", 8},
     .open = running_sum_open, .close = running_sum_close, .process = running_sum_process, .save = running_sum_save},
    {.size = sizeof(rxd_component), .name = {"exampleDebounce", 15}, .kind = {"operator", 8},
     .open = debounce_open, .close = debounce_close, .process = debounce_process, .save = debounce_save},
    {.size = sizeof(rxd_component), .name = {"exampleCounter", 14}, .kind = {"source", 6},
     .open = counter_open, .close = free, .run = counter_run},
    {.size = sizeof(rxd_component), .name = {"exampleLog", 10}, .kind = {"sink", 4},
     .open = log_open, .close = log_close, .write = log_write},
};

static const rxd_plugin plugin = {
    .size = sizeof(rxd_plugin),
    .component_count = sizeof components / sizeof components[0],
    .components = components,
    .component_size = sizeof(rxd_component),
    .spec = {spec, sizeof spec - 1},
};

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  if (contract < RXD_CONTRACT || offered->size < sizeof(rxd_host)) {
    *problem = RXD_TEXT_OF("this plugin needs a newer rxd");
    return RXD_FAILED;
  }
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
