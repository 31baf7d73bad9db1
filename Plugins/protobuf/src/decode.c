/* Decodes messages to values in one pass over the bytes, without message objects. Memory is proportional to the input;
 * defaults, which take no bytes, are limited separately. */
#include "protobuf_format.h"

/* Consecutive values of one repeated field. */
typedef struct {
  size_t start, count;
  uint32_t next; /* index + 1 */
} run;

/* Another occurrence of a message field: all occurrences are merged, as protobuf requires. */
typedef struct {
  rxd_text slice;
  uint32_t next; /* index + 1 */
} piece;

/* A field that the input has. */
typedef struct {
  const field_type *field;
  bool is_cleared; /* a later member of its oneof has replaced it */
  uint32_t first, last; /* runs of a repeated field, pieces of a message; index + 1 */
  size_t count;         /* number of values of a repeated field */
  rxd_value value;      /* the value of a singular scalar field */
  rxd_text slice;       /* the bytes of a singular text or message; a message is decoded at the end, when all occurrences are known */
} entry;

typedef struct {
  rxd_scope *scope;
  const format *format;
  const char *begin, *end; /* the input */
  value_stack values;
  entry *entries;
  size_t entry_count, entry_capacity;
  run *runs;
  size_t run_count, run_capacity;
  piece *pieces;
  size_t piece_count, piece_capacity;
  uint32_t *slots; /* index + 1 of the entry of each field, then of each oneof, of all open messages */
  size_t slot_count, slot_capacity;
  char *names;           /* blocks of texts for map keys that are not strings, linked by their first bytes */
  size_t defaults_left;  /* remaining limit for defaults, which take no bytes */
} reader;

/* A message being decoded. */
typedef struct {
  place here; /* the field being decoded */
  const message_type *type;
  int depth;
  size_t slots, entries, values, runs, pieces; /* the start of its part of each stack */
} message;

__attribute__((format(printf, 4, 5)))
static bool refuse(reader *reader, const place *place, const char *at, const char *format, ...) {
  char path[200] = "", byte[40] = "", message[240], whole[500];
  put_place(place, path, sizeof path);
  if (at >= reader->begin && at <= reader->end) snprintf(byte, sizeof byte, "%s byte %zu", path[0] != 0 ? ", at" : "at", (size_t)(at - reader->begin));
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (path[0] != 0 || byte[0] != 0) snprintf(whole, sizeof whole, "%s%s: %s", path, byte, message);
  else snprintf(whole, sizeof whole, "%s", message);
  host->fail(reader->scope, text_of(whole), text_of(""));
  return false;
}

#define GROW(items, count, capacity, more)                                        \
  do {                                                                            \
    if ((capacity) - (count) < (more)) {                                          \
      (capacity) = (capacity) * 2 > (count) + (more) ? (capacity) * 2 : (count) + (more) + 32; \
      (items) = need(realloc((items), (capacity) * sizeof *(items)));             \
    }                                                                             \
  } while (0)

/* ---- Bytes ---- */

/* 0: the input is truncated; -1: the varint is longer than ten bytes. */
static inline int read_varint(const char **at, const char *end, uint64_t *number) {
  const unsigned char *byte = (const unsigned char *)*at;
  if (*at < end && *byte < 0x80) {
    *number = *byte;
    ++*at;
    return 1;
  }
  uint64_t made = 0;
  for (int shift = 0; shift < 70; shift += 7, byte++) {
    if (byte == (const unsigned char *)end) return 0;
    made |= (uint64_t)(*byte & 0x7f) << shift;
    if (*byte < 0x80) {
      *number = made;
      *at = (const char *)byte + 1;
      return 1;
    }
  }
  return -1;
}

static bool varint(reader *reader, const place *place, const char **at, const char *end, uint64_t *number) {
  int status = read_varint(at, end, number);
  if (status > 0) return true;
  return refuse(reader, place, *at, status == 0 ? "a number is not complete" : "a number has more than ten bytes");
}

static inline uint64_t fixed_64(const char *at) {
  uint64_t number;
  memcpy(&number, at, 8);
  return le64toh(number);
}

static inline uint32_t fixed_32(const char *at) {
  uint32_t number;
  memcpy(&number, at, 4);
  return le32toh(number);
}

