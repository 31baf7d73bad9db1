// Texts and parameters.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres.h"

rxd_text text_of(const char *string) { return (rxd_text){string, strlen(string)}; }

void *allocate(size_t count) {
  void *made = calloc(1, count == 0 ? 1 : count);
  if (made == NULL) abort();
  return made;
}

char *copy_text(rxd_text text) {
  char *made = allocate(text.count + 1);
  if (text.count > 0) memcpy(made, text.bytes, text.count);
  return made;
}

void append(buffer *buffer, const char *bytes, size_t count) {
  if (buffer->room < buffer->count + count + 1) {
    buffer->room = (buffer->count + count + 1) * 2;
    buffer->bytes = realloc(buffer->bytes, buffer->room);
    if (buffer->bytes == NULL) abort();
  }
  if (count > 0) memcpy(buffer->bytes + buffer->count, bytes, count);
  buffer->count += count;
  buffer->bytes[buffer->count] = 0;
}

void append_text(buffer *buffer, const char *string) { append(buffer, string, strlen(string)); }

void append_format(buffer *buffer, const char *format, ...) {
  char text[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  append_text(buffer, text);
}

rxd_value parameter(const rxd_opening *opening, const char *name) {
  return host->member(opening->scope, &opening->parameters, text_of(name));
}

char *text_parameter(const rxd_opening *opening, const char *name) {
  rxd_value value = parameter(opening, name);
  return host->kind(&value) == RXD_TEXT ? copy_text(host->text(opening->scope, &value)) : NULL;
}

int64_t integer_parameter(const rxd_opening *opening, const char *name) {
  rxd_value value = parameter(opening, name);
  return host->integer(&value);
}

bool bool_parameter(const rxd_opening *opening, const char *name) {
  rxd_value value = parameter(opening, name);
  return host->boolean(&value);
}

bool is_choice(const rxd_opening *opening, const char *name, const char *choice) {
  rxd_value value = parameter(opening, name);
  rxd_text text = host->text(opening->scope, &value);
  return text.count == strlen(choice) && memcmp(text.bytes, choice, text.count) == 0;
}

char **list_parameter(const rxd_opening *opening, const char *name) {
  rxd_value list = parameter(opening, name);
  if (host->kind(&list) != RXD_LIST) return NULL;
  size_t count = host->count(opening->scope, &list);
  char **made = allocate((count + 1) * sizeof(char *));
  for (size_t index = 0; index < count; index++) {
    rxd_value element = host->element(opening->scope, &list, index);
    made[index] = copy_text(host->text(opening->scope, &element));
  }
  return made;
}

void free_list(char **list) {
  for (char **each = list; list != NULL && *each != NULL; each++) free(*each);
  free(list);
}

int refuse_opening(const rxd_opening *opening, const char *message, const char *at) {
  host->fail(opening->scope, text_of(message), text_of(at));
  return RXD_FAILED;
}
