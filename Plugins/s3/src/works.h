/* Unacknowledged objects, each with the queue message that named it, if any. */
#ifndef WORKS_H
#define WORKS_H
#include "reader.h"

enum { WORKS_MOST = 1000, WORK_BUCKETS = 1024 };

typedef struct message {
  struct message *next;
  char *receipt;
  unsigned works;       /* its objects that are not settled */
  bool is_read;         /* all of its objects are in `works` or already settled */
  bool has_failed;
  unsigned deliveries;  /* this one included */
  int64_t extended_at;  /* when its visibility was last extended (now_ms) */
} message;

typedef struct work {
  struct work *next;
  uint32_t number;      /* never 0 */
  uint32_t sequence;    /* sequence number of the last event */
  uint64_t open;        /* events without rxd's answer */
  object object;
  message *message;     /* NULL: found by a listing */
  bool is_read, has_failed, is_incomplete;
  unsigned failures;
  int64_t again_at;     /* when it is read again, or its action is retried (now_ms) */
} work;

typedef struct works {
  work *buckets[WORK_BUCKETS];
  size_t count;
  uint32_t last_number;
} works;

/* Takes ownership of the object's content. */
work *works_add(works *works, object *object);
work *works_of_key(const works *works, const char *key);
void works_remove(works *works, work *work);
void works_clear(works *works);
/* Makes a token for the next event. */
uint64_t work_token(work *work);
/* Handles rxd's answers, waiting for the first; returns their number. */
size_t works_take_acks(works *works, rxd_source *running, int64_t wait_ms);
/* The next object that is being read or waits, in no particular order; NULL: `work` was the last. */
work *works_next(const works *works, const work *work);

#endif
