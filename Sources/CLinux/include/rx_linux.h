// Linux calls that Swift's Glibc module does not offer: GNU extensions and headers that it leaves out.
#ifndef RX_LINUX_H
#define RX_LINUX_H
#include "rx_socket.h"
#include <stdbool.h>
#include <stdint.h>

#include "rx_process.h"

/// For `open`: a file without a name.
extern const int RX_O_TMPFILE;
/// For `open`: a descriptor that only identifies a file or directory.
extern const int RX_O_PATH;
/// Makes the kernel start writing a range of the open file to the device, and does not wait.
void rx_begin_writeback(int descriptor, long long offset, long long count);
/// syncfs(2). Since Linux 5.8 it reports failures since the descriptor was opened.
int rx_sync_file_system(int descriptor);
/// Sets an extended attribute of the open file to `count` bytes; 0, or -1 and errno.
int rx_set_attribute(int descriptor, const char *name, const void *bytes, long count);
/// Reads an extended attribute, at most `count` bytes; returns the number of bytes, or -1 and errno.
long rx_get_attribute(int descriptor, const char *name, void *bytes, long count);
void rx_remove_attribute(int descriptor, const char *name);
/// Reads the POSIX access list of an open file or directory, even if the descriptor only identifies it; returns the
/// number of bytes, 0 if it has none, or -1 and errno.
long rx_access_list(int descriptor, void *bytes, long count);
/// A new eventfd, close-on-exec and non-blocking; -1 and errno on failure.
int rx_eventfd(void);

/// The type of a path's file system, as in statfs(2); 0 if unknown.
uint32_t rx_file_system(const char *path);

/// Whether any program has the regular file open for writing: 1, 0, or -1 if the system does not say. The descriptor
/// must be open for reading only. Changes nothing; a program that opens the file meanwhile waits some microseconds.
int rx_has_writer(int descriptor);
/// A new Unix stream socket, close-on-exec and non-blocking; -1 and errno on failure.
int rx_local_socket(void);
/// A new stream socket of this family, likewise.
int rx_stream_socket(int family);
/// Waits until there is something to read, the time has passed, or a signal arrives; returns whether there is something
/// to read.
int rx_wait_readable(int descriptor, int64_t nanoseconds);
/// A pipe whose both ends are close-on-exec; -1 and errno on failure.
int rx_pipe(int descriptors[2]);
/// The text for an errno, never null, valid forever, untranslated.
const char *rx_error_text(int code);
/// When the open file was created, in nanoseconds since 1970; 0 if the file system does not say.
int64_t rx_birth_time(int descriptor);
/// The last of `count` bytes that has this value, or null.
const void *rx_memrchr(const void *start, int byte, long count);
/// The number of processors that the calling thread may run on; at least 1.
int rx_processors(void);
/// Names the calling thread; at most 15 bytes are kept.
void rx_name_thread(const char *name);
/// Closes every descriptor from `first` on; -1 and errno on failure.
int rx_close_from(unsigned first);
/// The process's environment: `NAME=value` texts, then null.
char *const *rx_environment(void);
/// A descriptor that becomes readable when one of the signals is pending; they must be blocked in every thread.
/// Close-on-exec and non-blocking; -1 and errno on failure.
int rx_signalfd(const int *signals, int count);
/// The next pending signal of that descriptor; 0 if there is none.
int rx_next_signal(int descriptor);
/// Whether the signal is ignored.
bool rx_is_signal_ignored(int signal);
/// Makes the signal end the process at once: with status 0, as after an orderly stop, or 131 for SIGQUIT.
void rx_end_at_signal(int signal);
/// If the address space is limited (`ulimit -v`), makes a fault that results from refused memory end the process with a
/// message on standard error and `status`, instead of by a signal.
void rx_explain_exhaustion(int status);
/// A descriptor that becomes readable when the wall clock is set. Close-on-exec and non-blocking; -1 and errno on
/// failure.
int rx_clock_watch(void);
/// Whether the wall clock was set since the last call for that descriptor.
bool rx_clock_was_set(int descriptor);
/// Forbids core dumps and tracing by other processes of the user.
void rx_forbid_dumps(void);
/// Drops the resident pages of the program's own code and constants, which cannot have been changed: those that are
/// used again come back from the page cache. Called after the start, which uses many pages that are not used again.
void rx_forget_program_text(void);

#endif