static bool tag(reader *reader, const place *place, const char **at, const char *end, uint32_t *number, int *wire) {
  const char *start = *at;
  uint64_t whole;
  if (!varint(reader, place, at, end, &whole)) return false;
  /* As in libprotobuf, the bits beyond 32 are ignored. */
  *number = (uint32_t)whole >> 3;
  *wire = (int)(whole & 7);
  if (*at - start > 5) return refuse(reader, place, start, "the number of a field has more than five bytes");
  if (*number == 0) return refuse(reader, place, start, "a field has the number 0");
  if (*wire > WIRE_32) return refuse(reader, place, start, "the field %u has the wire type %d, which there is not", *number, *wire);
  return true;
}

/* Takes the bytes of a length-delimited value; `at` then points behind them. */
static bool slice(reader *reader, const place *place, const char **at, const char *end, rxd_text *found) {
  const char *start = *at;
  uint64_t count;
  if (!varint(reader, place, at, end, &count)) return false;
  if (count > (uint64_t)(end - *at)) return refuse(reader, place, start, "a value of %llu bytes begins, and %zu are left", (unsigned long long)count, (size_t)(end - *at));
  *found = (rxd_text){*at, (size_t)count};
  *at += count;
  return true;
}

/* Skips the rest of a group; `last`: the end of its content. */
static bool skip_group(reader *reader, const message *frame, const char **at, const char *end, uint32_t first, const char **last) {
  uint32_t open[MESSAGE_DEPTH + 1] = {first}, number;
  int count = 1, wire;
  uint64_t ignored;
  rxd_text bytes;
  const place *place = &frame->here;
  while (count > 0) {
    const char *start = *at;
    if (*at == end) return refuse(reader, place, *at, "the group %u does not end", open[count - 1]);
    if (!tag(reader, place, at, end, &number, &wire)) return false;
    switch (wire) {
      case WIRE_VARINT: if (!varint(reader, place, at, end, &ignored)) return false; break;
      case WIRE_BYTES: if (!slice(reader, place, at, end, &bytes)) return false; break;
      case WIRE_64: case WIRE_32: {
        int width = wire == WIRE_64 ? 8 : 4;
        if (end - *at < width) return refuse(reader, place, *at, "a number is not complete");
        *at += width;
        break;
      }
      case WIRE_GROUP:
        if (frame->depth + count >= MESSAGE_DEPTH) return refuse(reader, place, start, "more than %d messages are nested", MESSAGE_DEPTH);
        open[count++] = number;
        break;
      default:
        if (number != open[count - 1]) return refuse(reader, place, start, "the group %u ends, and %u has begun", number, open[count - 1]);
        *last = start;
        count--;
    }
  }
  return true;
}

/* ---- Values ---- */

static const field_type *field_of(const message_type *type, uint32_t number) {
  if (number < type->dense_count) return type->dense[number] == 0 ? NULL : &type->fields[type->dense[number] - 1];
  size_t low = 0, high = type->field_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (type->fields[middle].number < number) low = middle + 1;
    else high = middle;
  }
  return low < type->field_count && type->fields[low].number == number ? &type->fields[low] : NULL;
}

static const enum_value *value_of_number(const enumeration *type, int32_t number) {
  if (number >= 0 && (uint32_t)number < type->number_count && type->by_number[number].number == number) return &type->by_number[number];
  size_t low = 0, high = type->number_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (type->by_number[middle].number < number) low = middle + 1;
    else high = middle;
  }
  return low < type->number_count && type->by_number[low].number == number ? &type->by_number[low] : NULL;
}

static inline int64_t zigzag(uint64_t number) { return (int64_t)(number >> 1) ^ -(int64_t)(number & 1); }

/* Converts a scalar from its wire form. False: an unknown number of a closed enum, which counts as an unknown field. */
static bool number_value(reader *reader, const field_type *field, uint64_t raw, rxd_value *value) {
  switch (field->kind) {
    case FIELD_DOUBLE: {
      double number;
      memcpy(&number, &raw, sizeof number);
      *value = host->make_double(number);
      break;
    }
    case FIELD_FLOAT: {
      uint32_t bits = (uint32_t)raw;
      float number;
      memcpy(&number, &bits, sizeof number);
      *value = host->make_double((double)number);
      break;
    }
    case FIELD_INT64: case FIELD_SFIXED64: *value = host->make_int((int64_t)raw); break;
    case FIELD_UINT64: case FIELD_FIXED64: *value = raw <= INT64_MAX ? host->make_int((int64_t)raw) : host->make_uint(raw); break;
    case FIELD_INT32: case FIELD_SFIXED32: *value = host->make_int((int32_t)(uint32_t)raw); break;
    case FIELD_UINT32: case FIELD_FIXED32: *value = host->make_int((int64_t)(uint32_t)raw); break;
    case FIELD_SINT32: *value = host->make_int((int32_t)zigzag((uint32_t)raw)); break;
    case FIELD_SINT64: *value = host->make_int(zigzag(raw)); break;
    case FIELD_BOOL: *value = host->make_bool(raw != 0); break;
    default: {
      int32_t number = (int32_t)(uint32_t)raw;
      const enum_value *named = value_of_number(field->enumeration, number);
      if (named == NULL && field->enumeration->is_closed) return false;
      if (field->enumeration->is_null) *value = host->make_null();
      else *value = named != NULL ? host->make_text(reader->scope, named->name) : host->make_int(number);
    }
  }
  return true;
}

