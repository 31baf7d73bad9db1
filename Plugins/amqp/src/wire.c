#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

enum {
  FRAME_HEARTBEAT = 8,
  FRAME_END = 0xce,
  FRAME_HEAD = 7,
  READ_BYTES = 64 << 10,
  READ_MOST = 512 << 10,   /* maximum number of bytes per pump */
  METHOD_MOST = 64 << 10,  /* maximum size of a sent method: its tables come from the parameters */
};

/* ---- Buffers ---- */

static uint8_t *buffer_room(buffer *buffer, size_t count) {
  if (buffer->start == buffer->end) buffer->start = buffer->end = 0;
  if (buffer->capacity - buffer->end < count && buffer->start > 0) {
    memmove(buffer->bytes, buffer->bytes + buffer->start, buffer->end - buffer->start);
    buffer->end -= buffer->start;
    buffer->start = 0;
  }
  if (buffer->capacity - buffer->end < count) {
    size_t capacity = buffer->capacity < READ_BYTES ? READ_BYTES : buffer->capacity * 2;
    while (capacity - buffer->end < count) capacity *= 2;
    buffer->bytes = need(realloc(buffer->bytes, capacity));
    buffer->capacity = capacity;
  }
  return buffer->bytes + buffer->end;
}

/* Shrinks a buffer that a large message has enlarged. */
static void buffer_shrink(buffer *buffer) {
  enum { KEPT_MOST = 4 << 20 };
  if (buffer->start != buffer->end || buffer->capacity <= KEPT_MOST) return;
  free(buffer->bytes);
  memset(buffer, 0, sizeof *buffer);
}

static uint16_t read16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static uint32_t read32(const uint8_t *at) { return (uint32_t)read16(at) << 16 | read16(at + 2); }

