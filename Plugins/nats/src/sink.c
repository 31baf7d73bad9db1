/* The sinks `nats`, `natsStream` and `natsKV`: they differ in the message made from an event, and in who confirms
 * it. */
#include "publish.h"

typedef struct sink {
  publisher publisher;
  char *stream; /* for `natsStream` */
  char *bucket; /* for `natsKV` */
  bool purges;
} sink;

/* The template and expression parameters, in the order of the spec. */
enum { SUBJECT, VALUE, HEADERS, ID };     /* `nats` has no ID */
enum { KEY, KEY_VALUE, RETRACTED };       /* for `natsKV` */

/* ---- Messages ---- */

__attribute__((format(printf, 2, 3))) static void *refuse(char *problem, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem, PROBLEM_MOST, format, arguments);
  va_end(arguments);
  return NULL;
}

static natsMsg *new_message(const char *subject, const char *reply, rxd_text value, char *problem) {
  natsMsg *message = NULL;
  if (value.count > INT32_MAX) return refuse(problem, "the message has more than 2 GiB");
  natsStatus status = natsMsg_Create(&message, subject, reply, value.count > 0 ? value.bytes : "", (int)value.count);
  return status == NATS_OK ? message : refuse(problem, "the message cannot be made: %s", natsStatus_GetText(status));
}

/* A line break would end the header. */
static bool is_header_value(rxd_text text) {
  for (size_t i = 0; i < text.count; i++)
    if (text.bytes[i] == '\r' || text.bytes[i] == '\n' || text.bytes[i] == 0) return false;
  return true;
}

static bool is_header_name(rxd_text text) {
  for (size_t i = 0; i < text.count; i++)
    if (text.bytes[i] <= ' ' || text.bytes[i] == 127 || text.bytes[i] == ':') return false;
  return text.count > 0;
}

static bool add_header(natsMsg *message, rxd_text name_text, rxd_text value_text, char *problem) {
  if (!is_header_name(name_text) || !is_header_value(value_text)) {
    refuse(problem, "the header '%.*s' has a name or a value that headers cannot have",
           (int)(name_text.count < 80 ? name_text.count : 80), name_text.bytes);
    return false;
  }
  char *name = copy_text(name_text), *value = copy_text(value_text);
  natsStatus status = natsMsgHeader_Add(message, name, value);
  free(name);
  free(value);
  if (status != NATS_OK) refuse(problem, "a header cannot be set: %s", natsStatus_GetText(status));
  return status == NATS_OK;
}

/* Adds the members of an object as headers; a list repeats its header. */
static bool add_headers(natsMsg *message, rxd_scope *scope, const rxd_value *headers, char *problem) {
  int kind = host->kind(headers);
  if (kind == RXD_ABSENT || kind == RXD_NULL) return true;
  if (kind != RXD_OBJECT) {
    refuse(problem, "'headers' must be an object or null, and is something else for this event");
    return false;
  }
  for (size_t i = 0; i < host->count(scope, headers); i++) {
    rxd_text name;
    rxd_value value = host->entry(scope, headers, i, &name);
    if (host->kind(&value) != RXD_LIST) {
      if (!add_header(message, name, bytes_of_value(scope, &value), problem)) return false;
      continue;
    }
    for (size_t j = 0; j < host->count(scope, &value); j++) {
      rxd_value element = host->element(scope, &value, j);
      if (!add_header(message, name, bytes_of_value(scope, &element), problem)) return false;
    }
  }
  return true;
}

static rxd_text value_of(rxd_scope *scope, const rxd_input *input, uint32_t index) {
  rxd_text value;
  return argument(scope, input, index, &value) ? value : bytes_of_value(scope, &input->event);
}

static natsMsg *subject_message(rxd_scope *scope, const rxd_input *input, const char *reply, char *problem) {
  rxd_text subject;
  if (!argument(scope, input, SUBJECT, &subject) || !is_subject(subject, false))
    return refuse(problem, "'subject' must be a subject without wildcards, spaces and empty parts");
  char *copy = copy_text(subject);
  natsMsg *message = new_message(copy, reply, value_of(scope, input, VALUE), problem);
  free(copy);
  if (message == NULL || input->argument_count <= HEADERS) return message;
  if (add_headers(message, scope, &input->arguments[HEADERS], problem)) return message;
  natsMsg_Destroy(message);
  return NULL;
}

static natsMsg *core_message(void *opaque, rxd_scope *scope, const rxd_input *input, const char *reply, char *problem) {
  (void)opaque;
  return subject_message(scope, input, reply, problem);
}

