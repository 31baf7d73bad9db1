// The host's side of rxd_plugin.h: the part that Swift cannot express.
#ifndef RX_PLUGIN_HOST_H
#define RX_PLUGIN_HOST_H
#include <stdint.h>

#include "rxd_plugin.h"

/// The memory of a call: an arena, and why the call failed.
struct rxd_scope {
  void *arena;   ///< unretained
  void *failure; ///< the failure given to `fail`; retained, or null
  rxd_value known[2]; ///< the last expanded JSON texts; both words 0: none
  rxd_value tree[2];  ///< their expanded forms, in the arena
  uint32_t next;      ///< the one of the two that is replaced next
};

struct rxd_output { void *target; };
struct rxd_verdicts { void *target; };
struct rxd_source { void *target; };
struct rxd_instance { void *target; };

/// Loads a shared object. Null on failure, with the reason in `*problem`, which is valid until the thread's next call.
void *rx_load(const char *path, const char **problem);
void *rx_symbol(void *library, const char *name);

#endif
