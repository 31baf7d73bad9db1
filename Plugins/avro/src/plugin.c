/* The components of the plugin. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "avro_format.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

#define MOST_SCHEMA (4 << 20)

typedef enum { FRAMING_DATUM, FRAMING_SINGLE_OBJECT, FRAMING_CONFLUENT, FRAMING_CONTAINER } framing;

typedef struct {
  framing framing;
  avro_schema *schema;   /* the reader's or encoder's schema; NULL: the writer's */
  avro_schema **writers; /* additional writer schemas */
  size_t writer_count;
  const plan **plans;    /* one for `schema`, then one for each writer schema */
  arena plan_memory;
  registry *registry;
  registry_settings settings;
  uint64_t limit;
  uint32_t schema_id;
  bool ignores_unknown;
  char *into; /* operator only: the member that receives the value */
} format;

static void close_format(void *instance) {
  format *self = instance;
  close_registry(self->registry);
  free_schema(self->schema);
  for (size_t i = 0; i < self->writer_count; i++) free_schema(self->writers[i]);
  free(self->writers);
  free(self->plans);
  arena_free(&self->plan_memory);
  free((char *)self->settings.url);
  free((char *)self->settings.user);
  free_secret((char *)self->settings.password);
  free((char *)self->settings.ca_file);
  free(self->into);
  free(self);
}

static avro_schema *read_schema(rxd_scope *scope, const char *path, const char *at) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  avro_schema *made = NULL;
  if (file < 0 || fstat(file, &status) != 0) {
    fail_at(scope, at, "'%.200s' cannot be read: %s", path, strerror(errno));
  } else if (!S_ISREG(status.st_mode)) {
    fail_at(scope, at, "'%.200s' is not a regular file", path);
  } else if (status.st_size > MOST_SCHEMA) {
    fail_at(scope, at, "'%.200s' has more than 4 MiB", path);
  } else {
    char *bytes = need(malloc((size_t)status.st_size + 1));
    size_t count = 0;
    while (count < (size_t)status.st_size) {
      ssize_t got = read(file, bytes + count, (size_t)status.st_size - count);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      count += (size_t)got;
    }
    made = parse_schema_text(scope, (rxd_text){bytes, count}, at);
    free(bytes);
  }
  if (file >= 0) close(file);
  return made;
}

/* Reads the parameters `schema` and `schemaFile`. */
static int open_schema(const rxd_opening *opening, format *self) {
  rxd_scope *scope = opening->scope;
  rxd_value schema = parameter(opening, "schema");
  bool is_inline = host->kind(&schema) != RXD_ABSENT && host->kind(&schema) != RXD_NULL;
  char *path;
  if (text_parameter(opening, "schemaFile", &path) != RXD_OK) return RXD_FAILED;
  if (is_inline && path != NULL) {
    free(path);
    return fail_at(scope, "schemaFile", "cannot be combined with 'schema'; leave one of them out");
  }
  if (!is_inline && path == NULL) return RXD_OK;
  self->schema = is_inline ? parse_schema(scope, &schema, "schema") : read_schema(scope, path, "schemaFile");
  free(path);
  return self->schema == NULL ? RXD_FAILED : RXD_OK;
}

static int open_settings(const rxd_opening *opening, format *self) {
  if (text_parameter(opening, "registry", (char **)&self->settings.url) != RXD_OK || text_parameter(opening, "user", (char **)&self->settings.user) != RXD_OK ||
      text_parameter(opening, "password", (char **)&self->settings.password) != RXD_OK || text_parameter(opening, "caFile", (char **)&self->settings.ca_file) != RXD_OK)
    return RXD_FAILED;
  self->settings.timeout_ms = milliseconds_parameter(opening, "timeout", 5000);
  char *url = (char *)self->settings.url;
  if (url == NULL) return RXD_OK;
  if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) return fail_at(opening->scope, "registry", "must begin with http:// or https://");
  if (strchr(url, '@') != NULL) return fail_at(opening->scope, "registry", "must not contain a user or a password; use 'user' and 'password'");
  size_t length = strlen(url);
  while (length > 0 && url[length - 1] == '/') url[--length] = 0;
  return RXD_OK;
}

static int open_writers(const rxd_opening *opening, format *self) {
  rxd_scope *scope = opening->scope;
  rxd_value files = parameter(opening, "writerSchemas");
  size_t count = host->kind(&files) == RXD_LIST ? host->count(scope, &files) : 0;
  self->writers = need(calloc(count + 1, sizeof *self->writers));
  for (size_t i = 0; i < count; i++) {
    char at[40];
    snprintf(at, sizeof at, "writerSchemas.%zu", i);
    rxd_value one = host->element(scope, &files, i);
    rxd_text text = host->text(scope, &one);
    if (text.count > 0 && memchr(text.bytes, 0, text.count) != NULL) return fail_at(scope, at, "must not contain a zero byte");
    char *path = copy_text(text);
    self->writers[i] = read_schema(scope, path, at);
    free(path);
    if (self->writers[i] == NULL) return RXD_FAILED;
    self->writer_count++;
  }
  return RXD_OK;
}

