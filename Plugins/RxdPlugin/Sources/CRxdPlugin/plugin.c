// The two names that rxd looks for in a shared library.
#include "rxd_plugin.h"

RXD_PLUGIN_MAGIC;

// Of the plugin: returns a Plugin.
void *rxd_swift_plugin(void);
// Of RxdPlugin.
int rxd_swift_start(
  void *plugin, uint32_t contract, const rxd_host *host, const rxd_plugin **result, rxd_text *problem);

RXD_EXPORT int rxd_plugin_init(
  uint32_t contract, const rxd_host *host, const rxd_plugin **result, rxd_text *problem) {
  return rxd_swift_start(rxd_swift_plugin(), contract, host, result, problem);
}
