/* Messages of a consumer, asked for in batches: one request at a time. Used on one thread. */
#ifndef PULL_H
#define PULL_H
#include "event.h"

typedef struct pull {
  natsSubscription *subscription;
  char *inbox;        /* the request N is answered to inbox.N */
  char *subject;      /* of requests */
  unsigned number;    /* of the last request */
  int left;           /* messages that the request may still bring; 0: it has ended */
  int64_t ends_at;    /* now_ms: the server has ended it by then */
  int64_t silent_at;  /* now_ms: without a sign of life until then, it is lost */
} pull;

typedef struct pull_answer {
  enum {
    PULL_MESSAGE,
    PULL_NOTHING, /* within the time */
    PULL_ENDED,   /* the request; the next one may bring more */
    PULL_TOO_LARGE, /* likewise: the next message has more bytes than were asked for */
    PULL_NO_CONSUMER, /* perhaps: nobody answers, or the consumer was deleted */
    PULL_REFUSED, /* `problem` says why; requests of this kind are refused again */
    PULL_LOST,    /* the connection */
  } kind;
  natsMsg *message; /* PULL_MESSAGE; the caller destroys it */
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
