#define _GNU_SOURCE
#include "rx_linux.h"
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/xattr.h>
#include <unistd.h>

const int RX_O_TMPFILE = O_TMPFILE;
const int RX_O_PATH = O_PATH;

void rx_begin_writeback(int descriptor, long long offset, long long count) {
  // The next sync reports a failure to write.
  sync_file_range(descriptor, offset, count, SYNC_FILE_RANGE_WRITE);
}

int rx_sync_file_system(int descriptor) { return syncfs(descriptor); }

int rx_set_attribute(int descriptor, const char *name, const void *bytes, long count) {
  return fsetxattr(descriptor, name, bytes, (size_t)count, 0);
}

long rx_get_attribute(int descriptor, const char *name, void *bytes, long count) {
  return fgetxattr(descriptor, name, bytes, (size_t)count);
}

long rx_access_list(int descriptor, void *bytes, long count) {
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  const long found = getxattr(path, "system.posix_acl_access", bytes, (size_t)count);
  return found < 0 && (errno == ENODATA || errno == ENOTSUP) ? 0 : found;
}

void rx_remove_attribute(int descriptor, const char *name) { fremovexattr(descriptor, name); }

int rx_stream_socket(int family) { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

int rx_local_socket(void) { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

uint32_t rx_file_system(const char *path) {
  struct statfs status;
  int result;
  do { result = statfs(path, &status); } while (result != 0 && errno == EINTR);
  return result == 0 ? (uint32_t)status.f_type : 0;
}

int rx_has_writer(int descriptor) {
  // Only a file without writers can be leased. If a writer opens it before the lease is released, the signal that
  // reports it is ignored by default.
  if (fcntl(descriptor, F_SETSIG, SIGURG) != 0) return -1;
  const int has = fcntl(descriptor, F_SETLEASE, F_RDLCK) == 0 ? 0 : errno == EAGAIN ? 1 : -1;
  if (has == 0) fcntl(descriptor, F_SETLEASE, F_UNLCK);
  fcntl(descriptor, F_SETSIG, 0);
  return has;
}

int rx_eventfd(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

int rx_pipe(int descriptors[2]) { return pipe2(descriptors, O_CLOEXEC); }

const char *rx_error_text(int code) {
  const char *text = strerrordesc_np(code);
  return text ? text : "Unknown error";
}

int64_t rx_birth_time(int descriptor) {
  struct statx status;
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &status) != 0) return 0;
  if (!(status.stx_mask & STATX_BTIME)) return 0;
  return status.stx_btime.tv_sec * INT64_C(1000000000) + status.stx_btime.tv_nsec;
}

int rx_processors(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  // There are more processors than the set has room for.
  if (count == 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? count : 1;
}

void rx_name_thread(const char *name) {
  char shortened[16];
  snprintf(shortened, sizeof shortened, "%s", name);
  pthread_setname_np(pthread_self(), shortened);
}

int rx_close_from(unsigned first) {
#ifdef SYS_close_range
  return (int)syscall(SYS_close_range, first, ~0U, 0);
#else
  errno = ENOSYS;
  return -1;
#endif
}

const void *rx_memrchr(const void *start, int byte, long count) {
  return count > 0 ? memrchr(start, byte, (size_t)count) : NULL;
}

char *const *rx_environment(void) { return environ; }

int rx_signalfd(const int *signals, int count) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < count; i++) sigaddset(&set, signals[i]);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int rx_next_signal(int descriptor) {
  struct signalfd_siginfo info;
  ssize_t count;
  do count = read(descriptor, &info, sizeof info);
  while (count < 0 && errno == EINTR);
  return count == sizeof info ? (int)info.ssi_signo : 0;
}

bool rx_is_signal_ignored(int signal) {
  struct sigaction action;
  return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void end(int signal) { _exit(signal == SIGQUIT ? 128 + signal : 0); }

void rx_end_at_signal(int signal) {
  struct sigaction action = {.sa_handler = end};
  sigaction(signal, &action, NULL);
}

static int exhausted_status;

static void explain_exhaustion(int signal) {
  // If no further memory is available, that is most probably what caused the fault.
  const size_t little = (size_t)64 << 20;
  void *probe = mmap(NULL, little, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) {
    static const char text[] =
        "rxd: error: out of memory: the system grants less than 64 MiB more; allow more (ulimit -v), or have the "
        "pipelines keep less\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(exhausted_status);
    _exit(exhausted_status);
  }
  munmap(probe, little);
  // Otherwise the fault is repeated and ends the program as it would without this handler.
  struct sigaction action = {.sa_handler = SIG_DFL};
  sigaction(signal, &action, NULL);
}

void rx_explain_exhaustion(int status) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  exhausted_status = status;
  // A stack of its own, because the fault may be that the main thread's stack cannot grow.
  static char stack[16 << 10];
  const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&own, NULL);
  const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT};
  for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
    struct sigaction action = {.sa_handler = explain_exhaustion, .sa_flags = SA_ONSTACK};
    sigaction(faults[i], &action, NULL);
  }
}

// Sets a timer for a time that never comes; setting the clock cancels it.
static void watch_clock(int descriptor) {
  const struct itimerspec never = {.it_value = {.tv_sec = (time_t)1 << 33}};
  timerfd_settime(descriptor, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
}

int rx_clock_watch(void) {
  const int descriptor = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  if (descriptor >= 0) watch_clock(descriptor);
  return descriptor;
}

bool rx_clock_was_set(int descriptor) {
  uint64_t expirations;
  if (read(descriptor, &expirations, sizeof expirations) >= 0 || errno != ECANCELED) return false;
  watch_clock(descriptor);
  return true;
}

int rx_wait_readable(int descriptor, int64_t nanoseconds) {
  struct pollfd entry = {descriptor, POLLIN, 0};
  const struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  return ppoll(&entry, 1, &time, NULL) > 0;
}

static int forget_text(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size;
  (void)unused;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    // Skips writable segments, which may have been changed; and below, memory that does not come from the file.
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W)) continue;
    const uintptr_t start = (info->dlpi_addr + segment->p_vaddr + page - 1) & ~(page - 1);
    const uintptr_t end = (info->dlpi_addr + segment->p_vaddr + segment->p_filesz) & ~(page - 1);
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
  }
  return 1;  // Stops after the program, which comes first: libraries are shared with other processes.
}

void rx_forget_program_text(void) { dl_iterate_phdr(forget_text, NULL); }

void rx_forbid_dumps(void) { prctl(PR_SET_DUMPABLE, 0); }