/* Reads the parameters of the decoder alone. */
static int open_reading(const rxd_opening *opening, format *self) {
  rxd_scope *scope = opening->scope;
  if (open_writers(opening, self) != RXD_OK || text_parameter(opening, "into", &self->into) != RXD_OK) return RXD_FAILED;
  self->limit = (uint64_t)integer_parameter(opening, "limit", 64 << 20);
  bool has_writers = self->framing == FRAMING_DATUM || self->framing == FRAMING_SINGLE_OBJECT;
  if (!has_writers && self->writer_count > 0) return fail_at(scope, "writerSchemas", "is only for the framings 'datum' and 'singleObject'");
  if (self->framing == FRAMING_DATUM && self->writer_count > 1) return fail_at(scope, "writerSchemas", "has several schemas, and 'framing: datum' does not say which one wrote a value");
  if (has_writers && self->schema == NULL && self->writer_count == 0) return fail_at(scope, "", "needs 'schema' or 'schemaFile'");
  if (self->framing == FRAMING_CONFLUENT) {
    if (self->settings.url == NULL) return fail_at(scope, "registry", "is needed with 'framing: confluent'");
    self->registry = open_registry(&self->settings, self->schema);
  } else if (self->settings.url != NULL) {
    return fail_at(scope, "registry", "is only for 'framing: confluent'");
  }
  if (!has_writers) return RXD_OK;
  self->plans = need(calloc(self->writer_count + 1, sizeof *self->plans));
  for (size_t i = 0; i <= self->writer_count; i++) {
    const avro_schema *writer = i == 0 ? self->schema : self->writers[i - 1];
    if (writer == NULL) continue;
    self->plans[i] = make_plan(&self->plan_memory, writer->root, self->schema != NULL ? self->schema->root : writer->root);
    if (self->plans[i]->problem != NULL) {
      char at[40];
      snprintf(at, sizeof at, "writerSchemas.%zu", i - 1);
      return fail_at(scope, at, "%s", self->plans[i]->problem);
    }
  }
  return RXD_OK;
}

/* Reads the parameters of the encoder alone. */
static int open_writing(const rxd_opening *opening, format *self) {
  rxd_scope *scope = opening->scope;
  self->ignores_unknown = choice_is(opening, "unknown", "ignore");
  self->schema_id = (uint32_t)integer_parameter(opening, "schemaId", 0);
  if (self->framing != FRAMING_CONFLUENT) {
    if (self->settings.url != NULL) return fail_at(scope, "registry", "is only for 'framing: confluent'");
    return self->schema != NULL ? RXD_OK : fail_at(scope, "", "needs 'schema' or 'schemaFile'");
  }
  if (self->schema != NULL)
    return is_given(opening, "schemaId") ? RXD_OK : fail_at(scope, "schemaId", "is needed with a schema of the file: the number that the registry has given it");
  char *subject, problem[400] = "";
  if (text_parameter(opening, "subject", &subject) != RXD_OK) return RXD_FAILED;
  if (self->settings.url == NULL || subject == NULL) {
    free(subject);
    return fail_at(scope, "", "needs a schema and 'schemaId', or 'registry' and 'subject'");
  }
  char *body = newest_schema(&self->settings, subject, problem, sizeof problem);
  free(subject);
  if (body == NULL) return fail_at(scope, "registry", "%s", problem);
  rxd_value json;
  int status = host->parse_json(scope, text_of(body), &json);
  free(body);
  rxd_value id = status == RXD_OK ? host->member(scope, &json, RXD_TEXT_OF("id")) : host->make_null();
  rxd_value text = status == RXD_OK ? host->member(scope, &json, RXD_TEXT_OF("schema")) : host->make_null();
  if (host->kind(&id) != RXD_INT || host->kind(&text) != RXD_TEXT) return fail_at(scope, "registry", "the answer of the registry has no schema with a number");
  self->schema_id = (uint32_t)host->integer(&id);
  self->schema = parse_schema_text(scope, host->text(scope, &text), "registry");
  return self->schema != NULL ? RXD_OK : RXD_FAILED;
}

