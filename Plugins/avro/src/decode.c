/* Decodes Avro data to values. Memory and time are proportional to the input; values that take no bytes are limited
 * separately. */
#include "avro_format.h"

void put_place(const place *place, char *text, size_t capacity) {
  if (place == NULL) return;
  put_place(place->up, text, capacity);
  size_t used = strlen(text);
  if (place->name.bytes != NULL) used += (size_t)snprintf(text + used, capacity - used, "%s%.*s", used > 0 ? "." : "", shown_count(place->name), place->name.bytes);
  if (used >= capacity) used = capacity - 1;
  if (place->has_index) snprintf(text + used, capacity - used, "[%zu]", place->index);
}

bool refuse_input(avro_reader *reader, const place *place, const char *format, ...) {
  char path[200] = "", message[300];
  put_place(place, path, sizeof path);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  fail_at(reader->scope, "", "%s%s%sat byte %zu: %s", reader->what, path, path[0] != 0 ? ", " : "", (size_t)(reader->at - reader->begin), message);
  return false;
}

static size_t left(const avro_reader *reader) { return (size_t)(reader->end - reader->at); }

bool read_long(avro_reader *reader, const place *place, int64_t *number) {
  const char *at = reader->at;
  uint64_t made = 0;
  for (int shift = 0;; shift += 7) {
    if (at == reader->end) return refuse_input(reader, place, "a number is not complete");
    unsigned char byte = (unsigned char)*at++;
    if (shift == 63 && byte > 1) return refuse_input(reader, place, "a number has more than 64 bits");
    made |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  reader->at = at;
  *number = (int64_t)(made >> 1) ^ -(int64_t)(made & 1);
  return true;
}

static bool read_int(avro_reader *reader, const place *place, int64_t *number) {
  const char *start = reader->at;
  if (!read_long(reader, place, number)) return false;
  if (*number >= INT32_MIN && *number <= INT32_MAX) return true;
  reader->at = start;
  return refuse_input(reader, place, "the int %lld has more than 32 bits", (long long)*number);
}

static bool take(avro_reader *reader, const place *place, size_t count, const char **bytes) {
  if (left(reader) < count) return refuse_input(reader, place, "%zu bytes should follow, and %zu are left", count, left(reader));
  *bytes = reader->at;
  reader->at += count;
  return true;
}

bool read_bytes(avro_reader *reader, const place *place, rxd_text *bytes) {
  const char *start = reader->at;
  int64_t count;
  if (!read_long(reader, place, &count)) return false;
  if (count < 0 || (uint64_t)count > left(reader)) {
    size_t there = left(reader);
    reader->at = start;
    return refuse_input(reader, place, "a value of %lld bytes begins, and %zu are left", (long long)count, there);
  }
  *bytes = (rxd_text){reader->at, (size_t)count};
  reader->at += count;
  return true;
}

/* Reads the item count of the next block of an array or a map; 0: no block follows. `size`: the block's bytes, or -1 if
 * the writer gave none. */
static bool read_block(avro_reader *reader, const place *place, uint64_t *count, int64_t *size) {
  const char *start = reader->at;
  int64_t number;
  *size = -1;
  if (!read_long(reader, place, &number)) return false;
  *count = number < 0 ? -(uint64_t)number : (uint64_t)number;
  if (number >= 0) return true;
  if (!read_long(reader, place, size)) return false;
  if (*size >= 0 && (uint64_t)*size <= left(reader)) return true;
  size_t there = left(reader);
  reader->at = start;
  return refuse_input(reader, place, "a block of %lld bytes begins, and %zu are left", (long long)*size, there);
}

/* Counts a value against the limit for values without bytes. */
static inline bool count_value(avro_reader *reader, const place *place) {
  if (reader->values_left == 0) return refuse_input(reader, place, "the input has too many values without bytes");
  reader->values_left--;
  return true;
}

/* ---- Values ---- */

static bool time_text(avro_reader *reader, const place *place, int64_t seconds, int64_t nanoseconds, int shown, rxd_value *value) {
  char text[40];
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND) return refuse_input(reader, place, "the time is not between the years 1 and 9999");
  rfc3339_text(seconds, nanoseconds, text);
  size_t count = shown > 0 ? (size_t)shown : strlen(text);
  *value = host->make_text(reader->scope, (rxd_text){text, count});
  return true;
}

