/* Messages that a consumer has delivered and that are not acknowledged: a table by their sequence in the stream.
 * Nothing here locks: the caller holds the source's mutex. */
#ifndef FLIGHTS_H
#define FLIGHTS_H
#include "client.h"

typedef struct flight {
  struct flight *next;
  uint64_t sequence;
  uint32_t number;     /* of this delivery, a part of its token: acknowledgements for an earlier one find nothing */
  bool is_done;        /* rxd has acknowledged it, and the server could not be told yet */
  int64_t extended_at; /* now_ms: when it was delivered, or the server was last told that it is under way */
  char *reply;         /* where its acknowledgement goes */
} flight;

typedef struct flights {
  flight **buckets;
  size_t bucket_count, count;
  uint32_t last_number;
} flights;

flight *flights_find(const flights *flights, uint64_t sequence);
flight *flights_add(flights *flights, uint64_t sequence, const char *reply);
/* The message that the token was made for; NULL: it was settled, or delivered anew since. */
flight *flights_of_token(const flights *flights, uint64_t token);
uint64_t flight_token(const flight *flight);
/* It was delivered again: the server counts from the new delivery. */
void flight_renew(flight *flight, const char *reply);
void flights_remove(flights *flights, flight *gone);
/* Calls `visit` for each flight, which it may remove. */
typedef void visit_flight(flights *flights, flight *flight, void *closure);
void flights_each(flights *flights, visit_flight *visit, void *closure);
void flights_clear(flights *flights);

#endif
