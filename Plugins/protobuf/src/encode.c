/* Encodes values as messages: fields in the order of their numbers, as the libraries write them, without defaults of
 * fields that have no presence. */
#include <float.h>
#include <math.h>

#include "protobuf_format.h"

/* A member of an event being encoded. */
typedef struct {
  const field_type *field;
  rxd_value value;
} member;

typedef struct {
  rxd_scope *scope;
  const format *format;
  output_bytes *output;
  member *members; /* members of all open messages, the innermost last */
  size_t count, capacity;
} writer;

__attribute__((format(printf, 3, 4)))
static bool refuse(writer *writer, const place *place, const char *format, ...) {
  char path[200] = "", message[280], whole[500];
  put_place(place, path, sizeof path);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (path[0] != 0) snprintf(whole, sizeof whole, "%s: %s", path, message);
  else snprintf(whole, sizeof whole, "%s", message);
  host->fail(writer->scope, text_of(whole), text_of(""));
  return false;
}

static const char *type_name(const field_type *field) {
  static const char *const names[] = {"", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group",
                                      "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"};
  return names[field->kind];
}

static bool unfit(writer *writer, const place *place, const rxd_value *value, const char *needed) {
  return refuse(writer, place, "%s does not fit %s", value_kind(host->kind(value)), needed);
}

/* ---- Bytes ---- */

static void put_varint(output_bytes *output, uint64_t number) {
  char *start = output_room(output, 10), *at = start;
  for (; number >= 0x80; number >>= 7) *at++ = (char)(number | 0x80);
  *at++ = (char)number;
  output->count += (size_t)(at - start);
}

static void put_tag(output_bytes *output, uint32_t number, int wire) { put_varint(output, (uint64_t)number << 3 | (unsigned)wire); }

static void put_fixed(output_bytes *output, uint64_t number, size_t width) {
  uint64_t little = htole64(number);
  output_append(output, (const char *)&little, width);
}

/* Reserves room for the length of what follows; see `end_length`. */
static size_t begin_length(output_bytes *output) {
  output_room(output, 1);
  return ++output->count;
}

static void end_length(output_bytes *output, size_t start) {
  size_t count = output->count - start, width = 1;
  for (size_t rest = count; rest >= 0x80; rest >>= 7) width++;
  if (width > 1) {
    output_room(output, width - 1);
    memmove(output->bytes + start + width - 1, output->bytes + start, count);
  }
  output->count = start - 1;
  put_varint(output, count);
  output->count += count;
}

static void put_text(output_bytes *output, uint32_t number, rxd_text text) {
  put_tag(output, number, WIRE_BYTES);
  put_varint(output, text.count);
  output_append(output, text.bytes, text.count);
}

/* ---- Numbers and texts ---- */

typedef __int128 wide;

/* Parses digits and a sign, without leading zeros. */
static bool decimal(rxd_text text, wide *number) {
  size_t at = 0;
  bool is_negative = text.count > 0 && text.bytes[0] == '-';
  if (is_negative) at++;
  size_t digits = text.count - at;
  if (digits == 0 || digits > 20 || (digits > 1 && text.bytes[at] == '0')) return false;
  *number = 0;
  for (; at < text.count; at++) {
    if (!isdigit((unsigned char)text.bytes[at])) return false;
    *number = *number * 10 + (text.bytes[at] - '0');
  }
  if (is_negative) *number = -*number;
  return true;
}

/* Parses a text as a JSON number. */
static bool number_in_text(writer *writer, const rxd_value *value, rxd_value *number) {
  rxd_text text = host->text(writer->scope, value);
  if (text.count == 0 || text.count > 100 || !isdigit((unsigned char)text.bytes[text.count - 1])) return false;
  size_t first = text.bytes[0] == '-';
  if (first == text.count || !isdigit((unsigned char)text.bytes[first])) return false; /* no spaces around it */
  if (text.bytes[first] == '0' && first + 1 < text.count && isdigit((unsigned char)text.bytes[first + 1])) return false;
  if (host->parse_json(writer->scope, text, number) != RXD_OK) return false;
  int kind = host->kind(number);
  return kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE;
}