/* Makes a whole number of the reader's type. */
static bool whole_value(avro_reader *reader, const place *place, const node *type, int64_t number, rxd_value *value) {
  int64_t unit = 1, per_second = 1;
  switch (type->logical) {
    case LOGICAL_DATE: return time_text(reader, place, number * 86400, 0, 10, value);
    case LOGICAL_TIME_MILLIS: unit = 1000000; break;
    case LOGICAL_TIME_MICROS: unit = 1000; break;
    case LOGICAL_MILLIS: case LOGICAL_LOCAL_MILLIS: per_second = 1000; break;
    case LOGICAL_MICROS: case LOGICAL_LOCAL_MICROS: per_second = 1000000; break;
    case LOGICAL_NANOS: case LOGICAL_LOCAL_NANOS: per_second = 1000000000; break;
    default:
      *value = type->type == AVRO_FLOAT ? host->make_double((double)(float)number) : type->type == AVRO_DOUBLE ? host->make_double((double)number) : host->make_int(number);
      return true;
  }
  if (unit > 1) {
    int64_t all;
    if (__builtin_mul_overflow(number, unit, &all)) return refuse_input(reader, place, "the time of a day is longer than 292 years");
    *value = host->make_duration(all);
    return true;
  }
  int64_t seconds = number / per_second, rest = number % per_second;
  if (rest < 0) rest += per_second, seconds--;
  rest *= 1000000000 / per_second;
  bool is_local = type->logical == LOGICAL_LOCAL_MILLIS || type->logical == LOGICAL_LOCAL_MICROS || type->logical == LOGICAL_LOCAL_NANOS;
  if (!is_local && make_time(seconds, (uint32_t)rest, value)) return true;
  /* A local time becomes a text without a zone. */
  return time_text(reader, place, seconds, rest, is_local ? (rest != 0 ? 29 : 19) : 0, value);
}

#define MOST_DECIMAL 1024

/* Makes a decimal from an integer of any length and the number of digits after the point. */
static bool decimal_value(avro_reader *reader, const place *place, const node *type, rxd_text bytes, rxd_value *value) {
  if (bytes.count > MOST_DECIMAL) return refuse_input(reader, place, "a decimal has %zu bytes, and at most %d are read", bytes.count, MOST_DECIMAL);
  uint32_t words[MOST_DECIMAL / 4 + 1] = {0};
  size_t count = (bytes.count + 3) / 4;
  bool is_negative = bytes.count > 0 && (bytes.bytes[0] & 0x80) != 0;
  for (size_t i = 0; i < count * 4; i++) { /* most significant word first */
    size_t padding = count * 4 - bytes.count;
    unsigned char byte = i < padding ? (is_negative ? 0xff : 0) : (unsigned char)bytes.bytes[i - padding];
    words[i / 4] = words[i / 4] << 8 | byte;
  }
  if (is_negative) { /* negate to the absolute value */
    uint64_t carry = 1;
    for (size_t i = count; i-- > 0;) {
      carry += (uint32_t)~words[i];
      words[i] = (uint32_t)carry;
      carry >>= 32;
    }
  }
  /* Digits are written from last to first, nine at a time. */
  char text[MOST_DECIMAL * 5 / 2 + 2100], *end = text + sizeof text, *at = end;
  size_t first = 0, digits = 0;
  while (true) {
    while (first < count && words[first] == 0) first++;
    if (first == count) break;
    uint64_t rest = 0;
    for (size_t i = first; i < count; i++) {
      rest = rest << 32 | words[i];
      words[i] = (uint32_t)(rest / 1000000000);
      rest %= 1000000000;
    }
    for (int i = 0; i < 9; i++, rest /= 10) {
      if (digits == type->scale && type->scale > 0) *--at = '.';
      *--at = (char)('0' + rest % 10);
      digits++;
    }
  }
  while (digits <= type->scale) {
    if (digits == type->scale && type->scale > 0) *--at = '.';
    *--at = '0';
    digits++;
  }
  while (end - at > 1 && *at == '0' && at[1] != '.') at++;
  if (is_negative) *--at = '-';
  *value = host->make_text(reader->scope, (rxd_text){at, (size_t)(end - at)});
  return true;
}

static uint32_t little_32(const char *at) {
  uint32_t number;
  memcpy(&number, at, 4);
  return le32toh(number);
}

