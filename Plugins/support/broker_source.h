/* The skeletons of sources that read from a message broker. A protocol fills in the functions of a table; the connection
 * life cycle, queue, acknowledgements and stop are here. See README.md.
 *
 * `broker_source` is for messages that the broker delivers again until they are acknowledged. Two threads share it: the
 * thread of the connection receives and acknowledges, whatever rxd does; the thread of `run` adds events and takes rxd's
 * acknowledgements. `reader_run` needs no thread of its own. */
#ifndef BROKER_SOURCE_H
#define BROKER_SOURCE_H
#include "broker.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

typedef enum outcome {
  DONE,
  UNREACHABLE, /* a retry may help; `problem` of the attempts has the reason */
  REFUSED,     /* a retry does not help; `problem` has the reason, `at` the parameter */
} outcome;

/* Classifies a refusal: parameters that have worked before may work again, because the server's configuration may be
 * changing. */
static inline UNUSED outcome attempt_refused(const attempts *self) { return self->was_connected ? UNREACHABLE : REFUSED; }

/* ---- Content ---- */

typedef enum decoding { DECODE_TEXT, DECODE_JSON, DECODE_BYTES } decoding;

static inline UNUSED decoding decode_parameter(const rxd_opening *opening) {
  return choice_is(opening, "decode", "json")    ? DECODE_JSON
         : choice_is(opening, "decode", "bytes") ? DECODE_BYTES
                                                 : DECODE_TEXT;
}

/* The content of a message; no bytes are an empty text. False: it is not a JSON document, and `value` is a text or raw
 * bytes. */
static inline UNUSED bool content_value(rxd_scope *scope, decoding decode, const void *bytes, size_t count,
                                        rxd_value *value) {
  rxd_text content = {count > 0 ? (const char *)bytes : "", count};
  if (decode == DECODE_JSON) return decode_json(scope, content.bytes, count, value);
  *value = decode == DECODE_BYTES ? host->make_bytes(scope, content) : value_of_bytes(scope, content.bytes, count);
  return true;
}

/* ---- Events of the system ---- */

static inline UNUSED void signal_event(int descriptor) {
  uint64_t one = 1;
  if (write(descriptor, &one, sizeof one) < 0) return; /* the descriptor is already readable */
}

static inline UNUSED void clear_event(int descriptor) {
  uint64_t ignored;
  if (read(descriptor, &ignored, sizeof ignored) < 0) return;
}

/* ---- Messages that are delivered again until they are acknowledged ---- */

enum {
  TAKEN_MOST = 500,           /* maximum messages queued for rxd, */
  TAKEN_BYTES_MOST = 1 << 20, /* and their bytes */
  IDLE_MS = 1000,             /* wait for work, which signals its arrival */
  COLLECT_MS = 50,            /* the same for work other than acknowledgements */
  ACKS_MS = 25000,            /* during a stop: wait for acknowledgements */
  CLOSE_MS = 5000,            /* during a stop: wait for their transmission */
};

/* The first member of a protocol's message. */
typedef struct broker_message {
  struct broker_message *next;
  size_t bytes;   /* size, for the limits */
  uint64_t token; /* for rxd; 0: none */
} broker_message;

