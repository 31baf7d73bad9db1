/* Messages of Kafka as events. */
#ifndef EVENT_H
#define EVENT_H
#include "settings.h"

typedef enum decoding { DECODE_TEXT, DECODE_JSON, DECODE_BYTES } decoding;

/* Adds the message as an event, or hands it over as no event. False: it is the last one that rxd takes. */
bool add_message(decoding decode, rxd_source *running, const rd_kafka_message_t *message, uint64_t token);

#endif
