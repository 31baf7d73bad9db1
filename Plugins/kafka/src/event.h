/* Converts Kafka messages to events. */
#ifndef EVENT_H
#define EVENT_H
#include "settings.h"

/* Adds the message as an event with a name, or rejects it as invalid input. False: rxd accepts no more messages after
 * this one. */
bool add_message(decoding decode, rxd_source *running, const rd_kafka_message_t *message, uint64_t token);

#endif
