/* The components of the plugin. */
#include "cef.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

static int open_cef(const rxd_opening *opening, void **instance) {
  reading *self = need(calloc(1, sizeof *self));
  *self = (reading){.renames = boolean_parameter(opening, "labels"), .is_strict = boolean_parameter(opening, "strict")};
  *instance = self;
  return RXD_OK;
}

/* Blank lines are skipped. */
static bool is_blank(rxd_text line) { return trimmed(line).count == 0; }

static int cef_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  rxd_text line = host->text(scope, event);
  return is_blank(line) ? RXD_DROP : decode_cef(instance, scope, line, event);
}

static int leef_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance, (void)arguments;
  rxd_text line = host->text(scope, event);
  return is_blank(line) ? RXD_DROP : decode_leef(scope, line, event);
}

static int parse_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance;
  static const reading plain;
  return decode_cef(&plain, scope, host->text(scope, &arguments[0]), event);
}

static int parse_leef_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance;
  return decode_leef(scope, host->text(scope, &arguments[0]), event);
}

static const rxd_component components[] = {
    {NAMED("decoder", "cef"), .open = open_cef, .close = free, .row = cef_row},
    {NAMED("decoder", "leef"), .row = leef_row},
    {NAMED("function", "parse"), .row = parse_row},
    {NAMED("function", "parseLeef"), .row = parse_leef_row},
};

#include "format_entry.h"
