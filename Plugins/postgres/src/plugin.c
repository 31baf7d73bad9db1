// The entry point that rxd loads.
#include "include_file.h"
#include "postgres.h"

RXD_PLUGIN_MAGIC;

const rxd_host *host;

INCLUDE_FILE(spec, "spec.json");

static rxd_component components[3];

static rxd_plugin plugin = {
    .size = sizeof(rxd_plugin), .component_count = 3, .components = components, .component_size = sizeof(rxd_component)};

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  if (contract < RXD_CONTRACT || offered->size < RXD_HOST_SIZE_1_0) {
    *problem = RXD_TEXT_OF("this plugin needs a newer rxd");
    return RXD_FAILED;
  }
  if (PQisthreadsafe() == 0) {
    *problem = RXD_TEXT_OF("this libpq cannot be used by several threads");
    return RXD_FAILED;
  }
  host = offered;
  plugin.spec = (rxd_text){spec, (size_t)(spec_end - spec)};
  components[0] = query_component;
  components[1] = notify_component;
  components[2] = insert_component;
  *result = &plugin;
  return RXD_OK;
}
