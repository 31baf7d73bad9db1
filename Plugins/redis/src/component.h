/* What the components of this plugin share. */
#ifndef COMPONENT_H
#define COMPONENT_H
#include "connection.h"

extern const rxd_component redis_stream_source, redis_list_source, redis_subscribe_source;
extern const rxd_component redis_stream_sink, redis_list_sink, redis_publish_sink, redis_set_sink;

/* Events that a reliable source has sent and for which rxd has not answered. A token is the index of a slot plus one. */
typedef struct slot {
  enum { FREE, SENT, ACKNOWLEDGED } state;
  int64_t touched; /* now_ms when the server last counted it as ours */
  union {
    struct {
      uint64_t time, sequence;
    } id; /* of an entry of a stream */
    struct {
      char *bytes;
      size_t count;
    } value;
  };
} slot;

typedef struct window {
  slot *slots;
  uint32_t size, used;
  bool has_values;        /* of the slots: `value` is used, and freed with the slot; otherwise `id` */
  uint32_t *free_slots;   /* a stack of size - used */
  uint32_t *acknowledged; /* in the order in which rxd has answered */
  uint32_t acknowledged_count;
} window;

void window_open(window *window, uint32_t size, bool has_values);
void window_close(window *window);
slot *window_take(window *window, uint64_t *token); /* there must be a free one */
void window_free(window *window, slot *slot);
static inline slot *window_slot(window *window, uint32_t index) { return &window->slots[index]; }
static inline uint32_t window_sent(const window *window) { return window->used - window->acknowledged_count; }
static inline uint32_t window_room(const window *window) { return window->size - window->used; }

/* What a source is while it runs. */
typedef struct running {
  rxd_instance *instance;
  rxd_source *source;
  rxd_scope *scope; /* of `run` */
  const settings *settings;
  connection connection;
  window *window;         /* NULL: not a reliable source */
  bool is_failing;        /* the last attempt to connect has failed, and the log says so */
  unsigned failures;      /* in a row */
  unsigned short_lives;   /* of connections, in a row */
  int64_t connected_at;   /* now_ms; 0: not connected */
  int64_t retry_at;       /* now_ms when what has failed is to be read again; 0: nothing has failed */
  unsigned events_failed; /* in a row */
} running;

static inline bool is_stopping(const running *running) { return host->is_stopping(running->source) != 0; }
/* Takes what rxd has answered; waits for the first answer, at most so long. Failed events become free: they are to be
 * read again from the server at `retry_at`. */
void take_acks(running *running, int64_t wait_ms);
/* The same, until `milliseconds` are over or the source is to stop. */
void rest(running *running, int64_t milliseconds);
/* Connects, after a pause if the last attempt has failed. False: not now; try again. `*refused`: it will never work,
 * and `fail` was called. */
bool connect_source(running *running, bool *refused);
/* The server is at work: the next pauses are short again. The log says once that it fails and once that it works again. */
void connected(running *running);
/* The connection is lost: closes it and makes it known. */
void lose(running *running, const char *problem);
/* Before the end: acknowledges to the server what rxd still acknowledges, and closes the connection. */
void settle(running *running, bool (*acknowledge)(void *self, struct running *running, bool *failed), void *self);
/* An error reply that is no matter of events: RXD_FAILED with `fail` called, or RXD_OK: the connection was closed, try again. */
int judge(running *running, redisReply *reply, const char *doing);

#endif
