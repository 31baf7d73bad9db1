/* Conversion between protobuf messages and values of rxd. */
#ifndef PROTOBUF_FORMAT_H
#define PROTOBUF_FORMAT_H
#include "format_util.h"
#include "schema.h"

/* How deeply messages may be nested: the default of Google's libraries. */
#define MESSAGE_DEPTH 100

typedef enum { FRAMING_SINGLE, FRAMING_DELIMITED, FRAMING_CONFLUENT } framing;
typedef enum { DEFAULTS_IMPLICIT, DEFAULTS_ALL, DEFAULTS_NONE } defaults;

/* An instance of the decoder, the encoder or the operator: its parameters. */
typedef struct {
  schema *schema;
  const message_type *type;
  framing framing;
  defaults defaults;
  bool ignores_unknown; /* the encoder ignores members without a field */
  uint32_t schema_id;
  char *into; /* operator only: the member that receives the message */
} format;

/* Decodes the events of an input. */
int decode_input(rxd_scope *scope, const format *format, rxd_text input, rxd_value *events);
int encode_event(rxd_scope *scope, const format *format, const rxd_value *event, output_bytes *output);

/* ---- Paths in messages ---- */

/* The path of a value, for messages: a field, or an element of it, within the message at the path `up`. */
typedef struct place {
  const struct place *up;
  const field_type *field; /* NULL: the event */
  size_t index;
  bool has_index;
} place;

/* "orders[2].name" */
static inline UNUSED void put_place(const place *place, char *text, size_t capacity) {
  if (place == NULL || place->field == NULL) return;
  put_place(place->up, text, capacity);
  size_t used = strlen(text);
  int shown = shown_count(place->field->name);
  used += (size_t)snprintf(text + used, capacity - used, "%s%.*s", used > 0 ? "." : "", shown, place->field->name.bytes);
  if (used >= capacity) used = capacity - 1;
  if (place->has_index) snprintf(text + used, capacity - used, "[%zu]", place->index);
}
#endif
