/* The components of the plugin. */
#define FORMAT "cbor"
#include "format_value.h"

INCLUDE_FILE(spec, "spec.json");

static int open_decoder(const rxd_opening *opening, void **instance) {
  (void)opening;
  (void)instance;
  return RXD_OK;
}

#include "format_plugin.h"
