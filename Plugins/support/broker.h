/* Code shared by clients of message brokers: failures in a row, tokens, acknowledgements. See README.md. */
#ifndef BROKER_H
#define BROKER_H
#include "plugin_util.h"

/* ---- Failures in a row ---- */

/* The connections that a component has made or tried to make. A plugin sets the first five members when it opens. */
typedef struct attempts {
  rxd_instance *instance;
  const char *counter;  /* name of the counter of failures; NULL: none */
  const char *again;    /* follows the problem in the log: "trying again" */
  const char *works;    /* follows the server in the log: "connected" */
  const char *suspect;  /* text logged after `again` if connections are repeatedly lost soon; NULL: none */
  bool was_connected;   /* the parameters have worked at least once */
  bool is_failing;      /* the failure has been logged */
  unsigned failures;    /* failed attempts in a row */
  unsigned short_lives; /* connections in a row that were lost soon */
  int64_t connected_at; /* when the current connection was made (now_ms); 0: there is none */
  char problem[520];    /* why the last attempt failed, and at which server */
  char at[24];          /* the parameter that caused the failure, or empty */
} attempts;

/* Sets `problem` to "server: text". `at`: the parameter that caused it, or "". */
__attribute__((format(printf, 4, 0)))
static inline UNUSED void attempt_trouble(attempts *self, const char *server, const char *at, const char *format,
                                          va_list arguments) {
  char text[sizeof self->problem];
  vsnprintf(text, sizeof text, format, arguments);
  snprintf(self->problem, sizeof self->problem, "%.200s: %.310s", server, text);
  snprintf(self->at, sizeof self->at, "%s", at);
}

/* Counts a failed attempt or a lost connection, and logs the first failure in a row. Returns the pause before the next
 * attempt, in milliseconds. Connections that are repeatedly lost soon after they were made count as failures. */
static inline UNUSED int64_t attempt_failed(attempts *self) {
  enum { SHORT_MS = 5000 };
  if (self->connected_at != 0) {
    self->short_lives = now_ms() - self->connected_at < SHORT_MS ? self->short_lives + 1 : 0;
    if (self->short_lives > 0) self->failures = self->short_lives - 1;
  }
  self->connected_at = 0;
  if (self->counter != NULL) host->count_up(self->instance, text_of(self->counter), 1);
  if (!self->is_failing)
    report(self->instance, "warning", "%s; %s%s", self->problem, self->again,
           self->short_lives > 2 && self->suspect != NULL ? self->suspect : "");
  self->is_failing = true;
  return backoff_ms(self->failures++);
}

/* Marks the connection as working, and logs the end of a failure. */
static inline UNUSED void attempt_works(attempts *self, const char *server) {
  if (self->is_failing) report(self->instance, "info", "%.200s: %s", server, self->works);
  if (self->connected_at == 0) self->connected_at = now_ms();
  self->was_connected = true;
  self->is_failing = false;
  self->failures = 0;
}

/* ---- Times ---- */

/* Reads a time such as "2026-01-31T12:00:00Z", also with a fraction or another offset, from 1970 on and before 2262. False:
 * the text is not one. */
static inline UNUSED bool read_time(const char *text, int64_t *nanoseconds) {
  struct tm time = {0};
  const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &time);
  if (at == NULL) return false;
  int64_t fraction = 0, unit = 1000000000;
  if (*at == '.')
    for (at++; isdigit((unsigned char)*at); at++) fraction += (*at - '0') * (unit /= 10);
  int hours = 0, minutes = 0, read = 0;
  if (strcmp(at, "Z") != 0 && (sscanf(at, "%3d:%2d%n", &hours, &minutes, &read) != 2 || read != 6 || at[6] != 0))
    return false;
  int64_t seconds = (int64_t)timegm(&time) - (hours * 3600 + (*at == '-' ? -minutes : minutes) * 60);
  if (seconds < 0 || seconds >= INT64_MAX / 1000000000) return false;
  *nanoseconds = seconds * 1000000000 + fraction;
  return true;
}

static inline UNUSED int time_parameter(const rxd_opening *opening, const char *name, int64_t *nanoseconds) {
  char *text;
  int status = text_parameter(opening, name, &text);
  if (status == RXD_OK && !read_time(text, nanoseconds))
    status = fail_at(opening->scope, name, "must be a time such as 2026-01-31T12:00:00Z");
  free(text);
  return status;
}

/* ---- Tokens ---- */

/* A token: an epoch in the high bits, such as the number of a channel, a sequence number in the low bits. Late
 * acknowledgements of an earlier epoch match nothing. Sequence numbers wrap; a trillion messages are never outstanding at
 * once. */
enum { SEQUENCE_BITS = 40, EPOCH_MOST = (1 << 24) - 1 };
static const uint64_t sequence_mask = ((uint64_t)1 << SEQUENCE_BITS) - 1;

/* Epochs start at 1, so that no token is 0, and wrap. */
static inline UNUSED uint32_t next_epoch(uint32_t epoch) { return epoch >= EPOCH_MOST ? 1 : epoch + 1; }
static inline UNUSED uint64_t token_of(uint32_t epoch, uint64_t sequence) {
  return (uint64_t)epoch << SEQUENCE_BITS | (sequence & sequence_mask);
}
static inline UNUSED uint32_t epoch_of(uint64_t token) { return (uint32_t)(token >> SEQUENCE_BITS); }
/* How far the token's sequence number is behind `first`. */
static inline UNUSED uint64_t index_of_token(uint64_t token, uint64_t first) { return (token - first) & sequence_mask; }

/* ---- Acknowledgements ---- */

/* Takes rxd's acknowledgements; waits at most `wait_ms` for the first. `judge` receives each with `closure`, under
 * `mutex` if there is one. Returns their number. */
typedef void apply_ack(void *closure, const rxd_ack *ack);
static inline UNUSED size_t take_all_acks(rxd_source *running, int64_t wait_ms, apply_ack *judge,
                                          void *closure, pthread_mutex_t *mutex) {
  enum { MOST = 256 };
  rxd_ack acks[MOST];
  size_t count, all = 0;
  do {
    count = host->acks(running, acks, MOST, wait_ms * 1000000);
    if (mutex != NULL && count > 0) pthread_mutex_lock(mutex);
    for (size_t i = 0; i < count; i++) judge(closure, &acks[i]);
    if (mutex != NULL && count > 0) pthread_mutex_unlock(mutex);
    all += count;
    wait_ms = 0;
  } while (count == MOST);
  return all;
}

/* ---- Batches ---- */

/* The maximum number of messages in the next batch: it shrinks if the pipeline has been slow since `begin` (now_ms), so
 * that positions are saved more often. */
static inline UNUSED size_t next_batch(size_t batch, size_t most, int64_t begin) {
  enum { SLOW_MS = 20 };
  if (now_ms() - begin > SLOW_MS) return (batch + 1) / 2;
  return batch * 2 < most ? batch * 2 : most;
}

#endif
