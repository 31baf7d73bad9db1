// The host's side: what Swift cannot say of rxd_plugin.h, and how programs are started.
#ifndef RX_PLUGIN_HOST_H
#define RX_PLUGIN_HOST_H
#include <stdint.h>
#include <sys/types.h>

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

/// Limits of a started program; 0: none.
typedef struct rx_limits {
  uint64_t memory;    ///< bytes of private writable memory
  uint64_t cpu;       ///< seconds
  uint64_t files;     ///< open descriptors
  uint64_t processes; ///< of the user
} rx_limits;

/// Starts `path` in a process group of its own with three pipes as standard streams and no other descriptor. It gains no privileges, and
/// dies with the calling thread. Returns 0, or the errno of what failed; `descriptors`: the other ends of standard input, output and
/// error, close-on-exec, and not blocking.
int rx_start(
  const char *path, char *const *arguments, char *const *environment, const char *directory, const rx_limits *limits,
  pid_t *process, int descriptors[3]);

/// Whether the process has ended; then `*status` is that of `waitpid`, and it is gone.
int rx_has_ended(pid_t process, int *status);

/// Loads a shared object. Null: `*problem` says why, valid until the next call of the thread.
void *rx_load(const char *path, const char **problem);
void *rx_symbol(void *library, const char *name);

#endif
