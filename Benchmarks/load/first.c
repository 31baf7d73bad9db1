// Milliseconds from starting a program to the first byte of its standard output: `first ROUNDS PROGRAM ARGUMENT...`.
// Prints JSON.
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

int main(int argc, char **argv) {
  if (argc < 3) return 64;
  const int rounds = atoi(argv[1]);
  int64_t *samples = calloc(rounds + 1, sizeof *samples);
  for (int i = 0; i < rounds; i++) {
    int ends[2];
    char byte;
    if (pipe(ends)) return 71;
    const int64_t start = now();
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], 1);
      close(ends[0]);
      close(ends[1]);
      execvp(argv[2], argv + 2);
      _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1) return 1;
    samples[i] = now() - start;
    char rest[4096];
    while (read(ends[0], rest, sizeof rest) > 0) {}
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  printf("{\"rounds\": %d, ", rounds);
  print_percentiles(samples, rounds);
  printf("}\n");
  return 0;
}