static bool whole_number(writer *writer, const rxd_value *value, wide *number) {
  rxd_value inner;
  switch (host->kind(value)) {
    case RXD_INT: *number = host->integer(value); return true;
    case RXD_UINT: *number = (wide)host->unsigned_integer(value); return true;
    case RXD_DOUBLE: {
      double real = host->number(value);
      if (!(fabs(real) < 0x1p64) || real != trunc(real)) return false;
      *number = (wide)real;
      return true;
    }
    case RXD_TEXT:
      if (decimal(host->text(writer->scope, value), number)) return true;
      return number_in_text(writer, value, &inner) && whole_number(writer, &inner, number);
    default: return false;
  }
}

static bool real_number(writer *writer, const rxd_value *value, double *number) {
  rxd_value inner;
  switch (host->kind(value)) {
    case RXD_INT: case RXD_UINT: case RXD_DOUBLE: *number = host->number(value); return true;
    case RXD_TEXT: {
      rxd_text text = host->text(writer->scope, value);
      if (text_is(text, RXD_TEXT_OF("NaN"))) return *number = NAN, true;
      if (text_is(text, RXD_TEXT_OF("Infinity"))) return *number = INFINITY, true;
      if (text_is(text, RXD_TEXT_OF("-Infinity"))) return *number = -INFINITY, true;
      return number_in_text(writer, value, &inner) && real_number(writer, &inner, number);
    }
    default: return false;
  }
}

/* The enum value with this name; NULL: there is none. */
static const enum_value *named(const enumeration *type, rxd_text name) {
  size_t low = 0, high = type->name_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    rxd_text found = type->by_name[middle].name;
    size_t shorter = found.count < name.count ? found.count : name.count;
    int compared = shorter == 0 ? 0 : memcmp(found.bytes, name.bytes, shorter);
    if (compared == 0 && found.count == name.count) return &type->by_name[middle];
    if (compared < 0 || (compared == 0 && found.count < name.count)) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

static bool is_numbered(const enumeration *type, int64_t number) {
  size_t low = 0, high = type->number_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (type->by_number[middle].number < number) low = middle + 1;
    else high = middle;
  }
  return low < type->number_count && type->by_number[low].number == number;
}

static bool enum_number(writer *writer, const place *place, const field_type *field, const rxd_value *value, uint64_t *raw) {
  const enumeration *type = field->enumeration;
  wide number;
  if (type->is_null && host->kind(value) == RXD_NULL) return *raw = 0, true;
  if (host->kind(value) == RXD_TEXT) {
    rxd_text name = host->text(writer->scope, value);
    const enum_value *found = named(type, name);
    if (found == NULL)
      return refuse(writer, place, "the enum %.*s has no value '%.*s'", shown_count(type->name), type->name.bytes, shown_count(name), name.bytes);
    return *raw = (uint64_t)(int64_t)found->number, true;
  }
  if (!whole_number(writer, value, &number)) return unfit(writer, place, value, "an enum");
  if (number < INT32_MIN || number > INT32_MAX || (type->is_closed && !is_numbered(type, (int64_t)number)))
    return refuse(writer, place, "the enum %.*s has no value with this number", shown_count(type->name), type->name.bytes);
  *raw = (uint64_t)(int64_t)number;
  return true;
}