static bool text_value(reader *reader, const place *place, const field_type *field, rxd_text text, rxd_value *value) {
  if (field->kind == FIELD_BYTES) *value = host->make_bytes(reader->scope, text);
  else if (is_utf8(text.bytes, text.count)) *value = host->make_text(reader->scope, text);
  else return refuse(reader, place, text.bytes, "the string is not UTF-8");
  return true;
}

/* ---- The fields of a message ---- */

static void begin_frame(reader *reader, message *frame) {
  size_t count = frame->type->field_count + frame->type->oneof_count;
  frame->slots = reader->slot_count;
  frame->entries = reader->entry_count;
  frame->values = reader->values.count;
  frame->runs = reader->run_count;
  frame->pieces = reader->piece_count;
  GROW(reader->slots, reader->slot_count, reader->slot_capacity, count);
  memset(reader->slots + frame->slots, 0, count * sizeof *reader->slots);
  reader->slot_count += count;
}

static void end_frame(reader *reader, const message *frame) {
  reader->slot_count = frame->slots;
  reader->entry_count = frame->entries;
  reader->values.count = frame->values;
  reader->run_count = frame->runs;
  reader->piece_count = frame->pieces;
}

/* Returns the entry's index, because reallocation moves entries. */
static inline size_t entry_of(reader *reader, const message *frame, const field_type *field) {
  uint32_t *slot = &reader->slots[frame->slots + (size_t)(field - frame->type->fields)];
  if (*slot == 0) {
    GROW(reader->entries, reader->entry_count, reader->entry_capacity, 1);
    entry *made = &reader->entries[reader->entry_count++];
    made->field = field;
    made->is_cleared = false;
    made->first = made->last = 0;
    made->count = 0;
    made->slice = (rxd_text){NULL, 0};
    *slot = (uint32_t)reader->entry_count;
  }
  if (field->oneof >= 0) {
    uint32_t *current = &reader->slots[frame->slots + frame->type->field_count + (size_t)field->oneof];
    if (*current != *slot) {
      if (*current != 0) {
        entry *old = &reader->entries[*current - 1];
        old->is_cleared = true;
        old->slice = (rxd_text){NULL, 0};
        old->first = old->last = 0;
      }
      reader->entries[*slot - 1].is_cleared = false;
      *current = *slot;
    }
  }
  return *slot - 1;
}

/* Appends to a repeated field. `name`: the key of a map entry. */
static inline void add_value(reader *reader, size_t index, rxd_value value, const rxd_text *name) {
  entry *entry = &reader->entries[index];
  run *last = entry->last == 0 ? NULL : &reader->runs[entry->last - 1];
  if (last == NULL || last->start + last->count != reader->values.count) {
    GROW(reader->runs, reader->run_count, reader->run_capacity, 1);
    if (entry->last != 0) reader->runs[entry->last - 1].next = (uint32_t)reader->run_count + 1;
    else entry->first = (uint32_t)reader->run_count + 1;
    last = &reader->runs[reader->run_count++];
    *last = (run){.start = reader->values.count};
    entry->last = (uint32_t)reader->run_count;
  }
  last->count++;
  entry->count++;
  if (name != NULL) push_member(&reader->values, *name, value);
  else push_value(&reader->values, value);
}

static bool read_message(reader *reader, const place *up, const message_type *type, rxd_text bytes, int depth, rxd_value *value);
static bool read_entry(reader *reader, const place *up, const message_type *type, rxd_text bytes, int depth, rxd_text *name, rxd_value *value);

