/* Stores an object, whole or in parts. */
#ifndef UPLOAD_H
#define UPLOAD_H
#include "client.h"

typedef struct upload_settings {
  size_t part_bytes;      /* larger objects are stored in parts of this size */
  bool keeps_others;      /* If-None-Match: does not replace an existing object */
  char *type, *storage_class, *encryption, *encryption_key;
} upload_settings;

typedef struct upload {
  client *client;
  const upload_settings *settings;
  const char *key, *bytes;
  size_t count;
  const char *hash;       /* hash of the content before packing */
  int64_t until;          /* no attempt starts later (now_ms) */
} upload;

/* DONE: the object is complete. CHANGED: another object has its key. */
outcome upload_object(const upload *upload);

#endif