/* Converts a scalar to its wire form. */
static bool number_of(writer *writer, const place *place, const field_type *field, const rxd_value *value, uint64_t *raw) {
  static const struct { wide least, most; } ranges[] = {
      [FIELD_INT64] = {INT64_MIN, INT64_MAX}, [FIELD_SFIXED64] = {INT64_MIN, INT64_MAX}, [FIELD_SINT64] = {INT64_MIN, INT64_MAX},
      [FIELD_INT32] = {INT32_MIN, INT32_MAX}, [FIELD_SFIXED32] = {INT32_MIN, INT32_MAX}, [FIELD_SINT32] = {INT32_MIN, INT32_MAX},
      [FIELD_UINT64] = {0, UINT64_MAX}, [FIELD_FIXED64] = {0, UINT64_MAX}, [FIELD_UINT32] = {0, UINT32_MAX}, [FIELD_FIXED32] = {0, UINT32_MAX}};
  wide whole;
  double real;
  switch (field->kind) {
    case FIELD_DOUBLE:
      if (!real_number(writer, value, &real)) return unfit(writer, place, value, "a double");
      memcpy(raw, &real, sizeof real);
      return true;
    case FIELD_FLOAT: {
      if (!real_number(writer, value, &real)) return unfit(writer, place, value, "a float");
      float single = (float)real;
      if (isinf(single) && !isinf(real)) return refuse(writer, place, "the number is beyond those of a float");
      uint32_t bits;
      memcpy(&bits, &single, sizeof bits);
      *raw = bits;
      return true;
    }
    case FIELD_BOOL:
      if (host->kind(value) != RXD_BOOL) return unfit(writer, place, value, "a bool");
      *raw = host->boolean(value) != 0;
      return true;
    case FIELD_ENUM: return enum_number(writer, place, field, value, raw);
    default: break;
  }
  if (!whole_number(writer, value, &whole)) {
    if (host->kind(value) == RXD_DOUBLE) return refuse(writer, place, "the number is not whole, or too large for %s", type_name(field));
    if (host->kind(value) == RXD_TEXT) return refuse(writer, place, "the text is not a whole number");
    return unfit(writer, place, value, type_name(field));
  }
  if (whole < ranges[field->kind].least || whole > ranges[field->kind].most) {
    if (whole < 0 && ranges[field->kind].least == 0) return refuse(writer, place, "the number is below 0, which %s cannot have", type_name(field));
    return refuse(writer, place, "the number is beyond those of %s", type_name(field));
  }
  if (field->kind == FIELD_SINT64) *raw = (uint64_t)(int64_t)whole << 1 ^ (uint64_t)((int64_t)whole >> 63);
  else if (field->kind == FIELD_SINT32) *raw = (uint32_t)((uint32_t)(int32_t)whole << 1 ^ (uint32_t)((int32_t)whole >> 31));
  else *raw = (uint64_t)whole;
  return true;
}

static void put_number(output_bytes *output, const field_type *field, uint64_t raw) {
  if (field->wire == WIRE_VARINT) put_varint(output, raw);
  else put_fixed(output, raw, field->wire == WIRE_64 ? 8 : 4);
}

/* Appends the bytes of a text in base64, of either alphabet, with or without `=` at the end. */
static bool put_base64(output_bytes *output, rxd_text text) {
  uint32_t bits = 0;
  int count = 0;
  while (text.count > 0 && text.bytes[text.count - 1] == '=' && text.count % 4 == 0) {
    text.count--;
    if (text.count % 4 == 3 && text.bytes[text.count - 1] == '=') text.count--;
    break;
  }
  if (text.count % 4 == 1) return false;
  for (size_t i = 0; i < text.count; i++) {
    unsigned char c = (unsigned char)text.bytes[i];
    int digit = c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
    if (digit < 0) return false;
    bits = bits << 6 | (uint32_t)digit;
    if ((count += 6) < 8) continue;
    count -= 8;
    char byte = (char)(bits >> count);
    output_append(output, &byte, 1);
  }
  return true;
}

/* Appends a string or bytes with their length. */
static bool put_text_value(writer *writer, const place *place, const field_type *field, const rxd_value *value) {
  int kind = host->kind(value);
  rxd_text text;
  if (field->kind == FIELD_STRING) {
    if (kind == RXD_TEXT) text = host->text(writer->scope, value);
    else if (kind == RXD_TIMESTAMP || kind == RXD_DURATION) text = plain_text(writer->scope, value);
    else return unfit(writer, place, value, "a string");
  } else if (kind == RXD_TEXT) {
    size_t start = begin_length(writer->output);
    if (!put_base64(writer->output, host->text(writer->scope, value))) return refuse(writer, place, "the text is not base64, and the field has bytes");
    end_length(writer->output, start);
    return true;
  } else if (kind == RXD_BYTES) {
    text = host->text(writer->scope, value);
  } else {
    return unfit(writer, place, value, "bytes");
  }
  put_varint(writer->output, text.count);
  output_append(writer->output, text.bytes, text.count);
  return true;
}

/* ---- Messages ---- */

static bool put_message(writer *writer, const place *place, const message_type *type, const rxd_value *value, int depth);

/* Appends a nested message: tag, length and content, or a group. */
static bool put_nested(writer *writer, const place *place, const field_type *field, const rxd_value *value, int depth) {
  if (depth > MESSAGE_DEPTH) return refuse(writer, place, "more than %d messages are nested", MESSAGE_DEPTH);
  put_tag(writer->output, field->number, field->wire);
  if (field->wire == WIRE_GROUP) {
    if (!put_message(writer, place, field->message, value, depth)) return false;
    put_tag(writer->output, field->number, WIRE_END_GROUP);
    return true;
  }
  size_t start = begin_length(writer->output);
  if (!put_message(writer, place, field->message, value, depth)) return false;
  end_length(writer->output, start);
  return true;
}

