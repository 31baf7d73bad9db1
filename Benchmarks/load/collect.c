// Receives what an HTTP client sends: `collect [MILLISECONDS]` listens on a port of 127.0.0.1 (printed), keeps
// connections open, and answers each request with 200, at once or that long after its body has come. At the end of its
// input it prints the numbers of requests, lines, body bytes and connections, and of body bytes on the wire: gzip
// bodies are inflated, and must be complete.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "clock.h"

enum { most = 1024, head_limit = 8192 };

struct connection {
  char head[head_limit + 1];
  int length;
  /// The number of body bytes still to come; -1: the head is still to come.
  long rest;
  /// Whether the current body is in gzip, and whether it is complete.
  int inflates, is_whole;
  z_stream stream;
};
static struct connection *connections[most];
static long requests, lines, bytes, wire, taken_in;
/// The delay of an answer in nanoseconds.
static int64_t delay;
/// Waiting answers, oldest first: all have the same delay.
static struct {
  int file;
  int64_t due;
} late[most];
static unsigned long first_late, last_late;

static void say(int file, const char *text) {
  const size_t length = strlen(text);
  if (write(file, text, length) != (ssize_t)length) {
    perror("collect");
    exit(74);
  }
}

static void refuse(const char *why) {
  fprintf(stderr, "collect: %s\n", why);
  exit(76);
}

static void count(const char *text, size_t length) {
  for (const char *at = text, *end = text + length; (at = memchr(at, '\n', end - at)); at++) lines++;
  bytes += length;
}

static void inflate_part(struct connection *one, const char *text, ssize_t part) {
  static char plain[1 << 18];
  one->stream.next_in = (Bytef *)text;
  one->stream.avail_in = part;
  do {
    one->stream.next_out = (Bytef *)plain;
    one->stream.avail_out = sizeof plain;
    const int code = inflate(&one->stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) refuse("a body cannot be inflated");
    count(plain, sizeof plain - one->stream.avail_out);
    if (code == Z_STREAM_END) {
      one->is_whole = 1;
      if (one->stream.avail_in) refuse("there is something behind the end of a body");
      return;
    }
  } while (one->stream.avail_out == 0 || one->stream.avail_in > 0);
}

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Sends the answers that are due; returns the milliseconds until the next one is, -1 if there is none.
static int answer_late(void) {
  for (; first_late != last_late; first_late++) {
    const int64_t left = late[first_late % most].due - now();
    if (left > 0) return (int)((left + 999999) / 1000000);
    say(late[first_late % most].file, answer);
  }
  return -1;
}

/// Takes received bytes of a body; returns how many of them belong to it.
static ssize_t body(struct connection *one, int file, const char *text, ssize_t got) {
  const ssize_t part = got < one->rest ? got : one->rest;
  if (one->inflates && part > 0) inflate_part(one, text, part);
  else count(text, part);
  wire += part;
  one->rest -= part;
  if (one->rest > 0) return part;
  requests++;
  one->rest = -1;
  one->length = 0;
  if (one->inflates && !one->is_whole) refuse("a body ends too early");
  if (delay > 0) {
    late[last_late % most].file = file;
    late[last_late++ % most].due = now() + delay;
  } else {
    say(file, answer);
  }
  return part;
}

/// Takes received bytes of a head; returns how many of them belong to it.
static ssize_t head(struct connection *one, int file, const char *text, ssize_t got) {
  for (ssize_t at = 0; at < got; at++) {
    if (one->length == head_limit) refuse("the head is too long");
    one->head[one->length++] = text[at];
    if (one->length < 4 || memcmp(one->head + one->length - 4, "\r\n\r\n", 4)) continue;
    one->head[one->length] = 0;
    const char *declared = strcasestr(one->head, "\r\ncontent-length:");
    if (!declared) refuse("the length of a body is not declared");
    one->rest = atol(strchr(declared, ':') + 1);
    one->inflates = strcasestr(one->head, "\r\ncontent-encoding: gzip") != NULL;
    one->is_whole = 0;
    if (one->inflates && (one->stream.state ? inflateReset(&one->stream) : inflateInit2(&one->stream, 15 + 16)) != Z_OK)
      refuse("there is no memory");
    if (strcasestr(one->head, "\r\nexpect: 100-continue")) say(file, "HTTP/1.1 100 Continue\r\n\r\n");
    if (one->rest == 0) body(one, file, text, 0);
    return at + 1;
  }
  return got;
}

int main(int given, char **arguments) {
  if (given > 1) delay = atol(arguments[1]) * 1000000;
  const int queue = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 64)) {
    perror("collect");
    return 71;
  }
  getsockname(listener, (struct sockaddr *)&address, &size);
  for (int file = 0; file <= listener; file = file ? file + 1 : listener) {
    struct epoll_event event = {EPOLLIN, {.fd = file}};
    epoll_ctl(queue, EPOLL_CTL_ADD, file, &event);
  }
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  static char text[1 << 20];
  while (1) {
    struct epoll_event ready[64];
    const int found = epoll_wait(queue, ready, 64, answer_late());
    for (int i = 0; i < found; i++) {
      const int file = ready[i].data.fd;
      if (file == 0) {
        printf("{\"requests\": %ld, \"lines\": %ld, \"bytes\": %ld, \"wire\": %ld, \"connections\": %ld}\n", requests, lines,
          bytes, wire, taken_in);
        return 0;
      }
      if (file == listener) {
        const int taken = accept4(listener, NULL, NULL, SOCK_NONBLOCK), yes = 1;
        if (taken < 0) continue;
        if (taken >= most) refuse("there are too many connections");
        setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        connections[taken] = calloc(1, sizeof **connections);
        connections[taken]->rest = -1;
        taken_in++;
        struct epoll_event event = {EPOLLIN, {.fd = taken}};
        epoll_ctl(queue, EPOLL_CTL_ADD, taken, &event);
        continue;
      }
      struct connection *one = connections[file];
      const ssize_t got = read(file, text, sizeof text);
      if (got <= 0) {
        close(file);
        if (one->stream.state) inflateEnd(&one->stream);
        free(one);
        connections[file] = NULL;
        continue;
      }
      for (ssize_t at = 0; at < got;)
        at += one->rest < 0 ? head(one, file, text + at, got - at) : body(one, file, text + at, got - at);
    }
  }
}
