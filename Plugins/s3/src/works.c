#include "works.h"

#include "listing.h"

#include <broker.h>

static work **bucket(works *works, uint32_t number) { return &works->buckets[number % WORK_BUCKETS]; }

work *works_add(works *works, object *object) {
  if (++works->last_number == 0) works->last_number = 1;
  work *one = need(calloc(1, sizeof *one));
  work **at = bucket(works, works->last_number);
  one->number = works->last_number;
  one->object = *object;
  *object = (struct object){0};
  one->next = *at;
  *at = one;
  works->count++;
  return one;
}

work *works_next(const works *works, const work *work) {
  if (work != NULL && work->next != NULL) return work->next;
  for (size_t i = work != NULL ? work->number % WORK_BUCKETS + 1 : 0; i < WORK_BUCKETS; i++)
    if (works->buckets[i] != NULL) return works->buckets[i];
  return NULL;
}

work *works_of_key(const works *works, const char *key) {
  for (work *one = works_next(works, NULL); one != NULL; one = works_next(works, one))
    if (strcmp(one->object.key, key) == 0) return one;
  return NULL;
}

void works_remove(works *works, work *work) {
  struct work **at = bucket(works, work->number);
  while (*at != work) at = &(*at)->next;
  *at = work->next;
  works->count--;
  object_free(&work->object);
  free(work);
}

void works_clear(works *works) {
  for (work *one; (one = works_next(works, NULL)) != NULL;) works_remove(works, one);
}

uint64_t work_token(work *work) {
  work->open++;
  return (uint64_t)work->number << 32 | ++work->sequence;
}

static void judge(void *closure, const rxd_ack *ack) {
  uint32_t number = (uint32_t)(ack->token >> 32);
  work *one = *bucket(closure, number);
  while (one != NULL && one->number != number) one = one->next;
  if (one == NULL || one->open == 0) return;
  one->open--;
  if (ack->is_failed) one->has_failed = true;
}

size_t works_take_acks(works *works, rxd_source *running, int64_t wait_ms) {
  return take_all_acks(running, wait_ms, judge, works, NULL);
}