/* `is_needed`: it is written even if it is the default of a field without presence. */
static bool put_single(writer *writer, const place *place, const field_type *field, const rxd_value *value, int depth, bool is_needed) {
  output_bytes *output = writer->output;
  if (field->message != NULL) return put_nested(writer, place, field, value, depth);
  size_t before = output->count;
  if (field->wire == WIRE_BYTES) {
    put_tag(output, field->number, WIRE_BYTES);
    size_t start = output->count;
    if (!put_text_value(writer, place, field, value)) return false;
    if (!is_needed && output->count == start + 1) output->count = before; /* nothing but the length 0 */
    return true;
  }
  uint64_t raw;
  if (!number_of(writer, place, field, value, &raw)) return false;
  if (raw == 0 && !is_needed) return true;
  put_tag(output, field->number, field->wire);
  put_number(output, field, raw);
  return true;
}

static bool takes_null(const field_type *field) {
  return field->message != NULL ? field->message->known == KNOWN_VALUE : field->enumeration != NULL && field->enumeration->is_null;
}

static bool put_list(writer *writer, place *place, const field_type *field, const rxd_value *value, int depth) {
  output_bytes *output = writer->output;
  if (host->kind(value) != RXD_LIST) return unfit(writer, place, value, "a repeated field, which needs a list");
  size_t count = host->count(writer->scope, value), start = 0;
  bool is_packed = field->is_packed && count > 0;
  if (is_packed) {
    put_tag(output, field->number, WIRE_BYTES);
    start = begin_length(output);
  }
  place->has_index = true;
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(writer->scope, value, i);
    place->index = i;
    if (host->kind(&element) == RXD_NULL && !takes_null(field)) return refuse(writer, place, "null cannot be an element of a repeated field");
    if (is_packed) {
      uint64_t raw;
      if (!number_of(writer, place, field, &element, &raw)) return false;
      put_number(output, field, raw);
    } else if (!put_single(writer, place, field, &element, depth, true)) {
      return false;
    }
  }
  place->has_index = false;
  if (is_packed) end_length(output, start);
  return true;
}

static bool put_key(writer *writer, const place *place, const field_type *field, rxd_text name) {
  wide number;
  if (field->kind == FIELD_STRING) {
    put_text(writer->output, 1, name);
    return true;
  }
  rxd_value key;
  if (field->kind == FIELD_BOOL) {
    bool is_true = text_is(name, RXD_TEXT_OF("true"));
    if (!is_true && !text_is(name, RXD_TEXT_OF("false")))
      return refuse(writer, place, "the key '%.*s' is neither true nor false", shown_count(name), name.bytes);
    key = host->make_bool(is_true);
  } else if (!decimal(name, &number) || number < INT64_MIN || number > UINT64_MAX) {
    return refuse(writer, place, "the key '%.*s' is not a whole number", shown_count(name), name.bytes);
  } else {
    key = number > INT64_MAX ? host->make_uint((uint64_t)number) : host->make_int((int64_t)number);
  }
  return put_single(writer, place, field, &key, 0, true);
}

static bool put_map(writer *writer, place *place, const field_type *field, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_OBJECT) return unfit(writer, place, value, "a map, which needs an object");
  if (depth > MESSAGE_DEPTH) return refuse(writer, place, "more than %d messages are nested", MESSAGE_DEPTH);
  const message_type *type = field->message;
  size_t count = host->count(writer->scope, value);
  rxd_text few[32], twice, *names = count <= 32 ? few : need(malloc(count * sizeof *names));
  bool is_good = true;
  for (size_t i = 0; i < count && is_good; i++) {
    rxd_value element = host->entry(writer->scope, value, i, &names[i]);
    /* In messages, the path names the key as if it were a field. */
    field_type named = type->fields[1];
    named.name = names[i];
    struct place inner = {.up = place, .field = &named};
    put_tag(writer->output, field->number, WIRE_BYTES);
    size_t start = begin_length(writer->output);
    if (host->kind(&element) == RXD_NULL && !takes_null(&named)) is_good = refuse(writer, &inner, "null cannot be a value of a map");
    is_good = is_good && put_key(writer, place, &type->fields[0], names[i]) && put_single(writer, &inner, &named, &element, depth + 1, true);
    if (is_good) end_length(writer->output, start);
  }
  if (is_good && repeated_name(names, count, &twice) != NULL)
    is_good = refuse(writer, place, "the object has the member '%.*s' twice", shown_count(twice), twice.bytes);
  if (names != few) free(names);
  return is_good;
}

