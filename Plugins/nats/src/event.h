/* Messages of NATS as events. */
#ifndef EVENT_H
#define EVENT_H
#include "client.h"

typedef enum decoding { DECODE_TEXT, DECODE_JSON, DECODE_BYTES } decoding;

/* What JetStream says of a message in its reply subject. */
typedef struct origin {
  rxd_text stream;     /* within the reply subject */
  uint64_t deliveries; /* this one included */
  uint64_t sequence;   /* in the stream, from 1 */
  uint64_t consumer_sequence;
  int64_t time;        /* nanoseconds since 1970, when it was stored */
  uint64_t pending;    /* messages that the consumer has not delivered yet */
} origin;

decoding decode_parameter(const rxd_opening *opening);
/* False: it is no message of a consumer. */
bool read_origin(const char *reply, origin *origin);
/* Bytes of the message with its headers, and what it takes beside. */
size_t message_size(natsMsg *message);
/* An object; of a header that occurs several times, a list. False: the message has no headers. */
bool headers_value(rxd_scope *scope, natsMsg *message, rxd_value *value);
/* False: it is no JSON document. */
bool content_value(rxd_scope *scope, decoding decode, natsMsg *message, rxd_value *value);
/* Adds the message as an event, or hands it over as no event. `origin`: NULL for one that no stream has kept. False: it
 * is the last one that rxd takes. */
bool add_message(decoding decode, rxd_source *running, natsMsg *message, const origin *origin, uint64_t token);

#endif
