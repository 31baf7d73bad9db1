/* The component of the plugin. */
#include "collectd.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

static const char standard_types[] = "/usr/share/collectd/types.db";

static void decoder_close(void *instance) {
  reading *self = instance;
  free_types(&self->types);
  free_users(&self->users);
  free(self);
}

static int open_types(const rxd_opening *opening, reading *self) {
  char problem[400], at[32];
  rxd_value list = parameter(opening, "types");
  if (!is_given(opening, "types"))
    return access(standard_types, R_OK) != 0 || read_types(standard_types, &self->types, problem, sizeof problem) == NULL
               ? RXD_OK
               : fail_at(opening->scope, "types", "%s", problem);
  size_t count = host->count(opening->scope, &list);
  for (size_t i = 0; i < count; i++) {
    rxd_value path = host->element(opening->scope, &list, i);
    rxd_text text = host->text(opening->scope, &path);
    snprintf(at, sizeof at, "types.%zu", i);
    if (text.count == 0 || memchr(text.bytes, 0, text.count) != NULL) return fail_at(opening->scope, at, "must be the path of a file");
    char *copy = copy_text(text);
    const char *wrong = read_types(copy, &self->types, problem, sizeof problem);
    free(copy);
    if (wrong != NULL) return fail_at(opening->scope, at, "%s", wrong);
  }
  return RXD_OK;
}

static int open_users(const rxd_opening *opening, reading *self) {
  char *path, problem[400];
  if (text_parameter(opening, "users", &path) != RXD_OK) return RXD_FAILED;
  self->has_users = path != NULL;
  const char *wrong = path == NULL ? NULL : read_users(path, &self->users, problem, sizeof problem);
  free(path);
  if (wrong != NULL) return fail_at(opening->scope, "users", "%s", wrong);
  if (!is_given(opening, "security")) self->security = self->has_users ? SECURITY_SIGN : SECURITY_NONE;
  else if (choice_is(opening, "security", "encrypt")) self->security = SECURITY_ENCRYPT;
  else if (choice_is(opening, "security", "sign")) self->security = SECURITY_SIGN;
  if (self->security != SECURITY_NONE && !self->has_users) return fail_at(opening->scope, "security", "needs 'users', the file with their passwords");
  return RXD_OK;
}

static int decoder_open(const rxd_opening *opening, void **instance) {
  reading *self = need(calloc(1, sizeof *self));
  int status = open_types(opening, self);
  if (status == RXD_OK) status = open_users(opening, self);
  if (status == RXD_OK) *instance = self;
  else decoder_close(self);
  return status;
}

static int decoder_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  value_stack events = {0};
  int status = decode_packet(instance, scope, host->text(scope, event), &events);
  if (status == RXD_OK) *event = pop_list(scope, &events, 0);
  free_values(&events);
  return status;
}

static const rxd_component components[] = {{NAMED("decoder", "collectd"), .open = decoder_open, .close = decoder_close, .row = decoder_row}};

#include "format_entry.h"
