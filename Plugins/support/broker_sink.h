/* The batch of a sink that sends messages one by one and learns the outcome of each later. Header only; see README.md. */
#ifndef BROKER_SINK_H
#define BROKER_SINK_H
#include "plugin_util.h"

/* The state of a message. */
enum {
  TO_SEND,
  SENT,          /* without an answer */
  DELIVERED,
  REFUSED_ALONE,
  OWN_VERDICT,   /* first state defined by a sink: an answer that leaves the message unsettled */
};

typedef struct verdict {
  int kind;
  size_t bytes;   /* size, while it is SENT */
  char *problem;  /* the reason, if REFUSED_ALONE */
} verdict;

typedef struct sending {
  rxd_instance *instance;
  int64_t timeout;   /* time limit of a batch, in milliseconds */
  /* The current batch. */
  const rxd_batch *batch;
  rxd_scope *scope;
  verdict *verdicts; /* one for each input */
  size_t missing, missing_bytes; /* number and bytes of SENT messages */
  int64_t end;       /* deadline (now_ms) */
  bool has_failed;   /* a temporary failure: the batch is repeated from the first uncertain message on */
} sending;

static inline UNUSED void sending_begin(sending *self, rxd_scope *scope, const rxd_batch *batch) {
  self->batch = batch;
  self->scope = scope;
  self->verdicts = (verdict *)need(calloc(batch->count + 1, sizeof *self->verdicts));
  self->missing = self->missing_bytes = 0;
  self->end = now_ms() + self->timeout;
  self->has_failed = false;
}

static inline UNUSED void sending_end(sending *self) {
  for (size_t i = 0; i < self->batch->count; i++) free(self->verdicts[i].problem);
  free(self->verdicts);
  self->verdicts = NULL;
  self->batch = NULL;
}

static inline UNUSED const rxd_input *sending_input(const sending *self, size_t index) {
  return (const rxd_input *)(const void *)((const char *)self->batch->inputs + index * self->batch->input_size);
}

/* Other inputs count as delivered. */
static inline UNUSED bool sending_is_event(const sending *self, size_t index) {
  return sending_input(self, index)->kind == RXD_EVENT;
}

/* Whether the time limit has passed, or rxd needs no result any more. */
static inline UNUSED bool sending_is_over(const sending *self) {
  return now_ms() > self->end || host->is_closing(self->instance) != 0;
}

static inline UNUSED void sending_mark(sending *self, size_t index, int kind) {
  verdict *verdict = &self->verdicts[index];
  if (verdict->kind == SENT) {
    self->missing--;
    self->missing_bytes -= verdict->bytes;
  }
  verdict->kind = kind;
}

static inline UNUSED void sending_sent(sending *self, size_t index, size_t bytes) {
  sending_mark(self, index, SENT);
  self->verdicts[index].bytes = bytes;
  self->missing++;
  self->missing_bytes += bytes;
}

/* The message can never be delivered; rxd receives the reason. */
static inline UNUSED void sending_refuse(sending *self, size_t index, const char *problem) {
  sending_mark(self, index, REFUSED_ALONE);
  free(self->verdicts[index].problem);
  self->verdicts[index].problem = (char *)need(strdup(problem));
}

/* Messages without an answer are sent again. */
static inline UNUSED void sending_again(sending *self) {
  for (size_t i = 0; i < self->batch->count; i++)
    if (self->verdicts[i].kind == SENT) sending_mark(self, i, TO_SEND);
}

/* Reports every certain verdict up to the first uncertain message, and all refusals. Returns the index of that message, or the
 * size of the batch: rxd repeats it and all later messages that were not refused or reported by `sending_report_later`. */
static inline UNUSED size_t sending_report(const sending *self, rxd_verdicts *verdicts) {
  size_t through = self->batch->count;
  for (size_t i = self->batch->count; i-- > 0;) {
    const verdict *one = &self->verdicts[i];
    if (one->kind == REFUSED_ALONE) host->refuse(verdicts, i, text_of(one->problem));
    else if (one->kind != DELIVERED) through = i;
  }
  if (through < self->batch->count) host->delivered(verdicts, through);
  return through;
}

/* The order key of a message: a hash of its partition or subject, or one of these. Messages with equal keys stay in
 * order. */
static const uint64_t order_none = 0;         /* nothing */
static const uint64_t order_all = UINT64_MAX; /* unknown: in order with all messages */
typedef uint64_t order_of_message(const void *closure, size_t index);

static inline UNUSED uint64_t order_hash(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *at = (const unsigned char *)bytes;
  if (hash == 0) hash = 0xcbf29ce484222325; /* FNV-1a */
  for (size_t i = 0; i < count; i++) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash == order_none || hash == order_all ? 1 : hash;
}

/* A table of hashes. Returns the entry of one, or the free entry where it belongs. */
static inline UNUSED uint64_t *order_entry(uint64_t *table, size_t capacity, uint64_t order) {
  size_t index = (size_t)(order ^ order >> 32) & (capacity - 1);
  while (table[index] != order_none && table[index] != order) index = (index + 1) & (capacity - 1);
  return &table[index];
}

/* Follows `sending_report`, whose result is `through`. Also reports delivered messages after the first uncertain one, which rxd
 * then does not repeat. Messages that must stay in order with an earlier uncertain one are left out: they are sent
 * again after it. The plugin needs version 1.3 of rxd_plugin.h. */
static inline UNUSED void sending_report_later(const sending *self, rxd_verdicts *verdicts, size_t through,
                                               order_of_message *order_of, const void *closure) {
  size_t capacity = 16;
  while (capacity < 2 * (self->batch->count - through)) capacity *= 2;
  uint64_t *held = (uint64_t *)need(calloc(capacity, sizeof *held));
  bool holds_all = false;
  for (size_t i = through; i < self->batch->count && !holds_all; i++) {
    int kind = self->verdicts[i].kind;
    if (kind == REFUSED_ALONE || !sending_is_event(self, i)) continue;
    uint64_t order = order_of(closure, i);
    if (kind == DELIVERED) {
      if (order == order_none || (order != order_all && *order_entry(held, capacity, order) == order_none))
        host->delivered_at(verdicts, i);
    } else if (order == order_all) holds_all = true;
    else if (order != order_none) *order_entry(held, capacity, order) = order;
  }
  free(held);
}

/* Reads the expression parameter 'retracted' for an event. Returns why the event is refused, or NULL. */
static inline UNUSED const char *retraction_problem(const rxd_input *input, uint32_t index, bool *is_retracted) {
  int kind = input->argument_count > index ? host->kind(&input->arguments[index]) : RXD_ABSENT;
  *is_retracted = kind == RXD_BOOL && host->boolean(&input->arguments[index]) != 0;
  if (kind == RXD_ABSENT || kind == RXD_NULL || kind == RXD_BOOL) return NULL;
  return "'retracted' must be true, false or null, and is something else for this event";
}

#endif