static const field_type *field_named(const message_type *type, rxd_text name, uint32_t hint) {
  if (hint < type->field_count && text_is(type->fields[hint].name, name)) return &type->fields[hint];
  uint32_t mask = type->bucket_count - 1;
  for (uint32_t bucket = hash_of_name(name.bytes, name.count) & mask; type->buckets[bucket] != 0; bucket = (bucket + 1) & mask) {
    const field_type *field = &type->fields[type->buckets[bucket] - 1];
    if (text_is(field->name, name) || text_is(field->other, name)) return field;
  }
  return NULL;
}

static int compare_members(const void *a, const void *b) {
  const field_type *left = ((const member *)a)->field, *right = ((const member *)b)->field;
  return left < right ? -1 : left > right;
}

/* Collects the members of an object as fields, by number. `skips_type`: ignores the member "@type". */
static bool collect_members(writer *writer, const place *up, const message_type *type, const rxd_value *value, bool skips_type) {
  size_t start = writer->count, count = host->count(writer->scope, value);
  bool is_sorted = true;
  uint32_t required = 0, hint = 0;
  for (size_t i = 0; i < count; i++) {
    rxd_text name = {NULL, 0};
    rxd_value one = host->entry(writer->scope, value, i, &name);
    if (skips_type && text_is(name, RXD_TEXT_OF("@type"))) continue;
    const field_type *field = field_named(type, name, hint);
    if (field == NULL) {
      if (writer->format->ignores_unknown) continue;
      return refuse(writer, up, "the message %.*s has no field '%.*s'", shown_count(type->name), type->name.bytes, shown_count(name), name.bytes);
    }
    hint = (uint32_t)(field - type->fields) + 1;
    if (host->kind(&one) == RXD_NULL && (field->is_repeated || !takes_null(field))) continue;
    if (writer->count == writer->capacity) {
      writer->capacity = writer->capacity == 0 ? 32 : writer->capacity * 2;
      writer->members = need(realloc(writer->members, writer->capacity * sizeof *writer->members));
    }
    is_sorted = is_sorted && (writer->count == start || writer->members[writer->count - 1].field < field);
    required += field->is_required;
    writer->members[writer->count++] = (member){field, one};
  }
  if (!is_sorted) qsort(writer->members + start, writer->count - start, sizeof *writer->members, compare_members);
  for (size_t i = start; i < writer->count; i++) {
    const field_type *field = writer->members[i].field;
    if (i > start && field == writer->members[i - 1].field) {
      struct place here = {.up = up, .field = field};
      return refuse(writer, &here, "the object has the field twice");
    }
    for (size_t j = start; field->oneof >= 0 && j < i; j++) {
      const field_type *other = writer->members[j].field;
      if (other->oneof != field->oneof) continue;
      rxd_text oneof = type->oneofs[field->oneof];
      return refuse(writer, up, "only one of '%.*s' and '%.*s', of the oneof '%.*s', can be there", shown_count(other->name), other->name.bytes,
                    shown_count(field->name), field->name.bytes, shown_count(oneof), oneof.bytes);
    }
  }
  if (required == type->required_count) return true;
  for (uint32_t i = 0; i < type->field_count; i++) {
    bool is_there = !type->fields[i].is_required;
    for (size_t j = start; j < writer->count && !is_there; j++) is_there = writer->members[j].field == &type->fields[i];
    struct place here = {.up = up, .field = &type->fields[i]};
    if (!is_there) return refuse(writer, &here, "the field is required, and the event does not have it");
  }
  return true;
}

