/* Pulls messages of a consumer in batches, with one request at a time. Used on one thread. */
#ifndef PULL_H
#define PULL_H
#include "event.h"

typedef struct pull {
  natsSubscription *subscription;
  char *inbox;        /* request N is answered at inbox.N */
  char *subject;      /* subject of requests */
  unsigned number;    /* number of the last request */
  int left;           /* messages that the request may still deliver; 0: it has ended */
  int64_t ends_at;    /* when the server must have ended it (now_ms) */
  int64_t silent_at;  /* when it counts as lost without a heartbeat (now_ms) */
} pull;

typedef struct pull_answer {
  enum {
    PULL_MESSAGE,
    PULL_NOTHING, /* no message within the time */
    PULL_ENDED,   /* the request has ended; the next one may deliver more */
    PULL_TOO_LARGE, /* the request has ended: the next message exceeds its limit in bytes */
    PULL_NO_CONSUMER, /* the consumer may be gone: nothing answers, or the server says so */
    PULL_REFUSED, /* the server refuses such requests; `problem` has the reason */
    PULL_LOST,    /* the connection is lost */
  } kind;
  natsMsg *message; /* set with PULL_MESSAGE; the caller destroys it */
  origin origin;
  char problem[120];
} pull_answer;

/* RXD_FAILED: the connection is lost. */
int pull_begin(pull *pull, client *client, const char *stream, const char *consumer);
void pull_end(pull *pull);
/* `most_bytes`: 0 for no limit. */
int pull_request(pull *pull, client *client, int batch, size_t most_bytes);
void pull_next(pull *pull, client *client, int64_t wait_ms, pull_answer *answer);

#endif
