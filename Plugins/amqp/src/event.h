/* Converts messages of AMQP to events. */
#ifndef EVENT_H
#define EVENT_H
#include "client.h"

/* A message in one block of memory, its data behind the header. */
typedef struct message {
  broker_message base; /* must be first */
  uint64_t tag;        /* delivery tag, from 1 in each channel */
  uint32_t epoch;      /* number of the channel that delivered it */
  bool is_redelivered;
  rxd_text exchange, routing_key, properties, body;
  int64_t offset;      /* offset in a stream; -1: none */
} message;

/* Both functions decode the properties into memory of the pool, which they recycle first. */
/* The member x-stream-offset of the headers; -1 if there is none. */
int64_t stream_offset(amqp_pool_t *pool, rxd_text properties);
/* Adds the message as an event, named after its offset if it has one, or rejects it as invalid input. False: rxd accepts no
 * more messages after this one. */
bool add_message(decoding decode, rxd_source *running, const char *queue, const message *message, amqp_pool_t *pool);

#endif
