// Makes system calls fail as a kernel short of resources does. REFUSE is a comma-separated list of NAME:ERRNO:FIRST:
// from the FIRST call of NAME on, counted from 1, each call fails with ERRNO.
// cc -O2 -shared -fPIC -o refuse.so refuse.c -ldl; REFUSE=epoll_ctl:12:3 LD_PRELOAD=./refuse.so rxd ...
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/types.h>

// The network library ends the process if these calls are refused at the start of one of its threads, so they are granted there.
static int is_start_of_network(const char *name) {
  char thread[16] = "";
  if (strcmp(name, "eventfd") != 0 && strcmp(name, "timerfd_create") != 0 && strncmp(name, "epoll_create", 12) != 0) return 0;
  return pthread_getname_np(pthread_self(), thread, sizeof thread) == 0 && strncmp(thread, "NIO-ELT-", 8) == 0;
}

static int refused(const char *name, atomic_int *count) {
  const char *list = getenv("REFUSE");
  const size_t length = strlen(name);
  for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (strncmp(at, name, length) != 0 || at[length] != ':') continue;
    char *rest;
    const long code = strtol(at + length + 1, &rest, 10);
    const long first = *rest == ':' ? strtol(rest + 1, NULL, 10) : 1;
    if (is_start_of_network(name)) return 0;
    if (atomic_fetch_add(count, 1) + 1 < first) return 0;
    errno = (int)code;
    return 1;
  }
  return 0;
}

#define REFUSING(name, parameters, arguments)                     \
  int name parameters {                                           \
    static atomic_int count;                                      \
    static int(*real) parameters;                                 \
    if (refused(#name, &count)) return -1;                        \
    if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
    return real arguments;                                        \
  }

REFUSING(inotify_init1, (int flags), (flags))
REFUSING(inotify_add_watch, (int instance, const char *path, uint32_t mask), (instance, path, mask))
REFUSING(eventfd, (unsigned int value, int flags), (value, flags))
REFUSING(timerfd_create, (clockid_t clock, int flags), (clock, flags))
REFUSING(signalfd, (int descriptor, const sigset_t *mask, int flags), (descriptor, mask, flags))
REFUSING(epoll_create, (int size), (size))
REFUSING(epoll_create1, (int flags), (flags))
REFUSING(epoll_ctl, (int poller, int what, int descriptor, struct epoll_event *event), (poller, what, descriptor, event))
REFUSING(pipe2, (int ends[2], int flags), (ends, flags))
REFUSING(socket, (int domain, int type, int protocol), (domain, type, protocol))
REFUSING(listen, (int descriptor, int backlog), (descriptor, backlog))