/* Adds a message, encoded as a field or as a group. */
static bool add_message(reader *reader, message *frame, const field_type *field, rxd_text bytes) {
  size_t index = entry_of(reader, frame, field);
  if (!field->is_repeated) {
    entry *entry = &reader->entries[index];
    if (entry->slice.bytes == NULL) {
      entry->slice = bytes;
      return true;
    }
    GROW(reader->pieces, reader->piece_count, reader->piece_capacity, 1);
    if (entry->last != 0) reader->pieces[entry->last - 1].next = (uint32_t)reader->piece_count + 1;
    else entry->first = (uint32_t)reader->piece_count + 1;
    reader->pieces[reader->piece_count++] = (piece){.slice = bytes};
    entry->last = (uint32_t)reader->piece_count;
    return true;
  }
  frame->here.index = reader->entries[index].count;
  frame->here.has_index = true;
  rxd_value value;
  rxd_text name;
  bool is_good = field->is_map ? read_entry(reader, &frame->here, field->message, bytes, frame->depth + 1, &name, &value)
                               : read_message(reader, &frame->here, field->message, bytes, frame->depth + 1, &value);
  if (is_good) add_value(reader, index, value, field->is_map ? &name : NULL);
  frame->here.has_index = false;
  return is_good;
}

static bool add_packed(reader *reader, message *frame, const field_type *field, rxd_text bytes) {
  size_t index = entry_of(reader, frame, field);
  const char *at = bytes.bytes, *end = at + bytes.count;
  while (at < end) {
    uint64_t raw;
    if (field->wire == WIRE_VARINT) {
      if (!varint(reader, &frame->here, &at, end, &raw)) return false;
    } else {
      size_t width = field->wire == WIRE_64 ? 8 : 4;
      if ((size_t)(end - at) < width) return refuse(reader, &frame->here, at, "a number is not complete");
      raw = width == 8 ? fixed_64(at) : fixed_32(at);
      at += width;
    }
    rxd_value value;
    if (number_value(reader, field, raw, &value)) add_value(reader, index, value, NULL);
  }
  return true;
}

static bool read_fields(reader *reader, message *frame, rxd_text bytes) {
  const char *at = bytes.bytes, *end = at + bytes.count;
  while (at < end) {
    const char *start = at;
    uint32_t number;
    int wire;
    if (!tag(reader, frame->here.up, &at, end, &number, &wire)) return false;
    const field_type *field = field_of(frame->type, number);
    const place *place = field != NULL ? &frame->here : frame->here.up;
    if (field != NULL) frame->here.field = field;
    rxd_value value;
    uint64_t raw = 0;
    rxd_text found = {NULL, 0};
    switch (wire) {
      case WIRE_VARINT: if (!varint(reader, place, &at, end, &raw)) return false; break;
      case WIRE_64:
        if (end - at < 8) return refuse(reader, place, at, "a number is not complete");
        raw = fixed_64(at);
        at += 8;
        break;
      case WIRE_32:
        if (end - at < 4) return refuse(reader, place, at, "a number is not complete");
        raw = fixed_32(at);
        at += 4;
        break;
      case WIRE_BYTES: if (!slice(reader, place, &at, end, &found)) return false; break;
      case WIRE_GROUP:
        if (frame->depth + 1 > MESSAGE_DEPTH) return refuse(reader, place, start, "more than %d messages are nested", MESSAGE_DEPTH);
        found.bytes = at;
        const char *last = at;
        if (!skip_group(reader, frame, &at, end, number, &last)) return false;
        found.count = (size_t)(last - found.bytes);
        break;
      default: return refuse(reader, frame->here.up, start, "a group ends that has not begun");
    }
    if (field == NULL) continue;
    if (wire != field->wire) {
      /* A wire type other than the schema's makes the field unknown, but scalars may be packed or unpacked regardless
       * of the schema. */
      if (wire == WIRE_BYTES && field->can_pack && !add_packed(reader, frame, field, found)) return false;
      continue;
    }
    if (wire == WIRE_GROUP || field->kind == FIELD_MESSAGE) {
      if (!add_message(reader, frame, field, found)) return false;
      continue;
    }
    if (wire == WIRE_BYTES) {
      if (!text_value(reader, place, field, found, &value)) return false;
    } else if (!number_value(reader, field, raw, &value)) {
      continue;
    }
    size_t index = entry_of(reader, frame, field);
    if (field->is_repeated) {
      add_value(reader, index, value, NULL);
    } else {
      reader->entries[index].value = value;
      reader->entries[index].slice = found;
    }
  }
  return true;
}

/* ---- From fields to values ---- */