static void write16(uint8_t *at, uint16_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

static void write32(uint8_t *at, uint32_t value) {
  write16(at, (uint16_t)(value >> 16));
  write16(at + 2, (uint16_t)value);
}

/* ---- Opening and closing ---- */

void wire_fail(wire *wire, const char *format, ...) {
  if (wire->is_lost) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(wire->problem, sizeof wire->problem, format, arguments);
  va_end(arguments);
  wire->is_lost = true;
}

static void fail_by_errno(wire *wire, int error) {
  if (error == ECONNRESET || error == EPIPE) wire_fail(wire, "the connection is lost");
  else wire_fail(wire, "the connection is lost: %s", strerror(error));
}

/* True: the socket is ready. */
static bool wait_for_socket(wire *wire, short events, const patience *patience) {
  enum { SLICE_MS = 100 };
  struct pollfd one = {.fd = wire->fd, .events = events};
  for (int64_t left; (left = patience->until - now_ms()) > 0 && !patience->is_over(patience->closure);)
    if (poll(&one, 1, left < SLICE_MS ? (int)left : SLICE_MS) > 0) return true;
  return false;
}

static bool connect_one(wire *wire, const struct addrinfo *info, const patience *patience, int *error) {
  wire->fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
  if (wire->fd < 0) {
    *error = errno;
    return false;
  }
  int on = 1;
  setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(wire->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  *error = 0;
  if (connect(wire->fd, info->ai_addr, info->ai_addrlen) == 0) return true;
  *error = errno;
  if (errno == EINPROGRESS) {
    socklen_t size = sizeof *error;
    if (!wait_for_socket(wire, POLLOUT, patience)) *error = ETIMEDOUT;
    else if (getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, error, &size) != 0) *error = errno;
  }
  if (*error == 0) return true;
  close(wire->fd);
  wire->fd = -1;
  return false;
}

/* All addresses of a host name share the time limit. */
static bool connect_socket(wire *wire, const address *address, const patience *patience) {
  char port[8];
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
  snprintf(port, sizeof port, "%d", address->port);
  int status = getaddrinfo(address->name, port, &hints, &found);
  if (status != 0) {
    wire_fail(wire, "the name of the server cannot be resolved: %s", gai_strerror(status));
    return false;
  }
  int error = ETIMEDOUT, left = 0;
  for (struct addrinfo *one = found; one != NULL; one = one->ai_next) left++;
  bool is_connected = false;
  for (struct addrinfo *one = found; one != NULL && !is_connected; one = one->ai_next, left--) {
    struct patience share = *patience;
    share.until = now_ms() + (patience->until - now_ms()) / left;
    is_connected = connect_one(wire, one, &share, &error);
  }
  freeaddrinfo(found);
  if (!is_connected) wire_fail(wire, "the server cannot be reached: %s", strerror(error));
  return is_connected;
}

static void fail_by_tls(wire *wire) {
  long verdict = SSL_get_verify_result(wire->tls);
  unsigned long error = ERR_peek_error();
  const char *reason = error != 0 ? ERR_reason_error_string(error) : NULL;
  if (verdict != X509_V_OK)
    wire_fail(wire, "the server's certificate is refused: %s; check it, its name and 'ca'",
              X509_verify_cert_error_string(verdict));
  else if (reason != NULL && strstr(reason, "wrong version number") != NULL)
    wire_fail(wire, "the server does not answer with TLS; check the port, or remove 'tls'");
  else wire_fail(wire, "TLS cannot be set up: %s", reason != NULL ? reason : "the server has closed the connection");
  ERR_clear_error();
}

static bool begin_tls(wire *wire, const address *address, SSL_CTX *context, bool verifies,
                      const patience *patience) {
  wire->tls = SSL_new(context);
  if (wire->tls == NULL || SSL_set_fd(wire->tls, wire->fd) != 1) {
    wire_fail(wire, "TLS cannot be started");
    return false;
  }
  struct in6_addr number;
  bool is_number = inet_pton(AF_INET, address->name, &number) == 1 || inet_pton(AF_INET6, address->name, &number) == 1;
  bool is_set = is_number || SSL_set_tlsext_host_name(wire->tls, address->name) == 1;
  if (verifies && is_number) is_set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(wire->tls), address->name) == 1;
  else if (verifies) is_set = is_set && SSL_set1_host(wire->tls, address->name) == 1;
  if (!is_set) {
    wire_fail(wire, "the name of the server cannot be verified by TLS");
    return false;
  }
  for (;;) {
    ERR_clear_error();
    int status = SSL_connect(wire->tls);
    if (status == 1) return true;
    int reason = SSL_get_error(wire->tls, status);
    if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) {
      fail_by_tls(wire);
      return false;
    }
    if (!wait_for_socket(wire, reason == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, patience)) {
      wire_fail(wire, "the server does not answer to TLS; check the port");
      return false;
    }
  }
}

bool wire_open(wire *wire, const address *address, SSL_CTX *tls, bool verifies, const patience *patience,
               bool *is_tls_error) {
  enum { POOL_PAGE = 4096 };
  memset(wire, 0, sizeof *wire);
  wire->fd = -1;
  wire->frame_max = 4096;
  init_amqp_pool(&wire->pool, POOL_PAGE);
  wire->sent_at = wire->received_at = now_ms();
  *is_tls_error = false;
  if (!connect_socket(wire, address, patience)) return false;
  if (tls == NULL || begin_tls(wire, address, tls, verifies, patience)) return true;
  *is_tls_error = !patience->is_over(patience->closure);
  return false;
}

void wire_close(wire *wire) {
  if (wire->tls != NULL) {
    ERR_clear_error();
    if (!wire->is_lost) SSL_shutdown(wire->tls);
    SSL_free(wire->tls);
  }
  if (wire->fd >= 0) close(wire->fd);
  empty_amqp_pool(&wire->pool);
  free(wire->in.bytes);
  free(wire->out.bytes);
  memset(wire, 0, sizeof *wire);
  wire->fd = -1;
}

/* ---- Putting ---- */

void wire_put_raw(wire *wire, const void *bytes, size_t count) {
  if (count == 0) return;
  memcpy(buffer_room(&wire->out, count), bytes, count);
  wire->out.end += count;
}

static void put_head(uint8_t *at, uint8_t type, amqp_channel_t channel, size_t count) {
  at[0] = type;
  write16(at + 1, channel);
  write32(at + 3, (uint32_t)count);
}

