/* The components of the plugin. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "protobuf_format.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

#define MOST_BYTES ((int64_t)256 << 20)

/* Reads a file; returns NULL, and the reason, after a failure. */
static char *read_file(const char *path, size_t *count, char *problem, size_t capacity) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  char *bytes = NULL;
  if (file < 0 || fstat(file, &status) != 0) {
    snprintf(problem, capacity, "'%.200s' cannot be read: %s", path, strerror(errno));
  } else if (!S_ISREG(status.st_mode)) {
    snprintf(problem, capacity, "'%.200s' is not a regular file", path);
  } else if (status.st_size > MOST_BYTES) {
    snprintf(problem, capacity, "'%.200s' has more than 256 MiB", path);
  } else {
    bytes = need(malloc((size_t)status.st_size + 1));
    *count = 0;
    while (*count < (size_t)status.st_size) {
      ssize_t got = read(file, bytes + *count, (size_t)status.st_size - *count);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        snprintf(problem, capacity, "'%.200s' cannot be read: %s", path, strerror(errno));
        free(bytes);
        bytes = NULL;
      }
      if (got <= 0) break;
      *count += (size_t)got;
    }
  }
  if (file >= 0) close(file);
  return bytes;
}

static void close_format(void *instance) {
  format *self = instance;
  free_schema(self->schema);
  free(self->into);
  free(self);
}

static int open_format(const rxd_opening *opening, void **instance) {
  rxd_scope *scope = opening->scope;
  rxd_value proto = parameter(opening, "proto"), message = parameter(opening, "message");
  bool has_proto = is_given(opening, "proto");
  rxd_text text = host->text(scope, &proto), name = host->text(scope, &message);
  char *path, *bytes = NULL, problem[400] = "";
  size_t count = 0;
  if (text_parameter(opening, "descriptors", &path) != RXD_OK) return RXD_FAILED;
  if ((path != NULL) == has_proto) {
    free(path);
    return fail_at(scope, has_proto ? "proto" : "", "needs either 'descriptors' or 'proto'");
  }
  if (path != NULL) {
    bytes = read_file(path, &count, problem, sizeof problem);
    free(path);
    if (bytes == NULL) return fail_at(scope, "descriptors", "%s", problem);
  }
  format *self = need(calloc(1, sizeof *self));
  schema_problem found;
  self->schema = make_schema(bytes, count, has_proto ? (text.count == 0 ? "" : text.bytes) : NULL, text.count, choice_is(opening, "names", "json"), &found);
  free(bytes);
  if (self->schema == NULL) {
    free(self);
    return fail_at(scope, found.at, "%s", found.message);
  }
  self->type = find_message(self->schema, name);
  if (self->type == NULL) explain_missing(self->schema, name, &found);
  else if (self->type->known != KNOWN_NONE && self->type->known != KNOWN_STRUCT)
    snprintf(found.message, sizeof found.message, "'%.*s' is not an object in events; name a message that has it", shown_count(name), name.bytes);
  if (self->type == NULL || (self->type->known != KNOWN_NONE && self->type->known != KNOWN_STRUCT)) {
    close_format(self);
    return fail_at(scope, "message", "%s", found.message);
  }
  self->framing = choice_is(opening, "framing", "delimited") ? FRAMING_DELIMITED : choice_is(opening, "framing", "confluent") ? FRAMING_CONFLUENT : FRAMING_SINGLE;
  self->defaults = choice_is(opening, "defaults", "all") ? DEFAULTS_ALL : choice_is(opening, "defaults", "none") ? DEFAULTS_NONE : DEFAULTS_IMPLICIT;
  self->ignores_unknown = choice_is(opening, "unknown", "ignore");
  self->schema_id = (uint32_t)integer_parameter(opening, "schemaId", 0);
  if (text_parameter(opening, "into", &self->into) != RXD_OK) {
    close_format(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static int open_encoder(const rxd_opening *opening, void **instance) {
  if (choice_is(opening, "framing", "confluent") && !is_given(opening, "schemaId"))
    return fail_at(opening->scope, "schemaId", "is needed with 'framing: confluent': the number that the registry has given the schema");
  return open_format(opening, instance);
}

static int decode_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  return decode_input(scope, instance, host->text(scope, event), event);
}

/* Operator: decodes bytes of the event into a member. */
static int decode_member(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  const format *self = instance;
  return decode_within(scope, event, &arguments[0], decode_row, instance, text_of(self->into));
}

static int encode_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  output_bytes output;
  begin_output(&output);
  int status = encode_event(scope, instance, event, &output);
  if (status == RXD_OK) *event = host->make_bytes(scope, (rxd_text){output.bytes, output.count});
  free_output(&output);
  return status;
}

static const rxd_component components[] = {
    {NAMED("decoder", "protobuf"), .open = open_format, .close = close_format, .row = decode_row},
    {NAMED("encoder", "protobuf"), .open = open_encoder, .close = close_format, .row = encode_row},
    {NAMED("operator", "protobufDecode"), .open = open_format, .close = close_format, .row = decode_member},
};

#include "format_entry.h"