static rxd_value default_value(reader *reader, const field_type *field) {
  static const rxd_text no_name;
  static const rxd_value no_value;
  if (field->is_map) return host->make_object(reader->scope, &no_name, &no_value, 0);
  if (field->is_repeated) return host->make_list(reader->scope, NULL, 0);
  switch (field->kind) {
    case FIELD_DOUBLE: case FIELD_FLOAT: return host->make_double(field->otherwise.real);
    case FIELD_STRING: return host->make_text(reader->scope, field->otherwise.text);
    case FIELD_BYTES: return host->make_bytes(reader->scope, field->otherwise.text);
    case FIELD_BOOL: return host->make_bool(field->otherwise.integer != 0);
    case FIELD_UINT64: case FIELD_FIXED64: case FIELD_UINT32: case FIELD_FIXED32: return host->make_uint(field->otherwise.number);
    case FIELD_ENUM: {
      rxd_value value = host->make_null();
      number_value(reader, field, (uint64_t)field->otherwise.integer, &value);
      return value;
    }
    default: return host->make_int(field->otherwise.integer);
  }
}

/* The entry of a field in the input; NULL: absent or cleared. */
static entry *present(reader *reader, const message *frame, size_t field_index) {
  uint32_t slot = reader->slots[frame->slots + field_index];
  if (slot == 0 || reader->entries[slot - 1].is_cleared) return NULL;
  return &reader->entries[slot - 1];
}

static bool is_replaced(const rxd_text *names, const uint32_t *order, size_t i, size_t count) {
  return i + 1 < count && text_is(names[order[i]], names[order[i + 1]]);
}

static int compare_order(const void *a, const void *b, void *names) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  int compared = compare_names((const rxd_text *)names + left, (const rxd_text *)names + right);
  return compared != 0 ? compared : left < right ? -1 : left > right;
}

/* Makes an object of a map's entries; of entries with the same key, the last one wins. */
static rxd_value map_value(reader *reader, rxd_text *names, rxd_value *values, size_t count) {
  rxd_text ignored;
  if (repeated_name(names, count, &ignored) == NULL) return host->make_object(reader->scope, names, values, count);
  uint32_t *order = need(malloc(count * sizeof *order));
  bool *is_old = need(calloc(count, sizeof *is_old));
  for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
  qsort_r(order, count, sizeof *order, compare_order, names);
  for (size_t i = 0; i < count; i++)
    if (is_replaced(names, order, i, count)) is_old[order[i]] = true;
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (is_old[i]) continue;
    names[kept] = names[i];
    values[kept++] = values[i];
  }
  free(order);
  free(is_old);
  return host->make_object(reader->scope, names, values, kept);
}

static rxd_value repeated_value(reader *reader, const entry *entry) {
  if (entry->count == 0) return default_value(reader, entry->field);
  size_t start = reader->runs[entry->first - 1].start, count = entry->count;
  bool is_map = entry->field->is_map;
  if (entry->first != entry->last) { /* other fields came in between: the values are copied into one array */
    start = reader->values.count;
    for (uint32_t next = entry->first; next != 0; next = reader->runs[next - 1].next) {
      run run = reader->runs[next - 1];
      for (size_t i = 0; i < run.count; i++) {
        if (is_map) push_member(&reader->values, reader->values.names[run.start + i], reader->values.values[run.start + i]);
        else push_value(&reader->values, reader->values.values[run.start + i]);
      }
    }
    reader->values.count = start;
  }
  if (is_map) return map_value(reader, reader->values.names + start, reader->values.values + start, count);
  return host->make_list(reader->scope, reader->values.values + start, count);
}

static bool field_value(reader *reader, message *frame, size_t field_index, rxd_value *value) {
  entry entry = *present(reader, frame, field_index);
  frame->here.field = entry.field;
  if (entry.field->is_repeated) {
    *value = repeated_value(reader, &entry);
    return true;
  }
  if (entry.field->message == NULL) {
    *value = entry.value;
    return true;
  }
  if (entry.first == 0) return read_message(reader, &frame->here, entry.field->message, entry.slice, frame->depth + 1, value);
  size_t count = entry.slice.count;
  for (uint32_t next = entry.first; next != 0; next = reader->pieces[next - 1].next) count += reader->pieces[next - 1].slice.count;
  char *bytes = need(malloc(count + 1)), *at = mempcpy(bytes, entry.slice.bytes, entry.slice.count);
  for (uint32_t next = entry.first; next != 0; next = reader->pieces[next - 1].next)
    at = mempcpy(at, reader->pieces[next - 1].slice.bytes, reader->pieces[next - 1].slice.count);
  bool is_good = read_message(reader, &frame->here, entry.field->message, (rxd_text){bytes, count}, frame->depth + 1, value);
  free(bytes);
  return is_good;
}

