/* The components of the plugin. */
#define FORMAT "msgpack"
#include "msgpack_format.h"

INCLUDE_FILE(spec, "spec.json");

static int open_decoder(const rxd_opening *opening, void **instance) {
  reading *self = need(calloc(1, sizeof *self));
  rxd_value strings = parameter(opening, "strings");
  self->keeps_bytes = text_is(host->text(opening->scope, &strings), RXD_TEXT_OF("bytes"));
  *instance = self;
  return RXD_OK;
}

#include "format_plugin.h"
