// Sends one event per request over kept connections, the next one on a connection as soon as the last is answered, from
// one thread: `kept PORT CONNECTIONS SECONDS`. Prints JSON: requests that were answered with 2xx, other answers, and
// percentiles of the time of a request.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { most = 1024, most_samples = 1 << 20 };
static int64_t samples[most_samples];
static int64_t sent[most];
static char request[512];
static size_t length, requests, others;

static void fail(const char *what) {
  perror(what);
  exit(69);
}

static void send_next(int file, int64_t *when) {
  *when = now();
  // A request fits into an empty socket buffer, so it is written whole.
  if (write(file, request, length) != (ssize_t)length) fail("kept: write");
}

int main(int argc, char **argv) {
  if (argc != 4) return 64;
  const int port = atoi(argv[1]), connections = atoi(argv[2]), yes = 1;
  if (connections < 1 || connections > most) return 65;
  const char *event = "{\"id\":4711,\"user\":\"ada\",\"action\":\"login\",\"ms\":12.5}\n";
  length = snprintf(request, sizeof request,
    "POST /events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/x-ndjson\r\nContent-Length: %zu\r\n\r\n%s",
    port, strlen(event), event);
  const int poll = epoll_create1(EPOLL_CLOEXEC);
  int files[most];
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < connections; i++) {
    files[i] = socket(AF_INET, SOCK_STREAM, 0);
    if (files[i] < 0 || connect(files[i], (struct sockaddr *)&address, sizeof address)) fail("kept: connect");
    setsockopt(files[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = i};
    epoll_ctl(poll, EPOLL_CTL_ADD, files[i], &wanted);
  }
  const int64_t begin = now(), deadline = begin + atoll(argv[3]) * 1000000000;
  for (int i = 0; i < connections; i++) send_next(files[i], &sent[i]);
  for (int open = connections; open > 0;) {
    struct epoll_event ready[64];
    const int count = epoll_wait(poll, ready, 64, 10000);
    if (count <= 0) fail("kept: no answer within ten seconds");
    for (int i = 0; i < count; i++) {
      const int at = ready[i].data.u32;
      char answer[4096];
      const ssize_t got = read(files[at], answer, sizeof answer - 1);
      if (got <= 0) fail("kept: the connection was closed");
      answer[got] = 0;
      // Answers are short, so each comes in one piece.
      if (got < 13 || !strstr(answer, "\r\n\r\n")) fail("kept: a piece of an answer");
      const int64_t when = now();
      if (answer[9] == '2') {
        if (requests < most_samples) samples[requests] = when - sent[at];
        requests++;
      } else {
        others++;
      }
      if (when < deadline) send_next(files[at], &sent[at]);
      else open--;
    }
  }
  const double seconds = (now() - begin) / 1e9;
  printf("{\"seconds\": %.3f, \"requests\": %zu, \"others\": %zu, ", seconds, requests, others);
  print_percentiles(samples, requests < most_samples ? requests : most_samples);
  printf("}\n");
  return 0;
}