/* `type_url`: that of the Any that contains the message; otherwise `bytes` is NULL. */
static bool object_value(reader *reader, message *frame, rxd_text type_url, rxd_value *value) {
  const message_type *type = frame->type;
  defaults wanted = reader->format->defaults;
  size_t start = reader->values.count;
  if (type_url.bytes != NULL) push_member(&reader->values, RXD_TEXT_OF("@type"), host->make_text(reader->scope, type_url));
  for (size_t i = 0; i < type->field_count; i++) {
    const field_type *field = &type->fields[i];
    rxd_value member;
    if (present(reader, frame, i) != NULL) {
      if (!field_value(reader, frame, i, &member)) return false;
    } else {
      if (field->is_required) {
        frame->here.field = field;
        return refuse(reader, &frame->here, NULL, "the field is required, and the message does not have it");
      }
      bool is_made = field->has_presence ? wanted == DEFAULTS_ALL && field->oneof < 0 && field->message == NULL : wanted != DEFAULTS_NONE;
      if (!is_made) continue;
      if (reader->defaults_left-- == 0) {
        reader->defaults_left = 0;
        return refuse(reader, frame->here.up, NULL, "the input has too many absent fields, whose defaults would be added; 'defaults: none' leaves them out");
      }
      member = default_value(reader, field);
    }
    push_member(&reader->values, field->name, member);
  }
  *value = pop_object(reader->scope, &reader->values, start);
  return true;
}

static int64_t whole_number(reader *reader, const message *frame, size_t field_index) {
  const entry *found = present(reader, frame, field_index);
  return found == NULL ? 0 : host->integer(&found->value);
}

static bool time_value(reader *reader, const message *frame, const char *at, rxd_value *value) {
  int64_t seconds = whole_number(reader, frame, 0), nanoseconds = whole_number(reader, frame, 1);
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND) return refuse(reader, frame->here.up, at, "the time is not between the years 1 and 9999");
  if (nanoseconds < 0 || nanoseconds > 999999999) return refuse(reader, frame->here.up, at, "the time has %lld nanoseconds", (long long)nanoseconds);
  if (make_time(seconds, (uint32_t)nanoseconds, value)) return true;
  char text[40];
  rfc3339_text(seconds, nanoseconds, text);
  *value = host->make_text(reader->scope, text_of(text));
  return true;
}

#define MOST_SECONDS 315576000000

static bool duration_value(reader *reader, const message *frame, const char *at, rxd_value *value) {
  int64_t seconds = whole_number(reader, frame, 0), nanoseconds = whole_number(reader, frame, 1), all;
  if (seconds < -MOST_SECONDS || seconds > MOST_SECONDS) return refuse(reader, frame->here.up, at, "the duration is longer than 10000 years");
  if (nanoseconds < -999999999 || nanoseconds > 999999999 || (seconds < 0 && nanoseconds > 0) || (seconds > 0 && nanoseconds < 0))
    return refuse(reader, frame->here.up, at, "the duration has %lld s and %lld ns", (long long)seconds, (long long)nanoseconds);
  if (!__builtin_mul_overflow(seconds, (int64_t)1000000000, &all) && !__builtin_add_overflow(all, nanoseconds, &all)) {
    *value = host->make_duration(all);
    return true;
  }
  char text[40];
  int used = snprintf(text, sizeof text, "%lld", (long long)seconds);
  if (nanoseconds != 0) used += snprintf(text + used, sizeof text - (size_t)used, ".%09lld", (long long)(nanoseconds < 0 ? -nanoseconds : nanoseconds));
  snprintf(text + used, sizeof text - (size_t)used, "s");
  *value = host->make_text(reader->scope, text_of(text));
  return true;
}

