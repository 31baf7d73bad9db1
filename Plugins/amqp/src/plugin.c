#include "client.h"

RXD_PLUGIN_MAGIC;
INCLUDE_FILE(spec_text, "spec.json");

const rxd_host *host;

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **plugin, rxd_text *problem) {
  static rxd_component components[2];
  static rxd_plugin result;
  if (contract < RXD_CONTRACT || offered->size < RXD_HOST_SIZE_1_3) {
    *problem = RXD_TEXT_OF("this plugin needs contract 1 with version 1.3 of the header");
    return RXD_FAILED;
  }
  host = offered;
  components[0] = amqp_source;
  components[1] = amqp_sink;
  result = (rxd_plugin){
    .size = sizeof result,
    .component_count = sizeof components / sizeof components[0],
    .components = components,
    .component_size = sizeof components[0],
    .spec = {spec_text, (size_t)(spec_text_end - spec_text)},
  };
  *plugin = &result;
  return RXD_OK;
}