static int open_format(const rxd_opening *opening, void **instance, int (*open_rest)(const rxd_opening *, format *)) {
  format *self = need(calloc(1, sizeof *self));
  self->framing = choice_is(opening, "framing", "singleObject") ? FRAMING_SINGLE_OBJECT
                  : choice_is(opening, "framing", "confluent")  ? FRAMING_CONFLUENT
                  : choice_is(opening, "framing", "container")  ? FRAMING_CONTAINER
                                                                : FRAMING_DATUM;
  if (open_schema(opening, self) == RXD_OK && open_settings(opening, self) == RXD_OK && open_rest(opening, self) == RXD_OK) {
    *instance = self;
    return RXD_OK;
  }
  close_format(self);
  return RXD_FAILED;
}

static int open_decoder(const rxd_opening *opening, void **instance) { return open_format(opening, instance, open_reading); }
static int open_encoder(const rxd_opening *opening, void **instance) { return open_format(opening, instance, open_writing); }

static uint64_t little_64(const char *at) {
  uint64_t number;
  memcpy(&number, at, 8);
  return le64toh(number);
}

/* Reads the header and returns the plan for the value after it. NULL: `fail` was called. */
static const plan *plan_of_input(const format *self, avro_reader *reader) {
  size_t left = (size_t)(reader->end - reader->at);
  if (self->framing == FRAMING_DATUM) return self->plans[self->writer_count > 0 ? 1 : 0];
  if (self->framing == FRAMING_CONFLUENT) {
    if (left < 5 || *reader->at != 0) {
      refuse_input(reader, NULL, left < 5 ? "the input is too short for the number of a schema" : "the first byte is not 0, with which Confluent's messages begin");
      return NULL;
    }
    const unsigned char *id = (const unsigned char *)reader->at + 1;
    reader->at += 5;
    return registry_plan(self->registry, reader->scope, (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3]);
  }
  if (left < 10 || memcmp(reader->at, "\xc3\x01", 2) != 0) {
    refuse_input(reader, NULL, left < 10 ? "the input is too short for the fingerprint of a schema" : "the input does not begin as a single object does");
    return NULL;
  }
  uint64_t fingerprint = little_64(reader->at + 2);
  for (size_t i = 0; i <= self->writer_count; i++) {
    const avro_schema *writer = i == 0 ? self->schema : self->writers[i - 1];
    if (writer == NULL || writer->fingerprint != fingerprint) continue;
    reader->at += 10;
    return self->plans[i];
  }
  refuse_input(reader, NULL, "none of the schemas has the fingerprint %016llx", (unsigned long long)fingerprint);
  return NULL;
}

static int decode_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  format *self = instance;
  rxd_text input = host->text(scope, event);
  if (input.count == 0) input.bytes = "";
  if (self->framing == FRAMING_CONTAINER) return decode_container(scope, self->schema, input, self->limit, event);
  avro_reader reader = {.scope = scope, .begin = input.bytes, .at = input.bytes, .end = input.bytes + input.count, .what = "", .values_left = VALUES_OF(input.count)};
  const plan *plan = plan_of_input(self, &reader);
  rxd_value value;
  bool is_good = plan != NULL && read_value(&reader, plan, &value);
  if (is_good && reader.at != reader.end) is_good = refuse_input(&reader, NULL, "%zu bytes follow the value", (size_t)(reader.end - reader.at));
  if (is_good) *event = host->make_list(scope, &value, 1);
  free_values(&reader.stack);
  return is_good ? RXD_OK : RXD_FAILED;
}

/* Operator: decodes bytes of the event into a member. */
static int decode_member(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  const format *self = instance;
  return decode_within(scope, event, &arguments[0], decode_row, instance, text_of(self->into));
}

static int encode_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  format *self = instance;
  output_bytes output;
  begin_output(&output);
  if (self->framing == FRAMING_SINGLE_OBJECT) {
    uint64_t little = htole64(self->schema->fingerprint);
    output_append(&output, "\xc3\x01", 2);
    output_append(&output, (const char *)&little, 8);
  } else if (self->framing == FRAMING_CONFLUENT) {
    uint32_t big = htobe32(self->schema_id);
    output_append(&output, "\0", 1);
    output_append(&output, (const char *)&big, 4);
  }
  bool is_good = write_value(scope, self->schema->root, event, self->ignores_unknown, false, &output);
  if (is_good) *event = host->make_bytes(scope, (rxd_text){output.bytes, output.count});
  free_output(&output);
  return is_good ? RXD_OK : RXD_FAILED;
}

static const rxd_component components[] = {
    {NAMED("decoder", "avro"), .open = open_decoder, .close = close_format, .row = decode_row},
    {NAMED("encoder", "avro"), .open = open_encoder, .close = close_format, .row = encode_row},
    {NAMED("operator", "avroDecode"), .open = open_decoder, .close = close_format, .row = decode_member},
};

#include "format_entry.h"
