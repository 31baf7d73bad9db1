#define _GNU_SOURCE
#include "rx_plugin_host.h"

#include <dlfcn.h>

_Static_assert(sizeof(rxd_value) == 16, "a value has two words");
_Static_assert(sizeof(rxd_magic) == 24, "the layout of the magic never changes");

void *rx_load(const char *path, const char **problem) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) *problem = dlerror();
  return library;
}

void *rx_symbol(void *library, const char *name) { return dlsym(library, name); }
