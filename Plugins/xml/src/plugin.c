/* The components of the plugin. */
#include "xml.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

static void decoder_close(void *instance) {
  reading *self = instance;
  for (size_t i = 0; i < self->list_count; i++) free((char *)(uintptr_t)self->lists[i].bytes);
  free(self->lists);
  free(self->records_text);
  free(self);
}

static int cut_records(const rxd_opening *opening, reading *self) {
  for (char *name = self->records_text, *end = name; end != NULL; name = end + 1) {
    end = strchr(name, '/');
    rxd_text one = {name, end == NULL ? strlen(name) : (size_t)(end - name)};
    if (one.count == 0 || self->record_depth == NAMES_MOST)
      return fail_at(opening->scope, "records", "must be at most %d names with '/' between them, from the root on", NAMES_MOST);
    self->records[self->record_depth++] = one;
  }
  return RXD_OK;
}

static int decoder_open(const rxd_opening *opening, void **instance) {
  reading *self = need(calloc(1, sizeof *self));
  int status = text_parameter(opening, "records", &self->records_text);
  if (status == RXD_OK && self->records_text != NULL) status = cut_records(opening, self);
  rxd_value lists = parameter(opening, "lists");
  size_t count = host->count(opening->scope, &lists);
  self->lists = need(calloc(count + 1, sizeof *self->lists));
  for (size_t i = 0; i < count && status == RXD_OK; i++) {
    rxd_value name = host->element(opening->scope, &lists, i);
    rxd_text text = host->text(opening->scope, &name);
    self->lists[self->list_count++] = (rxd_text){copy_text(text), text.count};
  }
  if (status == RXD_OK) *instance = self;
  else decoder_close(self);
  return status;
}

static int decoder_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  value_stack events = {0};
  rxd_text input = host->text(scope, event);
  int status = input.count == 0 ? RXD_OK : decode_xml(instance, scope, input, &events);
  if (status == RXD_OK) *event = pop_list(scope, &events, 0);
  free_values(&events);
  return status;
}

static int parse_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance;
  static const reading plain;
  value_stack events = {0};
  int status = decode_xml(&plain, scope, host->text(scope, &arguments[0]), &events);
  if (status == RXD_OK) *event = events.values[0];
  free_values(&events);
  return status;
}

static const rxd_component components[] = {
    {NAMED("decoder", "xml"), .open = decoder_open, .close = decoder_close, .row = decoder_row},
    {NAMED("function", "parse"), .row = parse_row},
};

#include "format_entry.h"
