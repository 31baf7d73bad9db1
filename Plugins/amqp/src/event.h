/* Messages of AMQP as events. */
#ifndef EVENT_H
#define EVENT_H
#include "client.h"

typedef enum decoding { DECODE_TEXT, DECODE_JSON, DECODE_BYTES } decoding;

/* One block of memory, with everything of the message behind it. */
typedef struct message {
  struct message *next;
  uint64_t tag;        /* of the delivery, from 1 in each channel */
  uint64_t channel_number; /* of the channel that it came by */
  uint64_t token;      /* for rxd; 0: none */
  bool is_redelivered;
  rxd_text exchange, routing_key, properties, body;
  int64_t offset;      /* in a stream; -1: none */
} message;

decoding decode_parameter(const rxd_opening *opening);
/* Both decode the properties into memory of the pool, which they recycle first. */
/* The member x-stream-offset of the headers; -1: there is none. */
int64_t stream_offset(amqp_pool_t *pool, rxd_text properties);
/* Adds the message as an event, or hands it over as no event. False: it is the last one that rxd takes. */
bool add_message(decoding decode, rxd_source *running, const message *message, amqp_pool_t *pool);

#endif
