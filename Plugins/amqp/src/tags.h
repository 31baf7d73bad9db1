/* What has become of deliveries that are not acknowledged: a ring by their tags, which a channel counts from 1. Nothing
 * here locks. */
#ifndef TAGS_H
#define TAGS_H
#include <plugin_util.h>

typedef enum tag_state { UNDER_WAY, ACKNOWLEDGED, FAILED, SETTLED } tag_state;

typedef struct tags {
  uint8_t *states;
  size_t capacity;     /* a power of two */
  uint64_t first, end; /* the tags that are kept: from `first` on, before `end` */
  size_t acknowledged, failed; /* that the server does not know of */
} tags;

/* For a new channel: nothing is under way. */
void tags_clear(tags *tags);
void tags_free(tags *tags);
/* False: the tag is not the next one. */
bool tags_add(tags *tags, uint64_t tag);
/* False: it is not under way, so this changes nothing. */
bool tags_mark(tags *tags, uint64_t tag, tag_state state);
/* Calls `send` for each answer that is due: tags that are acknowledged, with `is_multiple` also all before; and with
 * `with_failed`, those that have failed. */
typedef void send_tag(void *closure, uint64_t tag, bool is_failed, bool is_multiple);
void tags_settle(tags *tags, bool with_failed, send_tag *send, void *closure);
static inline size_t tags_under_way(const tags *tags) { return (size_t)(tags->end - tags->first); }

#endif
