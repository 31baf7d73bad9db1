#include "common.h"

RXD_PLUGIN_MAGIC;
INCLUDE_FILE(spec_text, "spec.json");

const rxd_host *host;

int string_parameter(const rxd_opening *opening, const char *name, std::string &result) {
  char *copy = nullptr;
  int status = text_parameter(opening, name, &copy);
  if (copy != nullptr) result = copy;
  free_secret(copy);
  return status;
}

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **plugin, rxd_text *problem) {
  static rxd_component components[2];
  static rxd_plugin result;
  if (contract < RXD_CONTRACT || offered->size < RXD_HOST_SIZE_1_2) {
    *problem = RXD_TEXT_OF("this plugin needs contract 1 with version 1.2 of the header");
    return RXD_FAILED;
  }
  host = offered;
  components[0] = otlp_source;
  components[1] = otlp_sink;
  result.size = sizeof result;
  result.component_count = sizeof components / sizeof components[0];
  result.components = components;
  result.component_size = sizeof components[0];
  result.spec = {spec_text, static_cast<size_t>(spec_text_end - spec_text)};
  *plugin = &result;
  return RXD_OK;
}
