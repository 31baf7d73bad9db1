// Appends lines to a file at a fixed rate and measures when the results become visible in another: `follow INPUT OUTPUT
// LINES_PER_SECOND SECONDS`. Both files must exist, and a program must follow the first and append every second line to
// the second. Prints JSON: milliseconds from before the write to after the read.
//
// The reader waits with inotify, like a program that follows the output, so its own wake-up is included.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "clock.h"

static int64_t *written;
static int64_t *samples;
static size_t lines, seen, expected;
static int output, watch;
static volatile int is_over;

/// Reads the numbers of added lines: each line begins with `{"n":`.
static void *observe(void *unused) {
  (void)unused;
  static char text[1 << 20];
  size_t held = 0;
  char events[4096];
  prctl(PR_SET_TIMERSLACK, 1);
  while (seen < expected && !is_over) {
    const ssize_t count = read(output, text + held, sizeof text - held);
    if (count <= 0) {
      struct pollfd wait = {watch, POLLIN, 0};
      if (poll(&wait, 1, 100) > 0 && read(watch, events, sizeof events) < 0) return NULL;
      continue;
    }
    const int64_t at = now();
    held += count;
    char *line = text;
    for (char *end; (end = memchr(line, '\n', text + held - line)); line = end + 1) {
      const size_t number = strtoull(line + 5, NULL, 10);
      if (number < lines && seen < expected) samples[seen++] = at - written[number];
    }
    held -= line - text;
    memmove(text, line, held);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 5) return 64;
  const int input = open(argv[1], O_WRONLY | O_APPEND);
  output = open(argv[2], O_RDONLY);
  const int pace = atoi(argv[3]);
  lines = (size_t)pace * atoi(argv[4]);
  expected = lines / 2;
  written = calloc(lines, sizeof *written);
  samples = calloc(expected + 1, sizeof *samples);
  watch = inotify_init1(IN_NONBLOCK);
  if (input < 0 || output < 0 || !written || !samples || inotify_add_watch(watch, argv[2], IN_MODIFY) < 0) {
    perror("follow");
    return 66;
  }
  lseek(output, 0, SEEK_END);
  prctl(PR_SET_TIMERSLACK, 1);
  pthread_t observer;
  pthread_create(&observer, NULL, observe, NULL);
  const int64_t start = now();
  for (size_t i = 0; i < lines; i++) {
    char line[512];
    const int length = snprintf(line, sizeof line,
      "{\"n\":%zu,\"time\":\"2026-01-31T12:00:00.125Z\",\"service\":\"checkout\",\"upstream\":{\"status\":200,"
      "\"took\":0.125},\"request\":{\"method\":\"GET\",\"path\":\"/api/v2/orders/\\u00fcbersicht\"},\"status\":%d,"
      "\"latency\":12.75,\"client\":\"c-%05zu\",\"agent\":\"curl/7.88.1\"}\n",
      i, i % 2 ? 200 : 503, i % 100000);
    sleep_until(start + (int64_t)(i * 1e9 / pace));
    written[i] = now();
    if (write(input, line, length) != length) return 74;
  }
  const int64_t took = now() - start;
  for (int i = 0; i < 200 && seen < expected; i++) sleep_until(now() + 10000000);
  is_over = 1;
  pthread_join(observer, NULL);
  printf("{\"lines\": %zu, \"seconds\": %.3f, \"expected\": %zu, \"seen\": %zu, ", lines, took / 1e9, expected, seen);
  print_percentiles(samples, seen);
  printf("}\n");
  return seen == expected ? 0 : 1;
}
