/* Consumers of streams: looked up, made if they are missing. */
#ifndef CONSUMER_H
#define CONSUMER_H
#include "client.h"

typedef enum found {
  FOUND,
  FOUND_LATER,  /* trying again may help; the client's `problem` says why */
  FOUND_NEVER,  /* the configuration is at fault; likewise */
} found;

/* What a source must know of a consumer. */
typedef struct consumer {
  char *name;           /* NULL: it was not looked up yet */
  int64_t created;      /* nanoseconds since 1970: a later one of this name is another consumer */
  int64_t ack_wait;     /* milliseconds: the shortest wait for an acknowledgement */
  int64_t batch_most;   /* of a request; 0: no limit */
  int64_t bytes_most;   /* likewise */
  uint64_t pending;     /* messages that it had not delivered when it was looked up or made */
} consumer;

/* Looks the consumer up, and makes it of `config` if there is none and `creates`. One that was looked up before must be
 * the same: sequences of another one may mean other messages. */
found consumer_find(client *client, const char *stream, const char *durable, jsConsumerConfig *config, bool creates,
                    consumer *consumer);
/* Makes one without a name, which keeps no acknowledgements. */
found consumer_make(client *client, const char *stream, jsConsumerConfig *config, consumer *consumer);
/* Removes one that was made without a name; the server does so later, too. */
void consumer_remove(client *client, const char *stream, const consumer *consumer);
void consumer_forget(consumer *consumer);
/* The first and the last sequence of a stream. */
found stream_bounds(client *client, const char *stream, uint64_t *first, uint64_t *last);

#endif
