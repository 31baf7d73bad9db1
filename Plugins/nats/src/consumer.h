/* Consumers of streams: looks them up, and creates missing ones. */
#ifndef CONSUMER_H
#define CONSUMER_H
#include "client.h"

/* The properties of a consumer that a source needs. */
typedef struct consumer {
  char *name;           /* NULL: not looked up yet */
  int64_t created;      /* nanoseconds since 1970; a later time means another consumer of this name */
  int64_t ack_wait;     /* the shortest acknowledgement wait, in milliseconds */
  int64_t batch_most;   /* messages per request; 0: no limit */
  int64_t bytes_most;   /* bytes per request; 0: no limit */
  uint64_t pending;     /* undelivered messages when it was looked up or created */
} consumer;

/* Looks the consumer up; creates it from `config` if it does not exist and `creates`. If it was looked up before, it
 * must be the same consumer: sequences of another one may denote other messages. */
outcome consumer_find(client *client, const char *stream, const char *durable, jsConsumerConfig *config, bool creates,
                    consumer *consumer);
/* The number of undelivered messages; keeps `pending` if there is no answer by then. */
void consumer_pending(client *client, const char *stream, const char *durable, int64_t wait_ms, uint64_t *pending);
/* Creates a consumer without a name, which tracks no acknowledgements. */
outcome consumer_make(client *client, const char *stream, jsConsumerConfig *config, consumer *consumer);
/* Removes a consumer without a name; otherwise the server does so later. */
void consumer_remove(client *client, const char *stream, const consumer *consumer);
void consumer_forget(consumer *consumer);
/* Gets the first and the last sequence number of a stream. */
outcome stream_bounds(client *client, const char *stream, uint64_t *first, uint64_t *last);

#endif