typedef struct broker_protocol {
  /* On the thread of the connection; `self` is that of `broker_open`. */

  /* Connects and starts to receive. REFUSED: the source fails. */
  outcome (*open)(void *self);
  /* Called again and again while the connection is open: receives messages, which it passes to `broker_put`, and sends
   * acknowledgements. Waits at most a second, or until `wake`. */
  outcome (*serve)(void *self);
  /* Closes the connection, also if it is only half open. `is_lost`: without a handshake; otherwise it first acknowledges
   * what is due and returns the rest to the broker, by `close_by`. */
  void (*close)(void *self, bool is_lost);
  /* Ends a wait of `open` or `serve`: acknowledgements were judged, or the source is ending. NULL: these wait only
   * briefly. */
  void (*wake)(void *self);

  /* Under the mutex, on the thread of `run`. */

  /* The message leaves the queue for rxd. May be NULL. */
  void (*take)(void *self, broker_message *message);
  /* Applies rxd's verdict. The token may be of an earlier epoch. */
  apply_ack *judge;

  /* On the thread of `run`. */

  /* Adds the message as an event, or rejects it as invalid input. False: rxd accepts no more messages after this one. */
  bool (*add)(void *self, rxd_source *running, const broker_message *message);
  /* All messages of a batch up to this one were added. May be NULL. */
  void (*added)(void *self, rxd_source *running, const broker_message *last);
  /* The batch was sent to the pipeline. May be NULL. */
  void (*sent)(void *self, broker_message **messages, size_t count);

  /* Acknowledgements may be applied with a delay, which costs less: the protocol sends them only from time to time. */
  bool collects_acks;

  /* On either thread. */
  void (*destroy)(broker_message *message);
} broker_protocol;

typedef struct broker_source {
  const broker_protocol *protocol;
  void *self;
  attempts *attempts;
  bool has_positions; /* rxd saves positions, so a slow pipeline gets small batches */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t room;    /* messages have left the queue, or the source is ending */
  int ready;              /* eventfd: the thread of `run` has work; -1: none */
  atomic_bool is_ending;  /* set under the mutex */
  /* Protected by the mutex. */
  broker_message *head, **tail;
  size_t queued, queued_bytes;
  bool is_waiting;        /* the thread of `run` found no message, and waits for one */
  int64_t close_by;       /* when the source stops waiting (now_ms); 0: not yet ending */
  char fatal[520], fatal_at[24]; /* why the source fails, if not empty */
  /* Used only by the thread of the connection. */
  bool is_open;
  int64_t open_at;        /* the next attempt (now_ms) */
  /* Used only by the thread of `run`. */
  size_t most;            /* messages of the next batch */
  size_t under_way;       /* events without rxd's acknowledgement */
} broker_source;

static inline UNUSED int broker_open(broker_source *self, const rxd_opening *opening, const broker_protocol *protocol,
                                     attempts *attempts, void *closure) {
  self->protocol = protocol;
  self->attempts = attempts;
  self->self = closure;
  self->tail = &self->head;
  init_condition(&self->room);
  pthread_mutex_init(&self->mutex, NULL);
  self->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return self->ready >= 0 ? RXD_OK : fail_at(opening->scope, "", "no more descriptors");
}

static inline UNUSED void broker_close(broker_source *self) {
  if (self->ready >= 0) close(self->ready);
  pthread_mutex_destroy(&self->mutex);
  pthread_cond_destroy(&self->room);
}

/* ---- For both threads ---- */

static inline UNUSED void broker_lock(broker_source *self) { pthread_mutex_lock(&self->mutex); }
static inline UNUSED void broker_unlock(broker_source *self) {
  bool signals = self->is_waiting && (self->head != NULL || self->fatal[0] != 0);
  if (signals) self->is_waiting = false;
  pthread_mutex_unlock(&self->mutex);
  if (signals) signal_event(self->ready);
}

/* Makes the source fail. */
static inline UNUSED void broker_fail(broker_source *self, const char *at, const char *problem) {
  broker_lock(self);
  snprintf(self->fatal, sizeof self->fatal, "%s", problem);
  snprintf(self->fatal_at, sizeof self->fatal_at, "%s", at);
  broker_unlock(self);
}

static inline UNUSED bool broker_is_over(broker_source *self) {
  broker_lock(self);
  bool is_over = self->is_ending || self->fatal[0] != 0;
  broker_unlock(self);
  return is_over;
}

/* The rest of a time limit: all of it, unless the source is ending. */
static inline UNUSED int64_t broker_left(broker_source *self, int64_t limit_ms) {
  broker_lock(self);
  int64_t left = self->close_by == 0 ? limit_ms : self->close_by - now_ms();
  broker_unlock(self);
  return left < 0 ? 0 : left > limit_ms ? limit_ms : left;
}

