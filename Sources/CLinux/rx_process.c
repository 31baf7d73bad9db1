#define _GNU_SOURCE
#include "rx_process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void close_all(int pipes[3][2]) {
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 2; j++)
      if (pipes[i][j] >= 0) close(pipes[i][j]);
}

static void limit(int resource, uint64_t value) {
  if (value == 0) return;
  struct rlimit was, wanted = {value, value};
  // A stricter existing limit stays.
  if (getrlimit(resource, &was) == 0 && was.rlim_max != RLIM_INFINITY && was.rlim_max < value)
    wanted.rlim_cur = wanted.rlim_max = was.rlim_max;
  setrlimit(resource, &wanted);
}

// Runs in the child between fork and exec, where only async-signal-safe calls are allowed; shares no memory with the
// parent.
static void become(
  const char *path, char *const *arguments, char *const *environment, const char *directory, const rx_limits *limits,
  int pipes[3][2], int report, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before that call.
  if (getppid() != parent) _exit(127);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  struct sigaction standard = {.sa_handler = SIG_DFL};
  for (int number = 1; number < NSIG; number++) sigaction(number, &standard, NULL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  // The ends may have the numbers of standard streams.
  int ends[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};
  for (int i = 0; i < 3; i++) {
    int moved = fcntl(ends[i], F_DUPFD, 10);
    if (moved < 0) goto failed;
    ends[i] = moved;
  }
  report = fcntl(report, F_DUPFD_CLOEXEC, 10);
  for (int i = 0; i < 3; i++)
    if (dup2(ends[i], i) < 0) goto failed;
  if (directory && chdir(directory) != 0) goto failed;
  // Closes all descriptors but the standard streams and the report, which exec closes.
  if (report > 3) close_range(3, (unsigned)report - 1, 0);
  close_range((unsigned)report + 1, ~0u, 0);
  limit(RLIMIT_DATA, limits->memory);
  limit(RLIMIT_CPU, limits->cpu);
  limit(RLIMIT_NOFILE, limits->files);
  limit(RLIMIT_NPROC, limits->processes);
  limit(RLIMIT_CORE, 1);
  // A file that was just written is busy until a process that was forked meanwhile has closed its inherited descriptor.
  for (int attempt = 0; attempt < 250; attempt++) {
    execve(path, arguments, environment);
    if (errno != ETXTBSY) break;
    const struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
  }
failed:;
  int code = errno;
  ssize_t written = write(report, &code, sizeof code);
  (void)written;
  _exit(127);
}

int rx_start(
  const char *path, char *const *arguments, char *const *environment, const char *directory, const rx_limits *limits,
  pid_t *process, int descriptors[3]) {
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, report[2] = {-1, -1};
  for (int i = 0; i < 3; i++)
    if (pipe2(pipes[i], O_CLOEXEC) != 0) {
      int code = errno;
      close_all(pipes);
      return code;
    }
  if (pipe2(report, O_CLOEXEC) != 0) {
    int code = errno;
    close_all(pipes);
    return code;
  }
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  pid_t parent = getpid();
  pid_t child = fork();
  int code = errno;
  if (child == 0) become(path, arguments, environment, directory, limits, pipes, report[1], parent);
  pthread_sigmask(SIG_SETMASK, &previous, NULL);
  close(report[1]);
  if (child < 0) {
    close(report[0]);
    close_all(pipes);
    return code;
  }
  code = 0;
  ssize_t count;
  do count = read(report[0], &code, sizeof code);
  while (count < 0 && errno == EINTR);
  close(report[0]);
  if (count == sizeof code) {
    close_all(pipes);
    waitpid(child, NULL, 0);
    return code ? code : EINVAL;
  }
  setpgid(child, child);
  close(pipes[0][0]);
  close(pipes[1][1]);
  close(pipes[2][1]);
  descriptors[0] = pipes[0][1];
  descriptors[1] = pipes[1][0];
  descriptors[2] = pipes[2][0];
  for (int i = 0; i < 3; i++) fcntl(descriptors[i], F_SETFL, O_NONBLOCK);
  // Larger pipes wake both sides less often; if that is not permitted, the default size will do.
  for (int i = 0; i < 2; i++) fcntl(descriptors[i], F_SETPIPE_SZ, 1 << 18);
  *process = child;
  return 0;
}

int rx_has_ended(pid_t process, int *status) {
  pid_t found;
  do found = waitpid(process, status, WNOHANG);
  while (found < 0 && errno == EINTR);
  // Other code in this process has reaped the child, so its status is unknown and must not look like a success.
  if (found < 0) *status = 255 << 8;
  return found != 0;
}

int rx_end_watch(pid_t process) { return (int)syscall(SYS_pidfd_open, process, 0); }
