/* Reads an object as lines, and the lines as events. */
#ifndef READER_H
#define READER_H
#include "client.h"
#include "pack.h"

typedef enum decoding { DECODE_TEXT, DECODE_JSON, DECODE_BYTES } decoding;

typedef struct object {
  char *key, *etag; /* the ETag as the server writes it, with quotes; NULL: unknown */
  int64_t size;     /* below 0: unknown */
  int64_t modified; /* milliseconds since 1970; 0: unknown */
} object;

typedef struct reader_settings {
  decoding decode;
  size_t line_most;
  bool is_packing_given;
  packing packing;
} reader_settings;

/* How far an object has been read. */
typedef struct progress {
  uint64_t offset; /* offset in the content, after the last line */
  uint64_t line;   /* number of lines so far */
  bool is_incomplete; /* a line was too long, or the rest cannot be read: it exists only in the object */
} progress;

/* Called before events are sent and after an object, to call `host->position`. NULL: no positions. */
typedef void keep_progress(void *closure, const progress *progress);
/* Returns the token of the next event; 0: none. */
typedef uint64_t next_token(void *closure);

typedef struct reader_calls {
  keep_progress *keep;
  next_token *token;
  void *closure;
  size_t *events_most; /* events per batch: more while rxd accepts them immediately, fewer while it is slow */
} reader_calls;

typedef enum reading {
  READ_ALL,
  READ_REJECTED, /* read in part; the rest went to the errors output with the reason */
  READ_ABSENT,   /* the object is gone */
  READ_CHANGED,  /* the object was replaced while it was read */
  READ_STOP,     /* the source must stop */
  READ_FAILED,   /* a retry does not help; see `client->problem` */
} reading;

int reader_open(const rxd_opening *opening, reader_settings *settings);
/* Reads from `*progress` on, and retries after failures until the object is read or the source must stop. */
reading reader_read(client *client, const reader_settings *settings, rxd_source *running, object *object, progress *progress,
                    const reader_calls *calls);
/* Sleeps until the time has passed or the source must stop; true: it must stop. */
bool reader_rest(rxd_source *running, int64_t milliseconds);

#endif
