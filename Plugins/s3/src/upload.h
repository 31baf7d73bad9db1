/* Stores an object, whole or in parts. */
#ifndef UPLOAD_H
#define UPLOAD_H
#include "client.h"

typedef struct upload_settings {
  size_t part_bytes;      /* larger objects are stored in parts of this size */
  bool keeps_others;      /* If-None-Match: an object that is there is not replaced */
  char *type, *storage_class, *encryption, *encryption_key;
} upload_settings;

typedef struct upload {
  client *client;
  const upload_settings *settings;
  const char *key, *bytes;
  size_t count;
  const char *hash;       /* of the content, before it is packed */
  int64_t until;          /* now_ms: no attempt begins later */
} upload;

/* DONE: the object is complete. CHANGED: another one has its name. */
outcome upload_object(const upload *upload);

#endif
