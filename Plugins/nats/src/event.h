/* Converts NATS messages to events. */
#ifndef EVENT_H
#define EVENT_H
#include "client.h"

/* The metadata of a message in its JetStream reply subject. */
typedef struct origin {
  rxd_text stream;     /* a part of the reply subject */
  uint64_t deliveries; /* this one included */
  uint64_t sequence;   /* sequence number in the stream, from 1 */
  uint64_t consumer_sequence;
  int64_t time;        /* when it was stored, in nanoseconds since 1970 */
  uint64_t pending;    /* messages not yet delivered by the consumer */
} origin;

/* False: the message was not delivered by a consumer. */
bool read_origin(const char *reply, origin *origin);
/* The size of the message with its headers, plus its overhead. */
size_t message_size(natsMsg *message);
/* The headers as an object; a repeated header becomes a list. False: the message has no headers. */
bool headers_value(rxd_scope *scope, natsMsg *message, rxd_value *value);
/* False: the content is not a JSON document. */
bool message_value(rxd_scope *scope, decoding decode, natsMsg *message, rxd_value *value);
/* Names the event that was added last: "STREAM/SEQUENCE", "BUCKET/REVISION". */
void name_event(rxd_source *running, rxd_text holder, uint64_t sequence);
/* Adds the message as an event, or rejects it as invalid input. `origin`: NULL if no stream has stored it, so that the
 * event has no name. False: rxd accepts no more messages after this one. */
bool add_message(decoding decode, rxd_source *running, natsMsg *message, const origin *origin, uint64_t token);

#endif
