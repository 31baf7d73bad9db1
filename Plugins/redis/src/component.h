/* Declarations that the components of this plugin share. */
#ifndef COMPONENT_H
#define COMPONENT_H
#include "connection.h"

extern const rxd_component redis_stream_source, redis_list_source, redis_subscribe_source;
extern const rxd_component redis_stream_sink, redis_list_sink, redis_publish_sink, redis_set_sink;

/* The unanswered events of a reliable source. A token is the index of a slot plus one. */
typedef struct slot {
  enum { FREE, SENT, ACKNOWLEDGED } state;
  int64_t touched; /* when the server last counted it as this consumer's (now_ms) */
  union {
    struct {
      uint64_t time, sequence;
    } id; /* id of a stream entry */
    struct {
      char *bytes;
      size_t count;
    } value;
  };
} slot;

typedef struct window {
  slot *slots;
  uint32_t size, used;
  bool has_values;        /* slots use `value`, which is freed with the slot; otherwise `id` */
  uint32_t *free_slots;   /* a stack of size - used */
  uint32_t *acknowledged; /* in the order of rxd's answers */
  uint32_t acknowledged_count;
} window;

void window_open(window *window, uint32_t size, bool has_values);
void window_close(window *window);
slot *window_take(window *window, uint64_t *token); /* requires a free slot */
void window_free(window *window, slot *slot);
static inline slot *window_slot(window *window, uint32_t index) { return &window->slots[index]; }
static inline uint32_t window_sent(const window *window) { return window->used - window->acknowledged_count; }
static inline uint32_t window_room(const window *window) { return window->size - window->used; }

/* The state of a running source. */
typedef struct running {
  rxd_instance *instance;
  rxd_source *source;
  rxd_scope *scope; /* scope of `run` */
  const settings *settings;
  connection connection;
  window *window;         /* NULL: not a reliable source */
  bool is_failing;        /* the last attempt to connect failed and was logged */
  unsigned failures;      /* failed attempts in a row */
  unsigned short_lives;   /* short-lived connections in a row */
  int64_t connected_at;   /* when it connected (now_ms); 0: not connected */
  int64_t retry_at;       /* when failed events are read again (now_ms); 0: none failed */
  unsigned events_failed; /* failed events in a row */
} running;

static inline bool is_stopping(const running *running) { return host->is_stopping(running->source) != 0; }
/* Handles rxd's answers, waiting at most so long for the first. Slots of failed events are freed: the events are read
 * again from the server at `retry_at`. */
void take_acks(running *running, int64_t wait_ms);
/* Handles rxd's answers for `milliseconds`, or until the source must stop. */
void rest(running *running, int64_t milliseconds);
/* Connects, after a pause if the last attempt failed. False: not connected; try again. `*refused`: it can never
 * succeed, and `fail` was called. */
bool connect_source(running *running, bool *refused);
/* Marks the connection as working, so that pauses are short again. A failure is logged once, and so is its end. */
void connected(running *running);
/* Closes a lost connection and reports it. */
void lose(running *running, const char *problem);
/* Called before the end: passes rxd's last acknowledgements to the server, and closes the connection. */
void settle(running *running, bool (*acknowledge)(void *self, struct running *running, bool *failed), void *self);
/* Handles an error reply that does not concern an event. RXD_FAILED: `fail` was called. RXD_OK: the connection was closed; try
 * again. */
int judge(running *running, redisReply *reply, const char *doing);

#endif
