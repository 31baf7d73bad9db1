/* Frames of AMQP 0-9-1 over a socket, with or without TLS. librabbitmq encodes and decodes methods and properties;
 * this file owns the socket, so that every wait has a limit, many messages are sent at once, and heartbeats continue
 * whatever the pipeline does. A wire is used by one thread at a time. */
#ifndef WIRE_H
#define WIRE_H
#include <amqp.h>
#include <openssl/ssl.h>
#include <plugin_util.h>
#include <stdint.h>

enum {
  CHANNEL = 1,           /* the only channel */
  FRAME_MOST = 16 << 20, /* maximum size of a received frame, whatever was negotiated */
  OUT_MOST = 1 << 20,    /* unsent bytes above which the caller should wait */
};

typedef struct buffer {
  uint8_t *bytes;
  size_t start, end, capacity;
} buffer;

typedef struct frame {
  uint8_t type;
  uint16_t channel;
  const uint8_t *bytes; /* valid until the next read */
  size_t count;
} frame;

typedef struct wire {
  int fd; /* -1: closed */
  SSL *tls;
  bool is_lost;
  char problem[200]; /* why the connection is lost */
  buffer in, out;
  size_t frame_max;     /* maximum size of a sent frame */
  int64_t heartbeat_ms; /* 0: none */
  int64_t sent_at, received_at;
  amqp_pool_t pool; /* memory of the last decoded method */
} wire;

/* How long an attempt to connect may take. */
typedef struct patience {
  int64_t until; /* now_ms */
  bool (*is_over)(const void *closure); /* the connection is no longer needed */
  const void *closure;
} patience;

/* Connects. `tls`: NULL for none. False: `problem` has the reason; `is_tls_error`: TLS is the cause. */
bool wire_open(wire *wire, const address *address, SSL_CTX *tls, bool verifies, const patience *patience,
               bool *is_tls_error);
void wire_close(wire *wire);
__attribute__((format(printf, 2, 3))) void wire_fail(wire *wire, const char *format, ...);

/* Buffers bytes until the wire is pumped. */
void wire_put_raw(wire *wire, const void *bytes, size_t count);
void wire_put_method(wire *wire, amqp_channel_t channel, amqp_method_number_t id, void *method);
/* `properties` are already encoded. */
void wire_put_content(wire *wire, const uint8_t *properties, size_t count, rxd_text body);
size_t wire_waiting(const wire *wire);

/* Sends, receives, and handles heartbeats. Waits at most so long for data to receive, for room to send if data waits,
 * or for `wake` (-1: none) to become readable. May set `is_lost`. */
void wire_pump(wire *wire, int wake, int64_t wait_ms);
/* The next frame other than a heartbeat. False: none has arrived. */
bool wire_next(wire *wire, frame *frame);
amqp_method_number_t frame_method(const frame *frame);
/* The arguments of a method, valid until the next call. NULL: they are invalid, and the connection counts as lost. */
void *wire_decode(wire *wire, const frame *frame);

#endif