static natsMsg *stream_message(void *opaque, rxd_scope *scope, const rxd_input *input, const char *reply,
                               char *problem) {
  sink *self = opaque;
  rxd_text id;
  natsMsg *message = subject_message(scope, input, reply, problem);
  if (message == NULL) return NULL;
  bool is_made = add_header(message, RXD_TEXT_OF("Nats-Expected-Stream"), text_of(self->stream), problem);
  if (is_made && argument(scope, input, ID, &id) && id.count > 0)
    is_made = add_header(message, RXD_TEXT_OF("Nats-Msg-Id"), id, problem);
  if (is_made) return message;
  natsMsg_Destroy(message);
  return NULL;
}

/* Whether the text is a valid key: letters, digits and - / _ =, in parts separated by dots. */
static bool is_key(rxd_text key) {
  if (!is_subject(key, false)) return false;
  for (size_t i = 0; i < key.count; i++)
    if (!isalnum((unsigned char)key.bytes[i]) && strchr("-/_=.", key.bytes[i]) == NULL) return false;
  return true;
}

static natsMsg *key_message(void *opaque, rxd_scope *scope, const rxd_input *input, const char *reply, char *problem) {
  sink *self = opaque;
  rxd_text key, nothing = {"", 0};
  bool is_retracted;
  if (!argument(scope, input, KEY, &key) || !is_key(key))
    return refuse(problem, "'key' must be parts of letters, digits and - / _ =, separated by dots");
  const char *wrong = retraction_problem(input, RETRACTED, &is_retracted);
  if (wrong != NULL) return refuse(problem, "%s", wrong);
  char *subject;
  if (asprintf(&subject, "$KV.%s.%.*s", self->bucket, (int)key.count, key.bytes) < 0) abort();
  natsMsg *message = new_message(subject, reply, is_retracted ? nothing : value_of(scope, input, KEY_VALUE), problem);
  free(subject);
  if (message == NULL || !is_retracted) return message;
  const char *operation = self->purges ? "PURGE" : "DEL";
  bool is_made = add_header(message, RXD_TEXT_OF("KV-Operation"), text_of(operation), problem);
  if (is_made && self->purges) is_made = add_header(message, RXD_TEXT_OF("Nats-Rollup"), RXD_TEXT_OF("sub"), problem);
  if (is_made) return message;
  natsMsg_Destroy(message);
  return NULL;
}

/* ---- Components ---- */

static void sink_close(void *opaque) {
  sink *self = opaque;
  publisher_close(&self->publisher);
  free(self->stream);
  free(self->bucket);
  free(self);
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  return publisher_write(&self->publisher, scope, batch, verdicts);
}

static int open_with(const rxd_opening *opening, make_message *make, int (*read)(const rxd_opening *, sink *),
                     void **instance) {
  sink *self = need(calloc(1, sizeof *self));
  int status = publisher_open(opening, &self->publisher, make, self);
  if (status == RXD_OK && read != NULL) status = read(opening, self);
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static int read_stream(const rxd_opening *opening, sink *self) {
  int status = name_parameter(opening, "stream", &self->stream);
  if (status == RXD_OK) self->publisher.stream = need(strdup(self->stream));
  return status;
}

static int read_bucket(const rxd_opening *opening, sink *self) {
  int status = bucket_parameter(opening, &self->bucket);
  if (status != RXD_OK) return status;
  self->purges = boolean_parameter(opening, "purge");
  self->publisher.client.bucket = self->bucket;
  if (asprintf(&self->publisher.stream, "KV_%s", self->bucket) < 0) abort();
  return RXD_OK;
}

static int core_open(const rxd_opening *opening, void **instance) {
  return open_with(opening, core_message, NULL, instance);
}

static int stream_open(const rxd_opening *opening, void **instance) {
  return open_with(opening, stream_message, read_stream, instance);
}

static int key_open(const rxd_opening *opening, void **instance) {
  return open_with(opening, key_message, read_bucket, instance);
}

const rxd_component nats_sink = {
  .size = sizeof(rxd_component),
  .name = {"nats", 4},
  .kind = {"sink", 4},
  .open = core_open,
  .close = sink_close,
  .write = sink_write,
};

const rxd_component nats_stream_sink = {
  .size = sizeof(rxd_component),
  .name = {"natsStream", 10},
  .kind = {"sink", 4},
  .open = stream_open,
  .close = sink_close,
  .write = sink_write,
};

const rxd_component nats_kv_sink = {
  .size = sizeof(rxd_component),
  .name = {"natsKV", 6},
  .kind = {"sink", 4},
  .open = key_open,
  .close = sink_close,
  .write = sink_write,
};