/* A FieldMask: paths in camelCase, separated by commas. */
static bool mask_value(reader *reader, message *frame, const char *at, rxd_value *value) {
  const entry *found = present(reader, frame, 0);
  output_bytes output;
  begin_output(&output);
  bool is_good = true;
  rxd_value paths = found == NULL ? host->make_null() : repeated_value(reader, found);
  size_t count = host->count(reader->scope, &paths);
  for (size_t i = 0; i < count && is_good; i++) {
    rxd_value element = host->element(reader->scope, &paths, i);
    rxd_text path = host->text(reader->scope, &element);
    if (i > 0) output_append(&output, ",", 1);
    for (size_t j = 0; j < path.count && is_good; j++) {
      char letter = path.bytes[j];
      if (letter == '_') {
        is_good = ++j < path.count && islower((unsigned char)path.bytes[j]);
        if (is_good) letter = (char)toupper((unsigned char)path.bytes[j]);
      } else {
        is_good = letter != ',' && !isupper((unsigned char)letter);
      }
      output_append(&output, &letter, 1);
    }
    if (!is_good) refuse(reader, frame->here.up, at, "the path '%.*s' has no form in camelCase", shown_count(path), path.bytes);
  }
  if (is_good) *value = host->make_text(reader->scope, (rxd_text){output.bytes, output.count});
  free_output(&output);
  return is_good;
}

static bool any_value(reader *reader, message *frame, rxd_value *value) {
  const entry *url_entry = present(reader, frame, 0), *bytes_entry = present(reader, frame, 1);
  if (url_entry == NULL && bytes_entry == NULL) {
    *value = pop_object(reader->scope, &reader->values, reader->values.count);
    return true;
  }
  rxd_value empty = host->make_bytes(reader->scope, RXD_TEXT_OF(""));
  rxd_value payload = bytes_entry == NULL ? empty : bytes_entry->value;
  rxd_text url = url_entry == NULL ? RXD_TEXT_OF("") : host->text(reader->scope, &url_entry->value), bytes = host->text(reader->scope, &payload);
  const char *slash = url.count == 0 ? NULL : memrchr(url.bytes, '/', url.count);
  const message_type *type = slash == NULL ? NULL : find_message(reader->format->schema, (rxd_text){slash + 1, url.count - (size_t)(slash + 1 - url.bytes)});
  rxd_value member = payload;
  frame->here.field = &frame->type->fields[1];
  if (type != NULL && type->known == KNOWN_NONE) {
    if (frame->depth + 1 > MESSAGE_DEPTH) return refuse(reader, frame->here.up, NULL, "more than %d messages are nested", MESSAGE_DEPTH);
    message inner = {.here = {.up = &frame->here}, .type = type, .depth = frame->depth + 1};
    begin_frame(reader, &inner);
    bool is_good = read_fields(reader, &inner, bytes) && object_value(reader, &inner, url, value);
    end_frame(reader, &inner);
    return is_good;
  }
  if (type != NULL && !read_message(reader, &frame->here, type, bytes, frame->depth + 1, &member)) return false;
  const rxd_text names[] = {RXD_TEXT_OF("@type"), RXD_TEXT_OF("value")};
  const rxd_value values[] = {host->make_text(reader->scope, url), member};
  *value = host->make_object(reader->scope, names, values, 2);
  return true;
}

static bool message_value(reader *reader, message *frame, rxd_text bytes, rxd_value *value) {
  const message_type *type = frame->type;
  switch (type->known) {
    case KNOWN_TIMESTAMP: return time_value(reader, frame, bytes.bytes, value);
    case KNOWN_DURATION: return duration_value(reader, frame, bytes.bytes, value);
    case KNOWN_ANY: return any_value(reader, frame, value);
    case KNOWN_MASK: return mask_value(reader, frame, bytes.bytes, value);
    case KNOWN_WRAPPER: case KNOWN_STRUCT: case KNOWN_LIST:
      if (present(reader, frame, 0) != NULL) return field_value(reader, frame, 0, value);
      *value = default_value(reader, &type->fields[0]);
      return true;
    case KNOWN_VALUE:
      for (size_t i = 0; i < type->field_count; i++)
        if (present(reader, frame, i) != NULL) return field_value(reader, frame, i, value);
      *value = host->make_null();
      return true;
    default: return object_value(reader, frame, (rxd_text){NULL, 0}, value);
  }
}

static bool read_message(reader *reader, const place *up, const message_type *type, rxd_text bytes, int depth, rxd_value *value) {
  if (depth > MESSAGE_DEPTH) return refuse(reader, up, bytes.bytes, "more than %d messages are nested", MESSAGE_DEPTH);
  message frame = {.here = {.up = up}, .type = type, .depth = depth};
  begin_frame(reader, &frame);
  bool is_good = read_fields(reader, &frame, bytes) && message_value(reader, &frame, bytes, value);
  end_frame(reader, &frame);
  return is_good;
}

