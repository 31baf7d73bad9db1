#include "tags.h"

static uint8_t *state_of(const tags *tags, uint64_t tag) { return &tags->states[tag & (tags->capacity - 1)]; }

void tags_clear(tags *tags) {
  tags->first = tags->end = 1;
  tags->acknowledged = tags->failed = 0;
}

void tags_free(tags *tags) {
  free(tags->states);
  memset(tags, 0, sizeof *tags);
}

static void grow(tags *tags) {
  enum { LEAST = 1024 };
  struct tags old = *tags;
  tags->capacity = old.capacity == 0 ? LEAST : old.capacity * 2;
  tags->states = need(calloc(tags->capacity, 1));
  for (uint64_t tag = old.first; tag < old.end; tag++) *state_of(tags, tag) = *state_of(&old, tag);
  free(old.states);
}

bool tags_add(tags *tags, uint64_t tag) {
  if (tag != tags->end) return false;
  if (tags_under_way(tags) >= tags->capacity) grow(tags);
  *state_of(tags, tag) = UNDER_WAY;
  tags->end++;
  return true;
}

bool tags_mark(tags *tags, uint64_t tag, tag_state state) {
  if (tag < tags->first || tag >= tags->end || *state_of(tags, tag) != UNDER_WAY) return false;
  *state_of(tags, tag) = (uint8_t)state;
  if (state == ACKNOWLEDGED) tags->acknowledged++;
  if (state == FAILED) tags->failed++;
  return true;
}

/* Answers for the front, up to the first tag that is outstanding or waits as failed, with one frame. The server
 * refuses a second answer for a tag, so the frame names the last unanswered one. */
static void settle_front(tags *tags, send_tag *send, void *closure) {
  uint64_t last = 0;
  size_t count = 0;
  for (; tags->first < tags->end; tags->first++) {
    uint8_t state = *state_of(tags, tags->first);
    if (state != ACKNOWLEDGED && state != SETTLED) break;
    if (state == SETTLED) continue;
    last = tags->first;
    count++;
  }
  if (count == 0) return;
  tags->acknowledged -= count;
  send(closure, last, false, count > 1);
}

void tags_settle(tags *tags, bool with_failed, send_tag *send, void *closure) {
  if (tags->acknowledged > 0) settle_front(tags, send, closure);
  for (uint64_t tag = tags->first; tag < tags->end && (tags->acknowledged > 0 || (with_failed && tags->failed > 0));
       tag++) {
    uint8_t *state = state_of(tags, tag);
    bool is_failed = *state == FAILED;
    if (*state != ACKNOWLEDGED && !(is_failed && with_failed)) continue;
    if (is_failed) tags->failed--;
    else tags->acknowledged--;
    *state = SETTLED;
    send(closure, tag, is_failed, false);
  }
  while (tags->first < tags->end && *state_of(tags, tags->first) == SETTLED) tags->first++;
}
