/* Publishes a batch of messages and waits until the outcome of each is certain. */
#ifndef PUBLISH_H
#define PUBLISH_H
#include "client.h"

#include <broker_sink.h>

/* Makes the message of an input. NULL: refused, with the reason in `problem`, which has room for PROBLEM_MOST bytes. */
enum { PROBLEM_MOST = 240 };
typedef natsMsg *make_message(void *sink, rxd_scope *scope, const rxd_input *input, const char *reply, char *problem);

typedef struct publisher {
  client client;
  make_message *make;
  void *sink;
  char *stream;     /* the stream that must store the messages; NULL: none, so nothing confirms them */
  /* State of the connection. */
  natsSubscription *acks;
  char *inbox;      /* the acknowledgement of a message arrives at inbox.BATCH.INDEX */
  unsigned batch_number;
  sending sending;     /* after a failure, the attempts of the client have the reason */
  size_t unanswered;   /* number of missing messages without a responder; the library does not identify them */
} publisher;

int publisher_open(const rxd_opening *opening, publisher *publisher, make_message *make, void *sink);
void publisher_close(publisher *publisher);
/* Implements `write` of a sink. */
int publisher_write(publisher *publisher, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts);

#endif