static void put_frame(wire *wire, uint8_t type, amqp_channel_t channel, const void *bytes, size_t count) {
  uint8_t *at = buffer_room(&wire->out, FRAME_HEAD + count + 1);
  put_head(at, type, channel, count);
  if (count > 0) memcpy(at + FRAME_HEAD, bytes, count);
  at[FRAME_HEAD + count] = FRAME_END;
  wire->out.end += FRAME_HEAD + count + 1;
}

void wire_put_method(wire *wire, amqp_channel_t channel, amqp_method_number_t id, void *method) {
  uint8_t *at = buffer_room(&wire->out, FRAME_HEAD + 4 + METHOD_MOST + 1);
  int count = amqp_encode_method(id, method, (amqp_bytes_t){METHOD_MOST, at + FRAME_HEAD + 4});
  if (count < 0) {
    wire_fail(wire, "a request has more than %d bytes; shorten 'arguments'", METHOD_MOST);
    return;
  }
  put_head(at, AMQP_FRAME_METHOD, channel, (size_t)count + 4);
  write32(at + FRAME_HEAD, id);
  at[FRAME_HEAD + 4 + count] = FRAME_END;
  wire->out.end += (size_t)(FRAME_HEAD + 4 + count + 1);
}

void wire_put_content(wire *wire, const uint8_t *properties, size_t count, rxd_text body) {
  enum { CONTENT_HEAD = 12, FRAME_EXTRA = FRAME_HEAD + 1 };
  uint8_t *at = buffer_room(&wire->out, FRAME_EXTRA + CONTENT_HEAD + count);
  put_head(at, AMQP_FRAME_HEADER, CHANNEL, CONTENT_HEAD + count);
  write32(at + FRAME_HEAD, (uint32_t)AMQP_BASIC_CLASS << 16);
  write32(at + FRAME_HEAD + 4, (uint32_t)((uint64_t)body.count >> 32));
  write32(at + FRAME_HEAD + 8, (uint32_t)body.count);
  memcpy(at + FRAME_HEAD + CONTENT_HEAD, properties, count);
  at[FRAME_HEAD + CONTENT_HEAD + count] = FRAME_END;
  wire->out.end += FRAME_EXTRA + CONTENT_HEAD + count;
  size_t most = wire->frame_max - FRAME_EXTRA;
  for (size_t done = 0; done < body.count;) {
    size_t part = body.count - done < most ? body.count - done : most;
    put_frame(wire, AMQP_FRAME_BODY, CHANNEL, body.bytes + done, part);
    done += part;
  }
}

size_t wire_waiting(const wire *wire) { return wire->out.end - wire->out.start; }

/* ---- Sending and receiving ---- */

/* The number of bytes sent or received; 0: the socket is not ready; -1: the connection is lost. */
static ssize_t judge_transfer(wire *wire, ssize_t count) {
  if (count > 0) return count;
  if (wire->tls == NULL) {
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    if (count < 0) fail_by_errno(wire, errno);
    else wire_fail(wire, "the server has closed the connection");
    return -1;
  }
  int reason = SSL_get_error(wire->tls, (int)count);
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) return 0;
  if (reason == SSL_ERROR_ZERO_RETURN) wire_fail(wire, "the server has closed the connection");
  else if (reason == SSL_ERROR_SSL) fail_by_tls(wire);
  else wire_fail(wire, "the connection is lost");
  ERR_clear_error();
  return -1;
}

static ssize_t send_some(wire *wire, const uint8_t *bytes, size_t count) {
  if (wire->tls == NULL) return judge_transfer(wire, send(wire->fd, bytes, count, MSG_NOSIGNAL));
  ERR_clear_error();
  return judge_transfer(wire, SSL_write(wire->tls, bytes, count < READ_BYTES ? (int)count : READ_BYTES));
}

static ssize_t receive_some(wire *wire, uint8_t *bytes, size_t count) {
  if (wire->tls == NULL) return judge_transfer(wire, recv(wire->fd, bytes, count, 0));
  ERR_clear_error();
  return judge_transfer(wire, SSL_read(wire->tls, bytes, (int)count));
}