/* Copies the text of a key; valid until the input is decoded. */
static rxd_text keep_name(reader *reader, const char *bytes, size_t count) {
  char *block = need(malloc(sizeof(char *) + count + 1));
  memcpy(block, &reader->names, sizeof(char *));
  if (count > 0) memcpy(block + sizeof(char *), bytes, count);
  reader->names = block;
  return (rxd_text){block + sizeof(char *), count};
}

/* An entry of a map: a message with the fields 1 and 2. */
static bool read_entry(reader *reader, const place *up, const message_type *type, rxd_text bytes, int depth, rxd_text *name, rxd_value *value) {
  if (depth > MESSAGE_DEPTH) return refuse(reader, up, bytes.bytes, "more than %d messages are nested", MESSAGE_DEPTH);
  message frame = {.here = {.up = up}, .type = type, .depth = depth};
  begin_frame(reader, &frame);
  bool is_good = read_fields(reader, &frame, bytes);
  if (is_good) {
    const entry *found = present(reader, &frame, 0);
    if (type->fields[0].kind == FIELD_STRING) {
      *name = found != NULL ? found->slice : RXD_TEXT_OF("");
    } else {
      rxd_value key = found != NULL ? found->value : default_value(reader, &type->fields[0]);
      char digits[32];
      if (host->kind(&key) == RXD_BOOL) snprintf(digits, sizeof digits, "%s", host->boolean(&key) ? "true" : "false");
      else if (host->kind(&key) == RXD_UINT) snprintf(digits, sizeof digits, "%llu", (unsigned long long)host->unsigned_integer(&key));
      else snprintf(digits, sizeof digits, "%lld", (long long)host->integer(&key));
      *name = keep_name(reader, digits, strlen(digits));
    }
  }
  if (is_good && present(reader, &frame, 1) != NULL) is_good = field_value(reader, &frame, 1, value);
  else if (is_good && type->fields[1].message != NULL) is_good = read_message(reader, &frame.here, type->fields[1].message, RXD_TEXT_OF(""), depth + 1, value);
  else if (is_good) *value = default_value(reader, &type->fields[1]);
  end_frame(reader, &frame);
  return is_good;
}

/* ---- The input ---- */

static bool skip_confluent_header(reader *reader, const char **at, const char *end) {
  const message_type *type = reader->format->type;
  if (end - *at < 6) return refuse(reader, NULL, *at, "the input is too short for the number of a schema");
  if (**at != 0) return refuse(reader, NULL, *at, "the first byte is %u, and not 0", (unsigned char)**at);
  *at += 5;
  const char *start = *at;
  uint64_t count, index;
  if (!varint(reader, NULL, at, end, &count)) return false;
  int64_t indexes = zigzag(count);
  bool is_same = indexes == 0 ? type->path_count == 1 && type->path[0] == 0 : indexes == (int64_t)type->path_count;
  for (int64_t i = 0; i < indexes && is_same; i++) {
    if (!varint(reader, NULL, at, end, &index)) return false;
    is_same = zigzag(index) == (int64_t)type->path[i];
  }
  return is_same || refuse(reader, NULL, start, "the indexes are those of another message than '%.*s'", shown_count(type->name), type->name.bytes);
}

int decode_input(rxd_scope *scope, const format *format, rxd_text input, rxd_value *events) {
  const char *at = input.count == 0 ? "" : input.bytes, *end = at + input.count;
  reader reader = {.scope = scope, .format = format, .begin = at, .end = end, .defaults_left = 1000000 + 16 * input.count};
  value_stack made = {0};
  bool is_good = true;
  rxd_value value;
  if (format->framing == FRAMING_DELIMITED) {
    while (at < end && is_good) {
      rxd_text message;
      is_good = slice(&reader, NULL, &at, end, &message) && read_message(&reader, NULL, format->type, message, 0, &value);
      if (is_good) push_value(&made, value);
    }
  } else {
    if (format->framing == FRAMING_CONFLUENT) is_good = skip_confluent_header(&reader, &at, end);
    is_good = is_good && read_message(&reader, NULL, format->type, (rxd_text){at, (size_t)(end - at)}, 0, &value);
    if (is_good) push_value(&made, value);
  }
  if (is_good) *events = pop_list(scope, &made, 0);
  free_values(&made);
  free_values(&reader.values);
  free(reader.entries);
  free(reader.runs);
  free(reader.pieces);
  free(reader.slots);
  while (reader.names != NULL) {
    char *next;
    memcpy(&next, reader.names, sizeof next);
    free(reader.names);
    reader.names = next;
  }
  return is_good ? RXD_OK : RXD_FAILED;
}
