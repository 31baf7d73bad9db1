// Runs one program and reports its use of resources: `timed FIGURES OUTPUT CORES PROGRAM ARGUMENT...` writes wall
// seconds, user seconds, system seconds and the peak of resident bytes to the file FIGURES. CORES is the list of cores
// that the program may use, such as `0,1`, OUTPUT a file for its standard output, or `-`.
//
// Small on purpose: a program's peak includes what the process that started it held.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec / 1e6; }

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: timed FIGURES OUTPUT CORES PROGRAM ARGUMENT...\n");
    return 64;
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (char *core = strtok(argv[3], ","); core; core = strtok(NULL, ",")) CPU_SET(atoi(core), &cores);
  const double start = now();
  const pid_t child = fork();
  if (child == 0) {
    sched_setaffinity(0, sizeof cores, &cores);
    if (strcmp(argv[2], "-") != 0) {
      const int file = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0640);
      if (file < 0 || dup2(file, 1) < 0) _exit(126);
    }
    execvp(argv[4], argv + 4);
    perror(argv[4]);
    _exit(127);
  }
  int status;
  struct rusage usage;
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return 71;
  const double wall = now() - start;
  FILE *const figures = fopen(argv[1], "w");
  if (!figures) return 73;
  fprintf(figures, "%.6f %.6f %.6f %ld\n", wall, seconds(usage.ru_utime), seconds(usage.ru_stime),
    usage.ru_maxrss * 1024);
  fclose(figures);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
