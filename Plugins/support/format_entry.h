/* The entry point of a plugin for formats. Included once, at the end of the file that defines `host`, `spec`
 * (INCLUDE_FILE) and `components`. */
#ifndef FORMAT_ENTRY_H
#define FORMAT_ENTRY_H
static rxd_plugin plugin = {
    .size = sizeof(rxd_plugin),
    .component_count = sizeof components / sizeof components[0],
    .components = components,
    .component_size = sizeof components[0],
};

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  if (contract < RXD_CONTRACT || offered->size < RXD_HOST_SIZE_1_2) {
    *problem = RXD_TEXT_OF("this plugin needs a newer rxd");
    return RXD_FAILED;
  }
  host = offered;
  plugin.spec = (rxd_text){spec, (size_t)(spec_end - spec)};
  *result = &plugin;
  return RXD_OK;
}
#endif