/* Makes a text or bytes of the reader's type from bytes, a string or a fixed. */
static bool text_value(avro_reader *reader, const place *place, const node *type, rxd_text bytes, rxd_value *value) {
  if (type->logical == LOGICAL_DECIMAL) return decimal_value(reader, place, type, bytes, value);
  if (type->type == AVRO_STRING) {
    if (!is_utf8(bytes.bytes, bytes.count)) {
      reader->at = bytes.bytes;
      return refuse_input(reader, place, "the string is not UTF-8");
    }
    *value = host->make_text(reader->scope, bytes);
    return true;
  }
  if (type->logical == LOGICAL_UUID) {
    char text[40], *at = text;
    for (size_t i = 0; i < 16; i++) at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)bytes.bytes[i]);
    *value = host->make_text(reader->scope, text_of(text));
    return true;
  }
  if (type->logical == LOGICAL_DURATION) {
    const rxd_text names[] = {RXD_TEXT_OF("months"), RXD_TEXT_OF("days"), RXD_TEXT_OF("milliseconds")};
    rxd_value values[3];
    for (int i = 0; i < 3; i++) values[i] = host->make_int(little_32(bytes.bytes + 4 * i));
    *value = host->make_object(reader->scope, names, values, 3);
    return true;
  }
  *value = host->make_bytes(reader->scope, bytes);
  return true;
}

static bool too_deep(avro_reader *reader, const place *place) { return refuse_input(reader, place, "the value is nested more deeply than %d levels", DEPTH_LIMIT); }

static bool skip(avro_reader *reader, const node *type, const place *place, int depth) {
  int64_t number;
  rxd_text bytes;
  const char *ignored;
  if (depth > DEPTH_LIMIT) return too_deep(reader, place);
  if (!count_value(reader, place)) return false;
  switch (type->type) {
    case AVRO_NULL: return true;
    case AVRO_BOOLEAN: return take(reader, place, 1, &ignored);
    case AVRO_INT: return read_int(reader, place, &number);
    case AVRO_LONG: return read_long(reader, place, &number);
    case AVRO_FLOAT: return take(reader, place, 4, &ignored);
    case AVRO_DOUBLE: return take(reader, place, 8, &ignored);
    case AVRO_FIXED: return take(reader, place, type->size, &ignored);
    case AVRO_BYTES: case AVRO_STRING: return read_bytes(reader, place, &bytes);
    case AVRO_ENUM:
      if (!read_int(reader, place, &number)) return false;
      return (number >= 0 && (uint64_t)number < type->count) || refuse_input(reader, place, "the enum has no symbol %lld", (long long)number);
    case AVRO_UNION:
      if (!read_long(reader, place, &number)) return false;
      if (number < 0 || (uint64_t)number >= type->count) return refuse_input(reader, place, "the union has no branch %lld", (long long)number);
      return skip(reader, type->branches[number], place, depth + 1);
    case AVRO_RECORD:
      for (size_t i = 0; i < type->count; i++) {
        struct place here = {.up = place, .name = type->fields[i].name};
        if (!skip(reader, type->fields[i].type, &here, depth + 1)) return false;
      }
      return true;
    default: break;
  }
  while (true) {
    uint64_t count;
    int64_t size;
    if (!read_block(reader, place, &count, &size)) return false;
    if (count == 0) return true;
    if (size >= 0) {
      reader->at += size;
      continue;
    }
    for (; count > 0; count--)
      if ((type->type == AVRO_MAP && !read_bytes(reader, place, &bytes)) || !skip(reader, type->items, place, depth + 1)) return false;
  }
}

static bool read_planned(avro_reader *reader, const plan *plan, const place *place, int depth, rxd_value *value);

static bool read_record(avro_reader *reader, const plan *plan, const place *place, int depth, rxd_value *value) {
  const node *type = plan->reader;
  value_stack *stack = &reader->stack;
  size_t start = stack->count;
  rxd_value none = host->make_null();
  for (size_t i = 0; i < type->count; i++) push_member(stack, type->fields[i].name, none);
  for (size_t i = 0; i < plan->writer->count; i++) {
    const plan_step *step = &plan->steps[i];
    struct place here = {.up = place, .name = plan->writer->fields[i].name};
    rxd_value member;
    if (step->plan == NULL) {
      if (!skip(reader, step->skipped, &here, depth + 1)) return false;
      continue;
    }
    if (!read_planned(reader, step->plan, &here, depth + 1, &member)) return false;
    stack->values[start + step->index] = member;
  }
  for (size_t i = 0; i < plan->default_count; i++) {
    const record_field *field = &type->fields[plan->defaults[i].index];
    struct place here = {.up = place, .name = field->name};
    const char *at = reader->at, *end = reader->end;
    rxd_value member;
    reader->at = field->otherwise.bytes;
    reader->end = reader->at + field->otherwise.count;
    bool is_good = read_planned(reader, plan->defaults[i].plan, &here, depth + 1, &member);
    reader->at = at;
    reader->end = end;
    if (!is_good) return false;
    stack->values[start + plan->defaults[i].index] = member;
  }
  *value = pop_object(reader->scope, stack, start);
  return true;
}

