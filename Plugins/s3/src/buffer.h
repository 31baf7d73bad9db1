/* A growing byte buffer. */
#ifndef BUFFER_H
#define BUFFER_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct buffer {
  char *bytes; /* zero-terminated, if not NULL */
  size_t count, capacity;
} buffer;

static inline void buffer_reserve(buffer *self, size_t more) {
  if (self->count + more + 1 <= self->capacity) return;
  size_t capacity = self->capacity < 256 ? 256 : self->capacity;
  while (capacity < self->count + more + 1) capacity += capacity / 2;
  self->bytes = realloc(self->bytes, capacity);
  if (self->bytes == NULL) abort();
  self->capacity = capacity;
}

static inline void buffer_add(buffer *self, const void *bytes, size_t count) {
  buffer_reserve(self, count);
  if (count > 0) memcpy(self->bytes + self->count, bytes, count);
  self->count += count;
  self->bytes[self->count] = 0;
}

static inline void buffer_put(buffer *self, const char *text) { buffer_add(self, text, strlen(text)); }

__attribute__((format(printf, 2, 3)))
static inline void buffer_print(buffer *self, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int count = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (count < 0) abort();
  buffer_reserve(self, (size_t)count + 1);
  vsnprintf(self->bytes + self->count, (size_t)count + 1, format, again);
  va_end(again);
  self->count += (size_t)count;
}

static inline void buffer_clear(buffer *self) {
  self->count = 0;
  if (self->bytes != NULL) self->bytes[0] = 0;
}

static inline const char *buffer_text(const buffer *self) { return self->bytes != NULL ? self->bytes : ""; }

static inline void buffer_free(buffer *self) {
  free(self->bytes);
  *self = (buffer){0};
}

#endif
