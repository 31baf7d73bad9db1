// Serves one JSON document on many loopback addresses: `endpoints FIRST_PORT COUNT` listens on COUNT addresses from
// 127.0.1.1 on, port FIRST_PORT (0: any), and keeps connections alive. Prints the port and, at the end of its input,
// how many requests it answered and how many connections it accepted.
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

enum { most = 4096 };
static char is_listener[most];
/// How much of "\r\n\r\n" each connection has sent.
static unsigned char matched[most];

int main(int argc, char **argv) {
  if (argc != 3) return 64;
  int port = atoi(argv[1]);
  const int count = atoi(argv[2]), queue = epoll_create1(0);
  for (int i = 0; i < count; i++) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(0x7f000101u + i % 250 + (i / 250) * 256u);
    socklen_t size = sizeof address;
    if (listener >= most || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 64)) {
      perror("endpoints");
      return 71;
    }
    if (port == 0) {
      getsockname(listener, (struct sockaddr *)&address, &size);
      port = ntohs(address.sin_port);
    }
    is_listener[listener] = 1;
    struct epoll_event event = {EPOLLIN, {.fd = listener}};
    epoll_ctl(queue, EPOLL_CTL_ADD, listener, &event);
  }
  struct epoll_event input = {EPOLLIN, {.fd = 0}};
  epoll_ctl(queue, EPOLL_CTL_ADD, 0, &input);
  printf("%d\n", port);
  fflush(stdout);
  static const char body[] =
    "{\"up\":true,\"queue\":{\"length\":17,\"oldest\":\"2026-01-31T12:00:00.125Z\"},\"requests\":81985529216486895,"
    "\"latency\":{\"p50\":1.25,\"p99\":17.5},\"version\":\"4.27.1\"}\n";
  char answer[1024];
  const int length = snprintf(answer, sizeof answer,
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", sizeof body - 1, body);
  long answered = 0, connections = 0;
  while (1) {
    struct epoll_event ready[64];
    const int found = epoll_wait(queue, ready, 64, -1);
    for (int i = 0; i < found; i++) {
      const int file = ready[i].data.fd;
      if (file == 0) {
        printf("{\"answered\": %ld, \"connections\": %ld}\n", answered, connections);
        return 0;
      }
      if (is_listener[file]) {
        const int taken = accept4(file, NULL, NULL, SOCK_NONBLOCK), yes = 1;
        if (taken < 0) continue;
        if (taken >= most) {
          close(taken);
          continue;
        }
        setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        matched[taken] = 0;
        connections++;
        struct epoll_event event = {EPOLLIN, {.fd = taken}};
        epoll_ctl(queue, EPOLL_CTL_ADD, taken, &event);
        continue;
      }
      char text[8192];
      const ssize_t got = read(file, text, sizeof text);
      if (got <= 0) {
        close(file);
        continue;
      }
      for (ssize_t at = 0; at < got; at++) {
        matched[file] = text[at] == "\r\n\r\n"[matched[file]] ? matched[file] + 1 : text[at] == '\r';
        if (matched[file] < 4) continue;
        matched[file] = 0;
        if (write(file, answer, length) == length) answered++;
      }
    }
  }
}
