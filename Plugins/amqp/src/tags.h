/* The outcomes of unacknowledged deliveries: a ring indexed by tag; a channel counts tags from 1. Nothing here locks. */
#ifndef TAGS_H
#define TAGS_H
#include <plugin_util.h>

typedef enum tag_state { UNDER_WAY, ACKNOWLEDGED, FAILED, SETTLED } tag_state;

typedef struct tags {
  uint8_t *states;
  size_t capacity;     /* a power of two */
  uint64_t first, end; /* the stored tags: `first ..< end` */
  size_t acknowledged, failed; /* not yet reported to the server */
} tags;

/* Resets the ring for a new channel. */
void tags_clear(tags *tags);
void tags_free(tags *tags);
/* False: the tag is out of sequence. */
bool tags_add(tags *tags, uint64_t tag);
/* False: the tag is not outstanding, and nothing changes. */
bool tags_mark(tags *tags, uint64_t tag, tag_state state);
/* Calls `send` for each due answer: for acknowledged tags, with `is_multiple` for all up to the tag; and with
 * `with_failed`, for failed ones. */
typedef void send_tag(void *closure, uint64_t tag, bool is_failed, bool is_multiple);
void tags_settle(tags *tags, bool with_failed, send_tag *send, void *closure);
static inline size_t tags_under_way(const tags *tags) { return (size_t)(tags->end - tags->first); }

#endif