/* Waits under the mutex, at most `wait_ms`, until messages have left the queue or the source is ending. */
static inline UNUSED void broker_wait(broker_source *self, int64_t wait_ms) {
  if (wait_ms > 0 && !self->is_ending) wait_at_most(&self->room, &self->mutex, wait_ms);
}

/* ---- The queue, under the mutex ---- */

static inline UNUSED void broker_put(broker_source *self, broker_message *message) {
  message->next = NULL;
  *self->tail = message;
  self->tail = &message->next;
  self->queued++;
  self->queued_bytes += message->bytes;
}

static inline UNUSED broker_message *broker_remove(broker_source *self, broker_message **at) {
  broker_message *one = *at;
  *at = one->next;
  if (*at == NULL) self->tail = at;
  self->queued--;
  self->queued_bytes -= one->bytes;
  return one;
}

/* Destroys the queued messages for which `is_chosen` holds; NULL: all. */
typedef bool chooses_message(const broker_message *message, uint64_t closure);
static inline UNUSED void broker_drop(broker_source *self, chooses_message *is_chosen, uint64_t closure) {
  for (broker_message **at = &self->head; *at != NULL;) {
    if (is_chosen == NULL || is_chosen(*at, closure)) self->protocol->destroy(broker_remove(self, at));
    else at = &(*at)->next;
  }
  pthread_cond_signal(&self->room);
}

/* ---- The thread of the connection ---- */

static inline UNUSED void broker_step(broker_source *self) {
  if (!self->is_open && now_ms() < self->open_at) {
    broker_lock(self);
    broker_wait(self, self->open_at - now_ms());
    broker_unlock(self);
    return;
  }
  outcome outcome = self->is_open ? self->protocol->serve(self->self) : self->protocol->open(self->self);
  self->is_open = outcome == DONE;
  if (outcome == DONE) return;
  self->protocol->close(self->self, true);
  if (self->is_ending) return;
  if (outcome == REFUSED) broker_fail(self, self->attempts->at, self->attempts->problem);
  else self->open_at = now_ms() + attempt_failed(self->attempts);
}

static inline UNUSED void *broker_thread(void *opaque) {
  broker_source *self = (broker_source *)opaque;
  while (!broker_is_over(self)) broker_step(self);
  if (self->is_open) self->protocol->close(self->self, self->fatal[0] != 0);
  self->is_open = false;
  return NULL;
}

/* ---- The thread of `run` ---- */

static inline UNUSED size_t broker_take(broker_source *self, broker_message **messages) {
  size_t count = 0, bytes = 0;
  broker_lock(self);
  while (self->head != NULL && count < self->most && bytes < TAKEN_BYTES_MOST) {
    broker_message *one = messages[count++] = broker_remove(self, &self->head);
    bytes += one->bytes;
    if (self->protocol->take != NULL) self->protocol->take(self->self, one);
  }
  if (count > 0) pthread_cond_signal(&self->room);
  self->is_waiting = count == 0;
  broker_unlock(self);
  return count;
}

static inline UNUSED size_t broker_acks(broker_source *self, rxd_source *running, int64_t wait_ms) {
  size_t count = take_all_acks(running, wait_ms, self->protocol->judge, self->self, &self->mutex);
  if (count > 0 && self->protocol->wake != NULL) self->protocol->wake(self->self);
  self->under_way -= count;
  return count;
}

/* Adds the messages and sends the batch. False: rxd accepts no more. */
static inline UNUSED bool broker_send(broker_source *self, rxd_source *running, broker_message **messages, size_t count) {
  const broker_protocol *protocol = self->protocol;
  bool goes_on = true;
  size_t added = 0;
  for (; added < count && goes_on; added++) {
    goes_on = protocol->add(self->self, running, messages[added]);
    if (messages[added]->token != 0) self->under_way++;
  }
  if (protocol->added != NULL) protocol->added(self->self, running, messages[added - 1]);
  int64_t begin = now_ms();
  if (host->flush(running) == RXD_STOP) goes_on = false;
  if (self->has_positions) self->most = next_batch(self->most, TAKEN_MOST, begin);
  if (protocol->sent != NULL) protocol->sent(self->self, messages, count);
  return goes_on;
}

