#define _GNU_SOURCE
#include "rx_socket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

_Static_assert(sizeof(struct sockaddr_storage) <= 128, "an address fits");

int rx_resolve(const char *host, int port, int datagram, int passive, rx_address *out, int most) {
  struct addrinfo hints = {0}, *found = NULL;
  hints.ai_socktype = datagram ? SOCK_DGRAM : SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  char service[8];
  snprintf(service, sizeof service, "%d", port);
  int code = getaddrinfo(host, service, &hints, &found);
  if (code != 0) return code < 0 ? code : -code;
  int count = 0;
  for (struct addrinfo *at = found; at && count < most; at = at->ai_next) {
    if (at->ai_addrlen > sizeof out->words) continue;
    out[count].length = at->ai_addrlen;
    memcpy(out[count].words, at->ai_addr, at->ai_addrlen);
    count++;
  }
  freeaddrinfo(found);
  return count;
}

const char *rx_resolving_text(int code) { return gai_strerror(code); }

int rx_unix_address(const char *path, rx_address *out) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) return 0;
  memcpy(address.sun_path, path, length);
  int is_abstract = path[0] == '@';
  if (is_abstract) address.sun_path[0] = 0;
  out->length = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + length + (is_abstract ? 0 : 1));
  memcpy(out->words, &address, sizeof address);
  return 1;
}

static const struct sockaddr *of(const rx_address *address) { return (const struct sockaddr *)address->words; }

int rx_address_family(const rx_address *address) { return address->length < sizeof(sa_family_t) ? AF_UNSPEC : of(address)->sa_family; }

int rx_address_port(const rx_address *address) {
  switch (rx_address_family(address)) {
  case AF_INET: return ntohs(((const struct sockaddr_in *)of(address))->sin_port);
  case AF_INET6: return ntohs(((const struct sockaddr_in6 *)of(address))->sin6_port);
  default: return 0;
  }
}

int rx_address_text(const rx_address *address, char *out, int size) {
  char host[INET6_ADDRSTRLEN];
  int length = 0;
  switch (rx_address_family(address)) {
  case AF_INET: {
    const struct sockaddr_in *in = (const struct sockaddr_in *)of(address);
    if (!inet_ntop(AF_INET, &in->sin_addr, host, sizeof host)) return 0;
    length = snprintf(out, size, "%s:%d", host, ntohs(in->sin_port));
    break;
  }
  case AF_INET6: {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)of(address);
    if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr)) {
      if (!inet_ntop(AF_INET, in->sin6_addr.s6_addr + 12, host, sizeof host)) return 0;
      length = snprintf(out, size, "%s:%d", host, ntohs(in->sin6_port));
    } else {
      if (!inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host)) return 0;
      length = snprintf(out, size, "[%s]:%d", host, ntohs(in->sin6_port));
    }
    break;
  }
  case AF_UNIX: {
    const struct sockaddr_un *un = (const struct sockaddr_un *)of(address);
    size_t start = offsetof(struct sockaddr_un, sun_path);
    if (address->length <= start) return 0;
    size_t count = address->length - start;
    int is_abstract = un->sun_path[0] == 0;
    if (!is_abstract) count = strnlen(un->sun_path, count);
    if ((int)count > size) count = (size_t)size;
    memcpy(out, un->sun_path, count);
    if (is_abstract) out[0] = '@';
    length = (int)count;
    break;
  }
  default: return 0;
  }
  return length < 0 ? 0 : length > size ? size : length;
}

int rx_local_address(int descriptor, rx_address *out) {
  socklen_t length = sizeof out->words;
  if (getsockname(descriptor, (struct sockaddr *)out->words, &length) != 0) return 0;
  out->length = length < sizeof out->words ? length : sizeof out->words;
  return 1;
}

int rx_socket(int family, int datagram) {
  return socket(family, (datagram ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int rx_bind(int descriptor, const rx_address *address) { return bind(descriptor, of(address), address->length); }

int rx_connect(int descriptor, const rx_address *address) { return connect(descriptor, of(address), address->length); }

int rx_accept(int descriptor, rx_address *peer) {
  socklen_t length = sizeof peer->words;
  int found = accept4(descriptor, (struct sockaddr *)peer->words, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
  peer->length = found < 0 ? 0 : length < sizeof peer->words ? length : sizeof peer->words;
  return found;
}

long rx_send(int descriptor, const void *bytes, long count) { return send(descriptor, bytes, (size_t)count, MSG_NOSIGNAL); }

static int sealed_file(const void *bytes, long count) {
  int file = memfd_create("rxd-message", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  for (long done = 0; done < count;) {
    ssize_t written = write(file, (const char *)bytes + done, (size_t)(count - done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) goto failed;
    done += written;
  }
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0) return file;
failed:;
  int code = errno;
  close(file);
  errno = code;
  return -1;
}

int rx_send_as_file(int descriptor, const void *bytes, long count) {
  int file = sealed_file(bytes, count);
  if (file < 0) return -1;
  union {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof control.space};
  control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.head), &file, sizeof file);
  ssize_t sent = sendmsg(descriptor, &message, MSG_NOSIGNAL);
  int code = errno;
  close(file);
  errno = code;
  return sent < 0 ? -1 : 0;
}

int rx_socket_error(int descriptor) {
  int code = 0;
  socklen_t length = sizeof code;
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) != 0 ? errno : code;
}

int rx_socket_kind(int descriptor) {
  int kind = 0;
  socklen_t length = sizeof kind;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &kind, &length) != 0) return -1;
  return kind == SOCK_DGRAM ? 1 : kind == SOCK_STREAM ? 0 : -1;
}