static bool read_items(avro_reader *reader, const plan *plan, const place *place, int depth, rxd_value *value) {
  bool is_map = plan->writer->type == AVRO_MAP;
  size_t start = reader->stack.count, index = 0;
  while (true) {
    uint64_t count;
    int64_t ignored;
    if (!read_block(reader, place, &count, &ignored)) return false;
    if (count == 0) break;
    for (; count > 0; count--, index++) {
      struct place here = {.up = place, .index = index, .has_index = true};
      rxd_value item;
      rxd_text name;
      if (is_map) {
        if (!read_bytes(reader, &here, &name)) return false;
        if (!is_utf8(name.bytes, name.count)) {
          reader->at = name.bytes;
          return refuse_input(reader, &here, "the key is not UTF-8");
        }
        here = (struct place){.up = place, .name = name};
      }
      if (!read_planned(reader, plan->children[0], &here, depth + 1, &item)) return false;
      if (is_map) push_member(&reader->stack, name, item);
      else push_value(&reader->stack, item);
    }
  }
  if (!is_map) {
    *value = pop_list(reader->scope, &reader->stack, start);
    return true;
  }
  rxd_text twice;
  if (reader->stack.count > start && repeated_name(reader->stack.names + start, reader->stack.count - start, &twice) != NULL)
    return refuse_input(reader, place, "the map has the key '%.*s' twice", shown_count(twice), twice.bytes);
  *value = pop_object(reader->scope, &reader->stack, start);
  return true;
}

static bool read_planned(avro_reader *reader, const plan *plan, const place *place, int depth, rxd_value *value) {
  int64_t number;
  rxd_text bytes;
  const char *at = NULL;
  if (plan->problem != NULL) return refuse_input(reader, place, "%s", plan->problem);
  if (depth > DEPTH_LIMIT) return too_deep(reader, place);
  if (!count_value(reader, place)) return false;
  switch (plan->writer->type) {
    case AVRO_NULL: *value = host->make_null(); return true;
    case AVRO_BOOLEAN:
      if (!take(reader, place, 1, &at)) return false;
      if ((unsigned char)*at > 1) {
        reader->at--;
        return refuse_input(reader, place, "a boolean is %u, and neither 0 nor 1", (unsigned char)*at);
      }
      *value = host->make_bool(*at);
      return true;
    case AVRO_INT: return read_int(reader, place, &number) && whole_value(reader, place, plan->reader, number, value);
    case AVRO_LONG: return read_long(reader, place, &number) && whole_value(reader, place, plan->reader, number, value);
    case AVRO_FLOAT: {
      if (!take(reader, place, 4, &at)) return false;
      uint32_t bits = little_32(at);
      float real;
      memcpy(&real, &bits, 4);
      *value = host->make_double((double)real);
      return true;
    }
    case AVRO_DOUBLE: {
      if (!take(reader, place, 8, &at)) return false;
      uint64_t bits;
      double real;
      memcpy(&bits, at, 8);
      bits = le64toh(bits);
      memcpy(&real, &bits, 8);
      *value = host->make_double(real);
      return true;
    }
    case AVRO_BYTES: case AVRO_STRING: return read_bytes(reader, place, &bytes) && text_value(reader, place, plan->reader, bytes, value);
    case AVRO_FIXED:
      if (!take(reader, place, plan->writer->size, &at)) return false;
      return text_value(reader, place, plan->reader, (rxd_text){at, plan->writer->size}, value);
    case AVRO_ENUM: {
      if (!read_int(reader, place, &number)) return false;
      if (number < 0 || (uint64_t)number >= plan->writer->count) return refuse_input(reader, place, "the enum has no symbol %lld", (long long)number);
      int32_t symbol = plan->symbols[number];
      rxd_text name = plan->writer->symbols[number];
      if (symbol < 0) return refuse_input(reader, place, "the reader's enum has no symbol '%.*s', and no default", shown_count(name), name.bytes);
      *value = host->make_text(reader->scope, plan->reader->symbols[symbol]);
      return true;
    }
    case AVRO_UNION:
      if (!read_long(reader, place, &number)) return false;
      if (number < 0 || (uint64_t)number >= plan->writer->count) return refuse_input(reader, place, "the union has no branch %lld", (long long)number);
      return read_planned(reader, plan->children[number], place, depth + 1, value);
    case AVRO_RECORD: return read_record(reader, plan, place, depth, value);
    default: return read_items(reader, plan, place, depth, value);
  }
}

bool read_value(avro_reader *reader, const plan *plan, rxd_value *value) {
  bool is_good = read_planned(reader, plan, NULL, 0, value);
  if (!is_good) reader->stack.count = 0;
  return is_good;
}
