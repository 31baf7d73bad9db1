// Exports the two names that rxd looks for in a shared library, and keeps RxdPlugin's per-thread data.
#include "rxd_swift.h"

#include <pthread.h>
#include <stdatomic.h>

RXD_PLUGIN_MAGIC;

rxd_host rxd_swift_host_table;

// Defined by the plugin; returns a Plugin.
void *rxd_swift_plugin(void);
// Defined by RxdPlugin.
int rxd_swift_start(
  void *plugin, uint32_t contract, const rxd_host *host, const rxd_plugin **result, rxd_text *problem);

RXD_EXPORT int rxd_plugin_init(
  uint32_t contract, const rxd_host *host, const rxd_plugin **result, rxd_text *problem) {
  return rxd_swift_start(rxd_swift_plugin(), contract, host, result, problem);
}

static _Thread_local struct {
  rxd_scope *scope;
  int slot; /* 0: not assigned; otherwise the slot plus one */
} thread;

/* One bit per slot; set while a thread owns the slot. */
static _Atomic uint64_t taken;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void leave(void *slot) { atomic_fetch_and(&taken, ~(UINT64_C(1) << ((uintptr_t)slot - 1))); }

static void make_key(void) {
  if (pthread_key_create(&key, leave) != 0) atomic_store(&taken, UINT64_MAX);
}

static int find_slot(void) {
  pthread_once(&once, make_key);
  uint64_t seen = atomic_load(&taken);
  while (seen != UINT64_MAX) {
    int free = __builtin_ctzll(~seen);
    if (!atomic_compare_exchange_weak(&taken, &seen, seen | UINT64_C(1) << free)) continue;
    if (pthread_setspecific(key, (void *)(uintptr_t)(free + 1)) == 0) return free + 1;
    atomic_fetch_and(&taken, ~(UINT64_C(1) << free));
    break;
  }
  return RXD_SWIFT_SLOTS + 1;
}

int rxd_swift_enter(rxd_scope *scope) {
  thread.scope = scope;
  if (thread.slot == 0) thread.slot = find_slot();
  return thread.slot - 1;
}

rxd_scope *rxd_swift_scope(void) { return thread.scope; }
