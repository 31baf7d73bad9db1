/* Lists a bucket, and remembers which objects were read. */
#ifndef LISTING_H
#define LISTING_H
#include "reader.h"

/* ---- A page of a listing ---- */

enum { PAGE_MOST = 1000 };

typedef struct page {
  object *objects;
  size_t count;
  bool is_last;
  int64_t date; /* the server's time, in milliseconds since 1970 */
} page;

/* Gets the objects after the key, in key order. */
outcome page_get(client *client, const char *prefix, const char *after, page *page);
void page_free(page *page);
void object_free(object *object);

/* ---- Objects already read ---- */

/* Objects modified at `settled` or earlier count as read. Of newer ones, those in the table do. */
typedef struct seen_entry {
  uint64_t name; /* hash of the key and the ETag */
  int64_t modified;
} seen_entry;

typedef struct seen {
  seen_entry *entries;
  uint32_t *slots; /* indexes + 1, by hash */
  size_t count, slot_count, most;
  int64_t settled; /* milliseconds since 1970; INT64_MIN: none */
} seen;

bool seen_has(const seen *seen, const object *object);
/* True: the table was full and its oldest tenth was forgotten; `settled`, or `*forgotten` if given, moves to the newest of
 * the forgotten objects. */
bool seen_add(seen *seen, const object *object, int64_t *forgotten);
/* Forgets the single objects up to this time. */
void seen_settle(seen *seen, int64_t settled);
void seen_free(seen *seen);
void seen_restore(seen *seen, uint64_t name, int64_t modified);

#endif