/* Passes messages to rxd and takes acknowledgements; waits if there are none. False: the source must stop. */
static inline UNUSED bool broker_turn(broker_source *self, rxd_source *running) {
  broker_message *messages[TAKEN_MOST];
  size_t count = broker_take(self, messages);
  bool goes_on = count == 0 || broker_send(self, running, messages, count);
  for (size_t i = 0; i < count; i++) self->protocol->destroy(messages[i]);
  if (broker_acks(self, running, 0) == 0 && count == 0) {
    struct pollfd both[2] = {{.fd = self->ready, .events = POLLIN},
                             {.fd = host->wake_descriptor(running), .events = POLLIN}};
    /* Acknowledgements that need not be passed on at once are collected for a while. */
    bool collects = self->protocol->collects_acks && self->under_way > 0;
    poll(both, collects ? 1 : 2, collects ? COLLECT_MS : IDLE_MS);
    if (both[0].revents != 0) clear_event(self->ready);
  }
  return goes_on && host->is_stopping(running) == 0;
}

/* Waits for outstanding events; the broker delivers unacknowledged messages again later. */
static inline UNUSED void broker_settle(broker_source *self, rxd_source *running) {
  int64_t end = now_ms() + ACKS_MS;
  while (self->under_way > 0 && host->is_stopping(running) != 2 && now_ms() < end && !broker_is_over(self))
    broker_acks(self, running, 100);
  broker_acks(self, running, 0);
}

static inline UNUSED void broker_stop(broker_source *self) {
  broker_lock(self);
  self->is_ending = true;
  self->close_by = now_ms() + CLOSE_MS;
  pthread_cond_signal(&self->room);
  broker_unlock(self);
  if (self->protocol->wake != NULL) self->protocol->wake(self->self);
  pthread_join(self->thread, NULL);
  broker_drop(self, NULL, 0);
}

/* Implements `run`. A failed source may work again later: rxd decides whether to retry. */
static inline UNUSED int broker_run(broker_source *self, rxd_scope *scope, rxd_source *running) {
  self->most = self->has_positions ? 1 : TAKEN_MOST;
  if (pthread_create(&self->thread, NULL, broker_thread, self) != 0)
    return fail_at(scope, "", "no thread can be started");
  while (broker_turn(self, running) && !broker_is_over(self)) {}
  broker_settle(self, running);
  broker_stop(self);
  return self->fatal[0] == 0 ? RXD_OK : fail_at(scope, self->fatal_at, "%s", self->fatal);
}

/* ---- Messages that are read on the thread of `run` ---- */

typedef struct reader {
  /* Connects and starts to receive. REFUSED: the source fails. */
  outcome (*open)(void *self);
  /* Called again and again while the connection is open: adds messages and flushes them. Returns soon after rxd accepts
   * no more; the result is then ignored. */
  outcome (*serve)(void *self);
  /* Closes the connection, also if it is only half open. `is_lost`: without a handshake. */
  void (*close)(void *self, bool is_lost);
} reader;

/* Implements `run`. */
static inline UNUSED int reader_run(const reader *reader, void *self, attempts *attempts, rxd_scope *scope,
                                    rxd_source *running) {
  bool is_open = false;
  outcome outcome = DONE;
  while (outcome != REFUSED && host->is_stopping(running) == 0) {
    outcome = is_open ? reader->serve(self) : reader->open(self);
    if (outcome == DONE) is_open = true;
    if (outcome != UNREACHABLE || host->is_stopping(running) != 0) continue;
    reader->close(self, true);
    is_open = false;
    pause_source(running, attempt_failed(attempts));
  }
  reader->close(self, !is_open || outcome != DONE);
  return outcome != REFUSED ? RXD_OK : fail_at(scope, attempts->at, "%s", attempts->problem);
}

#endif