static bool put_object(writer *writer, const place *up, const message_type *type, const rxd_value *value, int depth, bool skips_type) {
  if (host->kind(value) != RXD_OBJECT) {
    if (up == NULL) return refuse(writer, up, "the event is %s; a message is an object", value_kind(host->kind(value)));
    return unfit(writer, up, value, "a message, which needs an object");
  }
  size_t start = writer->count;
  bool is_good = collect_members(writer, up, type, value, skips_type);
  size_t end = writer->count;
  for (size_t i = start; i < end && is_good; i++) {
    member one = writer->members[i]; /* a copy, because reallocation moves the members */
    place here = {.up = up, .field = one.field};
    is_good = one.field->is_map        ? put_map(writer, &here, one.field, &one.value, depth + 1)
              : one.field->is_repeated ? put_list(writer, &here, one.field, &one.value, depth + 1)
                                       : put_single(writer, &here, one.field, &one.value, depth + 1, one.field->has_presence);
  }
  writer->count = start;
  return is_good;
}

/* ---- Well-known types ---- */

static void put_seconds(output_bytes *output, int64_t seconds, int64_t nanoseconds) {
  if (seconds != 0) {
    put_tag(output, 1, WIRE_VARINT);
    put_varint(output, (uint64_t)seconds);
  }
  if (nanoseconds != 0) {
    put_tag(output, 2, WIRE_VARINT);
    put_varint(output, (uint64_t)nanoseconds);
  }
}

static bool put_time(writer *writer, const place *place, const rxd_value *value) {
  int64_t seconds;
  uint32_t nanoseconds;
  if (host->kind(value) == RXD_TIMESTAMP) {
    if (!time_of(writer->scope, value, &seconds, &nanoseconds)) return refuse(writer, place, "the time cannot be read");
  } else if (host->kind(value) == RXD_TEXT) {
    if (!parse_time(host->text(writer->scope, value), &seconds, &nanoseconds)) return refuse(writer, place, "the text is not a time of RFC 3339");
  } else {
    return unfit(writer, place, value, "a Timestamp");
  }
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND) return refuse(writer, place, "the time is not between the years 1 and 9999");
  put_seconds(writer->output, seconds, nanoseconds);
  return true;
}

/* Parses a duration such as "-1.5s", with at most nine digits after the point. */
static bool parse_duration(rxd_text text, int64_t *seconds, int64_t *nanoseconds) {
  const char *at = text.bytes, *end = at + text.count;
  if (text.count < 2 || end[-1] != 's') return false;
  end--;
  bool is_negative = *at == '-';
  if (is_negative) at++;
  const char *first = at;
  *seconds = *nanoseconds = 0;
  for (; at < end && isdigit((unsigned char)*at) && at - first < 12; at++) *seconds = *seconds * 10 + (*at - '0');
  if (at == first) return false;
  if (at < end && *at == '.') {
    at++;
    if (at == end) return false;
    for (int64_t unit = 100000000; at < end && isdigit((unsigned char)*at) && unit > 0; at++, unit /= 10) *nanoseconds += (*at - '0') * unit;
  }
  if (is_negative) *seconds = -*seconds, *nanoseconds = -*nanoseconds;
  return at == end;
}

static bool put_duration(writer *writer, const place *place, const rxd_value *value) {
  int64_t seconds, nanoseconds;
  if (host->kind(value) == RXD_DURATION) {
    seconds = host->integer(value) / 1000000000;
    nanoseconds = host->integer(value) % 1000000000;
  } else if (host->kind(value) == RXD_TEXT) {
    if (!parse_duration(host->text(writer->scope, value), &seconds, &nanoseconds))
      return refuse(writer, place, "the text is not a duration such as 1.5s");
    if (seconds < -315576000000 || seconds > 315576000000) return refuse(writer, place, "the duration is longer than 10000 years");
  } else {
    return unfit(writer, place, value, "a Duration");
  }
  put_seconds(writer->output, seconds, nanoseconds);
  return true;
}

static bool put_mask(writer *writer, const place *place, const rxd_value *value) {
  if (host->kind(value) != RXD_TEXT) return unfit(writer, place, value, "a FieldMask");
  rxd_text text = host->text(writer->scope, value);
  if (text.count == 0) return true;
  put_tag(writer->output, 1, WIRE_BYTES);
  size_t start = begin_length(writer->output);
  for (size_t i = 0; i < text.count; i++) {
    unsigned char c = (unsigned char)text.bytes[i];
    if (c == ',') {
      end_length(writer->output, start);
      put_tag(writer->output, 1, WIRE_BYTES);
      start = begin_length(writer->output);
      continue;
    }
    if (c == '_') return refuse(writer, place, "the paths of a FieldMask are in camelCase");
    if (isupper(c)) output_append(writer->output, "_", 1);
    char small = (char)tolower(c);
    output_append(writer->output, &small, 1);
  }
  end_length(writer->output, start);
  return true;
}

