// Starting programs and waiting for their end.
#ifndef RX_PROCESS_H
#define RX_PROCESS_H
#include <stdint.h>
#include <sys/types.h>

/// Limits of a started program; 0: none.
typedef struct rx_limits {
  uint64_t memory;    ///< bytes of private writable memory
  uint64_t cpu;       ///< seconds
  uint64_t files;     ///< open descriptors
  uint64_t processes; ///< of the user
} rx_limits;

/// Starts `path` in a process group of its own, with three pipes as standard streams and no other descriptor. The
/// process gains no privileges, and is killed when the calling thread ends. Returns 0, or the errno of the failed call;
/// `descriptors`: the other ends of standard input, output and error, close-on-exec and non-blocking.
int rx_start(
  const char *path, char *const *arguments, char *const *environment, const char *directory, const rx_limits *limits,
  pid_t *process, int descriptors[3]);

/// Whether the process has ended; if so, it is reaped and `*status` is that of `waitpid`, or of exit status 255 if
/// other code in this process has reaped it.
int rx_has_ended(pid_t process, int *status);

/// A descriptor that becomes readable when the process ends, close-on-exec; -1 and errno on failure.
int rx_end_watch(pid_t process);

#endif
