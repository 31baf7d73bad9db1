// Reports which thread checks a path: writes a line to standard error for each call of faccessat with a path that ends
// with CHECKED. On the thread 'rxd aside' the call does not return, as on a disk that does not answer, while the file
// named by HANG_WHILE exists.
// cc -O2 -shared -fPIC -o checks.so checks.c -ldl; CHECKED=/log LD_PRELOAD=./checks.so rxd ...
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hang(void) {
  static const char line[] = "held up\n";
  const char *file = getenv("HANG_WHILE");
  if (!file || access(file, F_OK) != 0) return;
  if (write(STDERR_FILENO, line, sizeof line - 1) != sizeof line - 1) abort();
  while (access(file, F_OK) == 0) usleep(1000);
}

static void report(const char *path) {
  const char *end = getenv("CHECKED");
  char thread[16] = "", line[64];
  if (!end || strlen(path) < strlen(end) || strcmp(path + strlen(path) - strlen(end), end) != 0) return;
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  const int length = snprintf(line, sizeof line, "checked by thread '%s'\n", thread);
  if (write(STDERR_FILENO, line, (size_t)length) != length) abort();
  if (strcmp(thread, "rxd aside") == 0) hang();
}

int faccessat(int directory, const char *path, int mode, int flags) {
  static int (*real)(int, const char *, int, int);
  if (!real) real = (int (*)(int, const char *, int, int))dlsym(RTLD_NEXT, "faccessat");
  report(path);
  return real(directory, path, mode, flags);
}
