/* Delivered but unacknowledged messages of a consumer: a table indexed by stream sequence. Nothing here locks: the
 * caller holds the source's mutex. */
#ifndef FLIGHTS_H
#define FLIGHTS_H
#include "client.h"

typedef struct flight {
  struct flight *next;
  uint64_t sequence;
  uint32_t number;     /* number of this delivery, a part of its token: acknowledgements of earlier deliveries match nothing */
  bool is_done;        /* acknowledged by rxd, but not yet to the server */
  int64_t extended_at; /* when it was delivered or last reported as in progress (now_ms) */
  char *reply;         /* subject for its acknowledgement */
} flight;

typedef struct flights {
  flight **buckets;
  size_t bucket_count, count;
  uint32_t last_number;
} flights;

flight *flights_find(const flights *flights, uint64_t sequence);
flight *flights_add(flights *flights, uint64_t sequence, const char *reply);
/* The message for which the token was made; NULL: it has been settled or delivered again since. */
flight *flights_of_token(const flights *flights, uint64_t token);
uint64_t flight_token(const flight *flight);
/* Records that the message was delivered again: the server's ack wait restarts. */
void flight_renew(flight *flight, const char *reply);
void flights_remove(flights *flights, flight *gone);
/* Calls `visit` for each message, which it may remove. */
typedef void visit_flight(flights *flights, flight *flight, void *closure);
void flights_each(flights *flights, visit_flight *visit, void *closure);
void flights_clear(flights *flights);

#endif