static void send_waiting(wire *wire) {
  while (!wire->is_lost && wire->out.start < wire->out.end) {
    ssize_t count = send_some(wire, wire->out.bytes + wire->out.start, wire->out.end - wire->out.start);
    if (count <= 0) break;
    wire->out.start += (size_t)count;
    wire->sent_at = now_ms();
  }
  buffer_shrink(&wire->out);
}

static void receive_waiting(wire *wire) {
  buffer_shrink(&wire->in);
  for (size_t received = 0; received < READ_MOST && !wire->is_lost;) {
    ssize_t count = receive_some(wire, buffer_room(&wire->in, READ_BYTES), READ_BYTES);
    if (count <= 0) break;
    wire->in.end += (size_t)count;
    received += (size_t)count;
    wire->received_at = now_ms();
    if (count < READ_BYTES && wire->tls == NULL) break;
  }
}

/* Sends a heartbeat if one is due; returns the time until the next. */
static int64_t beat(wire *wire) {
  if (wire->heartbeat_ms == 0) return INT64_MAX;
  int64_t due = wire->sent_at + wire->heartbeat_ms / 2, now = now_ms();
  if (now < due) return due - now;
  if (wire_waiting(wire) == 0) put_frame(wire, FRAME_HEARTBEAT, 0, NULL, 0);
  return wire->heartbeat_ms / 2;
}

void wire_pump(wire *wire, int wake, int64_t wait_ms) {
  if (wire->is_lost) return;
  int64_t until_beat = beat(wire);
  send_waiting(wire);
  if (wire->is_lost) return;
  if (wait_ms > until_beat) wait_ms = until_beat;
  if (wire->tls != NULL && SSL_pending(wire->tls) > 0) wait_ms = 0;
  struct pollfd both[2] = {{.fd = wire->fd, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
  if (wire_waiting(wire) > 0) both[0].events |= POLLOUT;
  poll(both, 2, wait_ms > INT32_MAX ? INT32_MAX : (int)wait_ms);
  receive_waiting(wire);
  if (both[0].revents & POLLOUT) send_waiting(wire);
  if (wire->heartbeat_ms > 0 && now_ms() - wire->received_at > 2 * wire->heartbeat_ms)
    wire_fail(wire, "the server has been silent for %lld s", (long long)(2 * wire->heartbeat_ms / 1000));
}

/* ---- Frames ---- */

static bool take_frame(wire *wire, frame *frame) {
  const uint8_t *at = wire->in.bytes + wire->in.start;
  size_t count = wire->in.end - wire->in.start;
  /* The reply of a server with another protocol version. */
  if (count >= 8 && memcmp(at, "AMQP", 4) == 0) {
    wire_fail(wire, "the server does not know AMQP 0-9-1");
    return false;
  }
  if (count < FRAME_HEAD) return false;
  size_t size = read32(at + 3);
  if (size > FRAME_MOST || (at[0] > AMQP_FRAME_BODY && at[0] != FRAME_HEARTBEAT) || at[0] == 0) {
    wire_fail(wire, "what answers there is no AMQP server");
    return false;
  }
  if (count < FRAME_HEAD + size + 1) return false;
  if (at[FRAME_HEAD + size] != FRAME_END) {
    wire_fail(wire, "the server has sent a damaged frame");
    return false;
  }
  *frame = (struct frame){at[0], read16(at + 1), at + FRAME_HEAD, size};
  wire->in.start += FRAME_HEAD + size + 1;
  return true;
}

bool wire_next(wire *wire, frame *frame) {
  do {
    if (wire->is_lost || !take_frame(wire, frame)) return false;
  } while (frame->type == FRAME_HEARTBEAT);
  return true;
}

amqp_method_number_t frame_method(const frame *frame) {
  return frame->type == AMQP_FRAME_METHOD && frame->count >= 4 ? read32(frame->bytes) : 0;
}

void *wire_decode(wire *wire, const frame *frame) {
  void *decoded = NULL;
  recycle_amqp_pool(&wire->pool);
  amqp_bytes_t encoded = {frame->count - 4, (void *)(uintptr_t)(frame->bytes + 4)};
  if (amqp_decode_method(frame_method(frame), &wire->pool, encoded, &decoded) >= 0) return decoded;
  wire_fail(wire, "the server has sent a damaged frame");
  return NULL;
}