static bool put_any_value(writer *writer, const place *place, const rxd_value *value, int depth);

/* Appends the fields of a Struct. `depth`: its nesting depth. */
static bool put_struct(writer *writer, const place *place, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_OBJECT) return unfit(writer, place, value, "a Struct, which needs an object");
  output_bytes *output = writer->output;
  size_t count = host->count(writer->scope, value);
  rxd_text few[32], twice, *names = count <= 32 ? few : need(malloc(count * sizeof *names));
  bool is_good = true;
  for (size_t i = 0; i < count && is_good; i++) {
    rxd_value element = host->entry(writer->scope, value, i, &names[i]);
    field_type named = {.name = names[i]};
    struct place inner = {.up = place, .field = &named};
    put_tag(output, 1, WIRE_BYTES);
    size_t entry = begin_length(output);
    put_text(output, 1, names[i]);
    put_tag(output, 2, WIRE_BYTES);
    size_t start = begin_length(output);
    is_good = put_any_value(writer, &inner, &element, depth + 2);
    end_length(output, start);
    end_length(output, entry);
  }
  if (is_good && repeated_name(names, count, &twice) != NULL)
    is_good = refuse(writer, place, "the object has the member '%.*s' twice", shown_count(twice), twice.bytes);
  if (names != few) free(names);
  return is_good;
}

static bool put_list_value(writer *writer, const place *place, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_LIST) return unfit(writer, place, value, "a ListValue, which needs a list");
  size_t count = host->count(writer->scope, value);
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(writer->scope, value, i);
    put_tag(writer->output, 1, WIRE_BYTES);
    size_t start = begin_length(writer->output);
    if (!put_any_value(writer, place, &element, depth + 1)) return false;
    end_length(writer->output, start);
  }
  return true;
}

/* Appends a google.protobuf.Value. `depth`: its nesting depth. */
static bool put_any_value(writer *writer, const place *place, const rxd_value *value, int depth) {
  output_bytes *output = writer->output;
  if (depth > MESSAGE_DEPTH) return refuse(writer, place, "more than %d messages are nested", MESSAGE_DEPTH);
  switch (host->kind(value)) {
    case RXD_NULL:
      put_tag(output, 1, WIRE_VARINT);
      put_varint(output, 0);
      return true;
    case RXD_BOOL:
      put_tag(output, 4, WIRE_VARINT);
      put_varint(output, host->boolean(value) != 0);
      return true;
    case RXD_INT: case RXD_UINT: case RXD_DOUBLE: {
      double number = host->number(value);
      wide whole;
      if (host->kind(value) != RXD_DOUBLE && whole_number(writer, value, &whole) && (wide)number != whole)
        return refuse(writer, place, "the whole number is not exact as a double, which numbers of a Value are");
      if (!isfinite(number)) return refuse(writer, place, "a Value cannot have NaN or an infinite number");
      uint64_t bits;
      memcpy(&bits, &number, sizeof bits);
      put_tag(output, 2, WIRE_64);
      put_fixed(output, bits, 8);
      return true;
    }
    case RXD_TEXT: put_text(output, 3, host->text(writer->scope, value)); return true;
    case RXD_BYTES: case RXD_TIMESTAMP: case RXD_DURATION: put_text(output, 3, plain_text(writer->scope, value)); return true;
    case RXD_OBJECT: case RXD_LIST: {
      bool is_object = host->kind(value) == RXD_OBJECT;
      put_tag(output, is_object ? 5 : 6, WIRE_BYTES);
      size_t start = begin_length(output);
      if (!(is_object ? put_struct(writer, place, value, depth + 1) : put_list_value(writer, place, value, depth + 1))) return false;
      end_length(output, start);
      return true;
    }
    default: return unfit(writer, place, value, "a Value");
  }
}

