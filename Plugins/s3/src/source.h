/* The source `s3`: what its ways of finding objects share. */
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
  int64_t every_ms; /* below 0: once */
  int64_t full_ms, lookback_ms;
  bool starts_new;
  afterwards after;
  char *move_to, *tag_name, *tag_value;
  origin queue;     /* `host` is NULL: none */
  int64_t visibility_ms;
  rxd_text position; /* that rxd has kept; its bytes are the source's own */
  rxd_source *running;
  size_t events_most; /* of `reader_calls` */
  works works;
} source;

/* Each runs until it has completed, fails, or is to stop. */
int run_listing(source *self, rxd_scope *scope);     /* by positions */
int run_collecting(source *self, rxd_scope *scope);  /* by acknowledgements, with what follows them */
int run_queue(source *self, rxd_scope *scope);

/* Reads the object, also where it changes meanwhile. RXD_FAILED: `client.problem`. */
reading source_read(source *self, object *object, progress *progress, const reader_calls *calls);
/* Reads the object of a work; what rxd acknowledges is counted there. */
reading source_read_work(source *self, work *work);
/* What is to be done with an object whose events are acknowledged. */
outcome source_settle(source *self, const object *object);
/* Whether the object has the tag of objects that were read. */
outcome source_has_tag(source *self, const object *object, bool *has_tag);
/* A page, tried until it is there. RXD_STOP, RXD_FAILED with the reason given. */
int source_page(source *self, rxd_scope *scope, const char *after, page *page);
/* Sleeps, and takes acknowledgements meanwhile; true: the source is to stop. */
bool source_rest(source *self, int64_t milliseconds);
int source_fail(source *self, rxd_scope *scope);
bool source_is_stopping(const source *self);

enum { STOP_MS = 25000 }; /* of a stop: the wait for acknowledgements */

#endif
