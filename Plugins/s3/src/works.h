/* Objects that are read and not acknowledged, each perhaps named by a message of a queue. */
#ifndef WORKS_H
#define WORKS_H
#include "reader.h"

enum { WORKS_MOST = 1000, WORK_BUCKETS = 1024 };

typedef struct message {
  struct message *next;
  char *receipt;
  unsigned works;       /* of its objects that are not settled */
  bool is_read;         /* all of its objects are in `works`, or were settled at once */
  bool has_failed;
  unsigned deliveries;  /* this one included */
  int64_t extended_at;  /* now_ms: when the queue was last told that it is under way */
} message;

typedef struct work {
  struct work *next;
  uint32_t number;      /* never 0 */
  uint32_t sequence;    /* of the last event */
  uint64_t open;        /* events that rxd has not answered for */
  object object;
  message *message;     /* NULL: it was found by a listing */
  bool is_read, has_failed, is_incomplete;
  unsigned failures;
  int64_t again_at;     /* now_ms: when it is read again, or what follows it is tried again */
} work;

typedef struct works {
  work *buckets[WORK_BUCKETS];
  size_t count;
  uint32_t last_number;
} works;

/* Takes over what is in the object. */
work *works_add(works *works, object *object);
work *works_of_key(const works *works, const char *key);
void works_remove(works *works, work *work);
void works_clear(works *works);
/* A token for the next event. */
uint64_t work_token(work *work);
/* Takes answers of rxd, waits for the first one; how many. */
size_t works_take_acks(works *works, rxd_source *running, int64_t wait_ms);
/* The next one that is read or waits, in no order; NULL: the last one was `work`. */
work *works_next(const works *works, const work *work);

#endif
