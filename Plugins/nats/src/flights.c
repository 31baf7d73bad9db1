#include "flights.h"

enum { BUCKETS_LEAST = 256 };

static flight **bucket(const flights *flights, uint64_t sequence) {
  return &flights->buckets[(sequence & sequence_mask) & (flights->bucket_count - 1)];
}

flight *flights_find(const flights *flights, uint64_t sequence) {
  if (flights->bucket_count == 0) return NULL;
  for (flight *flight = *bucket(flights, sequence); flight != NULL; flight = flight->next)
    if (((flight->sequence ^ sequence) & sequence_mask) == 0) return flight;
  return NULL;
}

static void grow(flights *flights) {
  struct flights old = *flights;
  flights->bucket_count = old.bucket_count == 0 ? BUCKETS_LEAST : old.bucket_count * 2;
  flights->buckets = need(calloc(flights->bucket_count, sizeof *flights->buckets));
  for (size_t i = 0; i < old.bucket_count; i++) {
    for (flight *one = old.buckets[i], *next; one != NULL; one = next) {
      next = one->next;
      one->next = *bucket(flights, one->sequence);
      *bucket(flights, one->sequence) = one;
    }
  }
  free(old.buckets);
}

flight *flights_add(flights *flights, uint64_t sequence, const char *reply) {
  if (flights->count >= flights->bucket_count) grow(flights);
  flight **at = bucket(flights, sequence), *one = need(calloc(1, sizeof *one));
  flights->last_number = next_epoch(flights->last_number);
  *one = (flight){.next = *at, .sequence = sequence, .number = flights->last_number, .extended_at = now_ms(),
                  .reply = need(strdup(reply))};
  *at = one;
  flights->count++;
  return one;
}

uint64_t flight_token(const flight *flight) { return token_of(flight->number, flight->sequence); }

flight *flights_of_token(const flights *flights, uint64_t token) {
  flight *flight = flights_find(flights, token & sequence_mask);
  return flight != NULL && flight->number == epoch_of(token) ? flight : NULL;
}

void flight_renew(flight *flight, const char *reply) {
  free(flight->reply);
  flight->reply = need(strdup(reply));
  flight->extended_at = now_ms();
}

void flights_remove(flights *flights, flight *gone) {
  flight **at = bucket(flights, gone->sequence);
  while (*at != gone) at = &(*at)->next;
  *at = gone->next;
  flights->count--;
  free(gone->reply);
  free(gone);
}

void flights_each(flights *flights, visit_flight *visit, void *closure) {
  for (size_t i = 0; i < flights->bucket_count; i++) {
    for (flight *one = flights->buckets[i], *next; one != NULL; one = next) {
      next = one->next;
      visit(flights, one, closure);
    }
  }
}

static void forget(flights *flights, flight *one, void *closure) {
  (void)closure;
  flights_remove(flights, one);
}

void flights_clear(flights *flights) {
  flights_each(flights, forget, NULL);
  free(flights->buckets);
  memset(flights, 0, sizeof *flights);
}