int rx_is_listening(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof listens;
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens;
}

int rx_set_option(int descriptor, int level, int option, int value) {
  return setsockopt(descriptor, level, option, &value, sizeof value);
}

static int set_buffer(int descriptor, int bytes, int forced, int usual) {
  if (rx_set_option(descriptor, SOL_SOCKET, forced, bytes) != 0) rx_set_option(descriptor, SOL_SOCKET, usual, bytes);
  int size = 0;
  socklen_t length = sizeof size;
  getsockopt(descriptor, SOL_SOCKET, usual, &size, &length);
  // The kernel doubles the requested size for its own overhead.
  return size / 2;
}

int rx_set_receive_buffer(int descriptor, int bytes) { return set_buffer(descriptor, bytes, SO_RCVBUFFORCE, SO_RCVBUF); }

int rx_set_send_buffer(int descriptor, int bytes) { return set_buffer(descriptor, bytes, SO_SNDBUFFORCE, SO_SNDBUF); }

int rx_peer_process(int descriptor, int *pid, int *uid) {
  struct ucred who;
  socklen_t length = sizeof who;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return 0;
  *pid = who.pid;
  *uid = (int)who.uid;
  return who.pid != 0;
}

long rx_unacknowledged(int descriptor) {
  int count = 0;
  return ioctl(descriptor, SIOCOUTQ, &count) == 0 ? count : -1;
}

long rx_unread(int descriptor) {
  int count = 0;
  return ioctl(descriptor, FIONREAD, &count) == 0 ? count : -1;
}

int rx_has_hung_up(int descriptor) {
  struct pollfd one = {.fd = descriptor, .events = POLLRDHUP};
  return poll(&one, 1, 0) != 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

enum { MOST = 64, CONTROL = 128 };

int rx_receive(int descriptor, unsigned char *space, uint32_t bytes, int slots, rx_datagram *out, uint32_t *dropped) {
  struct mmsghdr messages[MOST];
  struct iovec parts[MOST];
  _Alignas(struct cmsghdr) unsigned char control[MOST][CONTROL];
  if (slots > MOST) slots = MOST;
  memset(messages, 0, sizeof messages[0] * (size_t)slots);
  for (int i = 0; i < slots; i++) {
    parts[i] = (struct iovec){.iov_base = space + (size_t)i * bytes, .iov_len = bytes};
    messages[i].msg_hdr = (struct msghdr){
      .msg_name = out[i].peer.words, .msg_namelen = sizeof out[i].peer.words, .msg_iov = &parts[i], .msg_iovlen = 1,
      .msg_control = control[i], .msg_controllen = CONTROL};
  }
  int count = recvmmsg(descriptor, messages, (unsigned)slots, MSG_DONTWAIT, NULL);
  for (int i = 0; i < count; i++) {
    struct msghdr *head = &messages[i].msg_hdr;
    out[i].start = (uint32_t)i * bytes;
    out[i].count = messages[i].msg_len > bytes ? bytes : messages[i].msg_len;
    out[i].is_cut = (head->msg_flags & MSG_TRUNC) != 0;
    out[i].peer.length = head->msg_namelen < sizeof out[i].peer.words ? head->msg_namelen : sizeof out[i].peer.words;
    out[i].pid = out[i].uid = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(head); at; at = CMSG_NXTHDR(head, at)) {
      if (at->cmsg_level != SOL_SOCKET) continue;
      if (at->cmsg_type == SO_RXQ_OVFL) memcpy(dropped, CMSG_DATA(at), sizeof *dropped);
      if (at->cmsg_type == SCM_CREDENTIALS) {
        struct ucred who;
        memcpy(&who, CMSG_DATA(at), sizeof who);
        out[i].pid = (uint32_t)who.pid;
        out[i].uid = (uint32_t)who.uid;
      }
    }
  }
  return count;
}

int rx_poller(void) { return epoll_create1(EPOLL_CLOEXEC); }

int rx_watch(int poller, int descriptor, uint64_t tag, int readable, int writable, int is_new) {
  struct epoll_event event = {
    .events = (readable ? EPOLLIN | EPOLLRDHUP : 0u) | (writable ? EPOLLOUT : 0u), .data = {.u64 = tag}};
  return epoll_ctl(poller, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event);
}

void rx_unwatch(int poller, int descriptor) { epoll_ctl(poller, EPOLL_CTL_DEL, descriptor, NULL); }

int rx_wait(int poller, rx_ready *out, int most, int milliseconds) {
  struct epoll_event events[256];
  if (most > 256) most = 256;
  int count = epoll_wait(poller, events, most, milliseconds);
  for (int i = 0; i < count; i++) {
    out[i].tag = events[i].data.u64;
    out[i].has_ended = (events[i].events & (EPOLLHUP | EPOLLERR)) != 0;
    out[i].is_readable = (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    out[i].is_writable = (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
  }
  return count;
}

int rx_wait_two(int first, int writable, int second, int milliseconds) {
  // `poll` ignores a descriptor of -1.
  struct pollfd both[2] = {
    {.fd = first, .events = writable == 1 ? POLLOUT : writable == 2 ? POLLIN | POLLOUT : POLLIN},
    {.fd = second, .events = POLLIN}};
  int count = poll(both, 2, milliseconds);
  if (count <= 0) return count;
  return (both[0].revents ? 1 : 0) | (both[1].revents ? 2 : 0);
}
