/* Publishes a batch of messages and waits until it is certain what has become of each. */
#ifndef PUBLISH_H
#define PUBLISH_H
#include "client.h"

/* What has become of a message. */
typedef struct verdict {
  enum { TO_SEND, SENT, DELIVERED, REFUSED_ALONE, NO_STREAM } kind;
  char *problem; /* REFUSED_ALONE: the reason */
} verdict;

/* Makes the message of an input. NULL: refused, with the reason in `problem`, which has room for PROBLEM_MOST bytes. */
enum { PROBLEM_MOST = 240 };
typedef natsMsg *make_message(void *sink, rxd_scope *scope, const rxd_input *input, const char *reply, char *problem);

typedef struct publisher {
  client client;
  make_message *make;
  void *sink;
  char *stream;     /* that must store the messages; NULL: a server takes them, and nobody confirms */
  int64_t timeout;  /* milliseconds for a batch */
  /* Of the connection. */
  natsSubscription *acks;
  char *inbox;      /* the acknowledgement of a message comes to inbox.BATCH.INDEX */
  unsigned batch_number;
  /* Of the batch under way. */
  const rxd_batch *batch;
  rxd_scope *scope;
  verdict *verdicts;
  size_t *bytes;       /* of each message that is not acknowledged */
  size_t missing, missing_bytes;
  size_t unanswered;   /* of the missing: so many have no receiver, and the library does not say which */
  int64_t end;         /* now_ms */
  bool has_failed;     /* something that may pass; the client's `problem` says what */
} publisher;

int publisher_open(const rxd_opening *opening, publisher *publisher, make_message *make, void *sink);
void publisher_close(publisher *publisher);
/* `write` of a sink. */
int publisher_write(publisher *publisher, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts);

#endif