static bool put_any(writer *writer, const place *place, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_OBJECT) return unfit(writer, place, value, "an Any, which needs an object");
  size_t count = host->count(writer->scope, value);
  if (count == 0) return true;
  rxd_value url = host->member(writer->scope, value, RXD_TEXT_OF("@type"));
  if (host->kind(&url) != RXD_TEXT) return refuse(writer, place, "an Any needs the member '@type', a text");
  rxd_text name = host->text(writer->scope, &url);
  const char *slash = name.count == 0 ? NULL : memrchr(name.bytes, '/', name.count);
  const message_type *type = slash == NULL ? NULL : find_message(writer->format->schema, (rxd_text){slash + 1, name.count - (size_t)(slash + 1 - name.bytes)});
  rxd_value inner = host->member(writer->scope, value, RXD_TEXT_OF("value"));
  put_text(writer->output, 1, name);
  put_tag(writer->output, 2, WIRE_BYTES);
  size_t start = begin_length(writer->output);
  if (depth + 1 > MESSAGE_DEPTH) return refuse(writer, place, "more than %d messages are nested", MESSAGE_DEPTH);
  if (type != NULL && type->known == KNOWN_NONE) {
    if (!put_object(writer, place, type, value, depth + 1, true)) return false;
  } else {
    for (size_t i = 0; i < count; i++) {
      rxd_text member = {NULL, 0};
      host->entry(writer->scope, value, i, &member);
      if (text_is(member, RXD_TEXT_OF("@type")) || text_is(member, RXD_TEXT_OF("value")) || writer->format->ignores_unknown) continue;
      return refuse(writer, place, "an Any of '%.*s' has no member '%.*s'", shown_count(name), name.bytes, shown_count(member), member.bytes);
    }
    if (type != NULL) {
      if (host->kind(&inner) == RXD_ABSENT) return refuse(writer, place, "an Any of '%.*s' needs the member 'value'", shown_count(name), name.bytes);
      if (!put_message(writer, place, type, &inner, depth + 1)) return false;
    } else {
      if (host->kind(&inner) != RXD_BYTES)
        return refuse(writer, place, "the descriptors have no message for '%.*s', so 'value' must be bytes", shown_count(name), name.bytes);
      rxd_text bytes = host->text(writer->scope, &inner);
      output_append(writer->output, bytes.bytes, bytes.count);
    }
  }
  end_length(writer->output, start);
  if (writer->output->count == start) writer->output->count = start - 2; /* an empty message is not written */
  return true;
}

/* Appends the content of a message, without tag and length. */
static bool put_message(writer *writer, const place *place, const message_type *type, const rxd_value *value, int depth) {
  switch (type->known) {
    case KNOWN_TIMESTAMP: return put_time(writer, place, value);
    case KNOWN_DURATION: return put_duration(writer, place, value);
    case KNOWN_WRAPPER: return put_single(writer, place, &type->fields[0], value, depth + 1, false);
    case KNOWN_STRUCT: return put_struct(writer, place, value, depth);
    case KNOWN_LIST: return put_list_value(writer, place, value, depth);
    case KNOWN_VALUE: return put_any_value(writer, place, value, depth);
    case KNOWN_ANY: return put_any(writer, place, value, depth);
    case KNOWN_MASK: return put_mask(writer, place, value);
    default: return put_object(writer, place, type, value, depth, false);
  }
}

int encode_event(rxd_scope *scope, const format *format, const rxd_value *event, output_bytes *output) {
  writer writer = {.scope = scope, .format = format, .output = output};
  size_t start = 0;
  if (format->framing == FRAMING_DELIMITED) start = begin_length(output);
  if (format->framing == FRAMING_CONFLUENT) {
    char header[5] = {0, (char)(format->schema_id >> 24), (char)(format->schema_id >> 16), (char)(format->schema_id >> 8), (char)format->schema_id};
    output_append(output, header, sizeof header);
    const message_type *type = format->type;
    bool is_first = type->path_count == 1 && type->path[0] == 0;
    put_varint(output, is_first ? 0 : (uint64_t)type->path_count << 1);
    for (uint32_t i = 0; i < type->path_count && !is_first; i++) put_varint(output, (uint64_t)type->path[i] << 1);
  }
  bool is_good = put_message(&writer, NULL, format->type, event, 0);
  if (is_good && output->count - start > INT32_MAX) is_good = refuse(&writer, NULL, "the message has more than 2 GiB");
  if (is_good && format->framing == FRAMING_DELIMITED) end_length(output, start);
  free(writer.members);
  return is_good ? RXD_OK : RXD_FAILED;
}
