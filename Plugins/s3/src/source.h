/* The source `s3`: declarations shared by its modes. */
#ifndef SOURCE_H
#define SOURCE_H
#include "listing.h"
#include "works.h"

typedef enum afterwards { AFTER_KEEP, AFTER_DELETE, AFTER_MOVE, AFTER_TAG } afterwards;

typedef struct source {
  rxd_instance *instance;
  client client;
  reader_settings settings;
  char *prefix;
  int64_t every_ms; /* poll interval; below 0: once */
  int64_t full_ms, lookback_ms;
  bool starts_new;
  afterwards after;
  char *move_to, *tag_name, *tag_value;
  origin queue;     /* `host` is NULL: none */
  int64_t visibility_ms;
  rxd_text position; /* the position saved by rxd; its bytes belong to the source */
  rxd_source *running;
  size_t events_most; /* see `reader_calls` */
  works works;
} source;

/* Each runs until it has completed or failed, or must stop. */
int run_listing(source *self, rxd_scope *scope);     /* tracks progress by positions */
int run_collecting(source *self, rxd_scope *scope);  /* tracks progress by acknowledgements, with an action after each object */
int run_queue(source *self, rxd_scope *scope);

/* Reads the object, again if it changes meanwhile. RXD_FAILED: see `client.problem`. */
reading source_read(source *self, object *object, progress *progress, const reader_calls *calls);
/* Reads the object of a work item, which counts rxd's acknowledgements. */
reading source_read_work(source *self, work *work);
/* Performs the configured action on an object whose events are acknowledged. */
outcome source_settle(source *self, const object *object);
/* Whether the object has the tag that marks objects as read. */
outcome source_has_tag(source *self, const object *object, bool *has_tag);
/* Gets a page, with retries. RXD_STOP, or RXD_FAILED with the reason reported. */
int source_page(source *self, rxd_scope *scope, const char *after, page *page);
/* Sleeps and handles acknowledgements; true: the source must stop. */
bool source_rest(source *self, int64_t milliseconds);
/* Lets requests without an answer end soon, because the source is stopping. */
void source_hurry(source *self);
int source_fail(source *self, rxd_scope *scope);
bool source_is_stopping(const source *self);

enum { STOP_MS = 25000 }; /* during a stop: wait for acknowledgements */

#endif
