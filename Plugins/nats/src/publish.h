/* Publishes a batch of messages and waits until the outcome of each is certain. */
#ifndef PUBLISH_H
#define PUBLISH_H
#include "client.h"

/* The outcome of a message. */
typedef struct verdict {
  enum { TO_SEND, SENT, DELIVERED, REFUSED_ALONE, NO_STREAM } kind;
  char *problem; /* the reason, if REFUSED_ALONE */
} verdict;

/* Makes the message of an input. NULL: refused, with the reason in `problem`, which has room for PROBLEM_MOST bytes. */
enum { PROBLEM_MOST = 240 };
typedef natsMsg *make_message(void *sink, rxd_scope *scope, const rxd_input *input, const char *reply, char *problem);

typedef struct publisher {
  client client;
  make_message *make;
  void *sink;
  char *stream;     /* the stream that must store the messages; NULL: none, so nothing confirms them */
  int64_t timeout;  /* time limit of a batch, in milliseconds */
  /* State of the connection. */
  natsSubscription *acks;
  char *inbox;      /* the acknowledgement of a message arrives at inbox.BATCH.INDEX */
  unsigned batch_number;
  /* State of the current batch. */
  const rxd_batch *batch;
  rxd_scope *scope;
  verdict *verdicts;
  size_t *bytes;       /* size of each unacknowledged message */
  size_t missing, missing_bytes;
  size_t unanswered;   /* number of missing messages without a responder; the library does not identify them */
  int64_t end;         /* deadline (now_ms) */
  bool has_failed;     /* a temporary failure; the client's `problem` has the reason */
} publisher;

int publisher_open(const rxd_opening *opening, publisher *publisher, make_message *make, void *sink);
void publisher_close(publisher *publisher);
/* Implements `write` of a sink. */
int publisher_write(publisher *publisher, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts);

#endif
