/* An object as lines, and these as events. */
#ifndef READER_H
#define READER_H
#include "client.h"
#include "pack.h"

typedef enum decoding { DECODE_TEXT, DECODE_JSON, DECODE_BYTES } decoding;

typedef struct object {
  char *key, *etag; /* the ETag as the server writes it, with quotes; NULL: not known yet */
  int64_t size;     /* below 0: not known yet */
  int64_t modified; /* milliseconds since 1970; 0: not known yet */
} object;

typedef struct reader_settings {
  decoding decode;
  size_t line_most;
  bool is_packing_given;
  packing packing;
} reader_settings;

/* How far an object is read. */
typedef struct progress {
  uint64_t offset; /* of the content, behind the last line */
  uint64_t line;   /* lines so far */
  bool is_incomplete; /* a line was too long, or the rest cannot be read: it is nowhere but in the object */
} progress;

/* Called before events are handed over, and after an object: the place of `host->position`. NULL: there is none. */
typedef void keep_progress(void *closure, const progress *progress);
/* The token of the next event; 0: none. */
typedef uint64_t next_token(void *closure);

typedef struct reader_calls {
  keep_progress *keep;
  next_token *token;
  void *closure;
  size_t *events_most; /* before rxd gets them: more while it takes them at once, fewer while it is slow */
} reader_calls;

typedef enum reading {
  READ_ALL,
  READ_REJECTED, /* a part, the rest went to the errors output with the reason */
  READ_ABSENT,   /* the object has gone */
  READ_CHANGED,  /* it was replaced while it was read */
  READ_STOP,     /* rxd wants the source to stop */
  READ_FAILED,   /* `client->problem`: trying again does not help */
} reading;

int reader_open(const rxd_opening *opening, reader_settings *settings);
/* Reads from `*progress` on, and tries again after failures until it is read or the source is to stop. */
reading reader_read(client *client, const reader_settings *settings, rxd_source *running, object *object, progress *progress,
                    const reader_calls *calls);
/* Sleeps, but not beyond a stop; true: it came. */
bool reader_rest(rxd_source *running, int64_t milliseconds);

#endif
