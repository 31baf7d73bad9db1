// The host's side: what Swift cannot say of rxd_plugin.h.
#ifndef RX_PLUGIN_HOST_H
#define RX_PLUGIN_HOST_H
#include <stdint.h>

#include "rxd_plugin.h"

/// The memory of a call: an arena, and why the call failed.
struct rxd_scope {
  void *arena;   ///< unretained
  void *failure; ///< what `fail` said; retained, or null
};

struct rxd_output { void *target; };
struct rxd_verdicts { void *target; };
struct rxd_source { void *target; };
struct rxd_instance { void *target; };

/// Loads a shared object. Null: `*problem` says why, valid until the next call of the thread.
void *rx_load(const char *path, const char **problem);
void *rx_symbol(void *library, const char *name);

#endif
