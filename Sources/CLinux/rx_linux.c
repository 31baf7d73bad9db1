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
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
  // More processors than the set has room for.
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
    // What can be written may have been, and what is not from the file is not in it.
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W)) continue;
    const uintptr_t start = (info->dlpi_addr + segment->p_vaddr + page - 1) & ~(page - 1);
    const uintptr_t end = (info->dlpi_addr + segment->p_vaddr + segment->p_filesz) & ~(page - 1);
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
  }
  return 1;  // The program comes first, and libraries are shared with others.
}

void rx_forget_program_text(void) { dl_iterate_phdr(forget_text, NULL); }

void rx_forbid_dumps(void) { prctl(PR_SET_DUMPABLE, 0); }
