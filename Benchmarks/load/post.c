// Sends the lines of a file over HTTP, LINES per request, over several kept connections, repeatedly for some seconds:
// `post PORT FILE LINES CONNECTIONS SECONDS OUTPUT [MEDIA-TYPE]`. Prints JSON: events and requests that were answered
// with 2xx, other answers, percentiles of the time of a request, and how often, at the moment of an answer, the file
// OUTPUT was shorter than everything answered until then.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"

enum { most_requests = 1 << 20 };
static struct {
  const char *text;
  size_t length;
} bodies[4096];
static size_t body_count;
static int port, lines;
static int64_t deadline;
static const char *output, *type = "application/x-ndjson";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t samples[most_requests];
static size_t requests, others, early, acknowledged, turn;

static int get(int file, char *text, size_t size) {
  size_t held = 0;
  while (held < size - 1) {
    const ssize_t count = read(file, text + held, size - 1 - held);
    if (count <= 0) return 0;
    held += count;
    text[held] = 0;
    const char *end = strstr(text, "\r\n\r\n");
    if (!end) continue;
    const char *length = strcasestr(text, "content-length:");
    const size_t body = length && length < end ? strtoull(length + 15, NULL, 10) : 0;
    if (held >= (size_t)(end + 4 - text) + body) return atoi(text + 9);
  }
  return 0;
}

static void *send_all(void *unused) {
  (void)unused;
  const int file = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(file, (struct sockaddr *)&address, sizeof address)) {
    perror("post");
    exit(69);
  }
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  while (now() < deadline) {
    pthread_mutex_lock(&lock);
    const size_t number = turn++ % body_count;
    pthread_mutex_unlock(&lock);
    char head[256], answer[4096];
    const int length = snprintf(head, sizeof head,
      "POST /events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
      port, type, bodies[number].length);
    const int64_t start = now();
    struct iovec parts[2] = {{head, length}, {(void *)bodies[number].text, bodies[number].length}};
    size_t left = length + bodies[number].length;
    while (left > 0) {
      const ssize_t sent = writev(file, parts, 2);
      if (sent < 0) return NULL;
      left -= sent;
      size_t gone = sent;
      for (int i = 0; i < 2; i++) {
        const size_t step = gone < parts[i].iov_len ? gone : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + step;
        parts[i].iov_len -= step;
        gone -= step;
      }
    }
    const int status = get(file, answer, sizeof answer);
    const int64_t took = now() - start;
    pthread_mutex_lock(&lock);
    if (status / 100 == 2) {
      acknowledged += bodies[number].length;
      struct stat found;
      if (stat(output, &found) || (size_t)found.st_size < acknowledged) early++;
      if (requests < most_requests) samples[requests++] = took;
    } else {
      others++;
    }
    pthread_mutex_unlock(&lock);
    if (status == 0) break;
  }
  close(file);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 7 && argc != 8) return 64;
  if (argc == 8) type = argv[7];
  port = atoi(argv[1]);
  lines = atoi(argv[3]);
  const int connections = atoi(argv[4]);
  output = argv[6];
  const int file = open(argv[2], O_RDONLY);
  struct stat found;
  if (file < 0 || fstat(file, &found)) return 66;
  const char *text = mmap(NULL, found.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  const char *const end = text + found.st_size;
  const char *start = text;
  int count = 0;
  for (const char *at = text; (at = memchr(at, '\n', end - at)) && body_count < 4096;) {
    at++;
    if (++count < lines) continue;
    bodies[body_count].text = start;
    bodies[body_count++].length = at - start;
    start = at;
    count = 0;
  }
  if (body_count == 0 || connections > 64) return 65;
  const int64_t begin = now();
  deadline = begin + atoll(argv[5]) * 1000000000;
  pthread_t threads[64];
  for (int i = 0; i < connections; i++) pthread_create(&threads[i], NULL, send_all, NULL);
  for (int i = 0; i < connections; i++) pthread_join(threads[i], NULL);
  const double seconds = (now() - begin) / 1e9;
  printf("{\"seconds\": %.3f, \"requests\": %zu, \"events\": %zu, \"bytes\": %zu, \"others\": %zu, \"early\": %zu, ",
    seconds, requests, requests * lines, acknowledged, others, early);
  print_percentiles(samples, requests);
  printf("}\n");
  return 0;
}
