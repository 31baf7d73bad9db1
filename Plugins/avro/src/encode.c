/* Encodes values as Avro data. */
#include <math.h>

#include "avro_format.h"

typedef struct {
  rxd_scope *scope;
  output_bytes *output;
  bool ignores_unknown, is_default;
  unsigned attempts_left; /* remaining attempts with other union branches */
  char message[512];
} writer;

__attribute__((format(printf, 3, 4)))
static bool refuse(writer *writer, const place *place, const char *format, ...) {
  char path[200] = "", message[300];
  put_place(place, path, sizeof path);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  snprintf(writer->message, sizeof writer->message, "%s%s%s", path, path[0] != 0 ? ": " : "", message);
  return false;
}

static bool unfit(writer *writer, const place *place, const rxd_value *value, const node *type) {
  return refuse(writer, place, "%s does not fit %s%s%.*s", value_kind(host->kind(value)), type_name(type->type), type->name.count > 0 ? " " : "",
                shown_count(type->name), type->name.count > 0 ? type->name.bytes : "");
}

static void put_long(output_bytes *output, int64_t number) {
  uint64_t rest = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
  char *start = output_room(output, 10), *at = start;
  for (; rest >= 0x80; rest >>= 7) *at++ = (char)(rest | 0x80);
  *at++ = (char)rest;
  output->count += (size_t)(at - start);
}

static void put_bytes(output_bytes *output, rxd_text bytes) {
  put_long(output, (int64_t)bytes.count);
  output_append(output, bytes.bytes, bytes.count);
}

static logical_type logical_of(const writer *writer, const node *type) { return writer->is_default ? LOGICAL_NONE : type->logical; }

/* ---- Numbers and times ---- */

typedef enum { FITS, NOT_A_NUMBER, TOO_LARGE, NOT_WHOLE } fitting;

static fitting whole_number(const rxd_value *value, int64_t *number) {
  switch (host->kind(value)) {
    case RXD_INT: *number = host->integer(value); return FITS;
    case RXD_UINT: return TOO_LARGE;
    case RXD_DOUBLE: {
      double real = host->number(value);
      if (real != trunc(real)) return NOT_WHOLE;
      if (!(fabs(real) < 0x1p63)) return TOO_LARGE;
      *number = (int64_t)real;
      return FITS;
    }
    default: return NOT_A_NUMBER;
  }
}

/* The time in whole units since 1970; a text is an RFC 3339 time between `before` and `after`. */
static fitting time_units(writer *writer, const rxd_value *value, int64_t per_second, const char *before, const char *after, int64_t *units) {
  int64_t seconds;
  uint32_t nanoseconds;
  if (host->kind(value) == RXD_TIMESTAMP) {
    if (!time_of(writer->scope, value, &seconds, &nanoseconds)) return NOT_A_NUMBER;
  } else if (host->kind(value) == RXD_TEXT) {
    rxd_text text = host->text(writer->scope, value);
    char whole[100];
    if (text.count > 60) return NOT_A_NUMBER;
    int count = snprintf(whole, sizeof whole, "%s%.*s%s", before, (int)text.count, text.bytes, after);
    if (!parse_time((rxd_text){whole, (size_t)count}, &seconds, &nanoseconds)) return NOT_A_NUMBER;
  } else {
    return whole_number(value, units);
  }
  if (__builtin_mul_overflow(seconds, per_second, units) || __builtin_add_overflow(*units, nanoseconds / (1000000000 / per_second), units)) return TOO_LARGE;
  return FITS;
}

static fitting number_of(writer *writer, const node *type, const rxd_value *value, int64_t *number) {
  switch (logical_of(writer, type)) {
    case LOGICAL_DATE:
      if (host->kind(value) != RXD_TEXT && host->kind(value) != RXD_TIMESTAMP) break;
      fitting status = time_units(writer, value, 1, "", host->kind(value) == RXD_TEXT ? "T00:00:00Z" : "", number);
      if (status == FITS) *number = *number >= 0 ? *number / 86400 : -((-*number + 86399) / 86400);
      return status;
    case LOGICAL_TIME_MILLIS: case LOGICAL_TIME_MICROS: {
      int64_t unit = type->logical == LOGICAL_TIME_MILLIS ? 1000000 : 1000;
      if (host->kind(value) == RXD_TEXT) return time_units(writer, value, 1000000000 / unit, "1970-01-01T", "Z", number);
      if (host->kind(value) != RXD_DURATION) break;
      *number = host->integer(value) / unit;
      return FITS;
    }
    case LOGICAL_MILLIS: return time_units(writer, value, 1000, "", "", number);
    case LOGICAL_MICROS: return time_units(writer, value, 1000000, "", "", number);
    case LOGICAL_NANOS: return time_units(writer, value, 1000000000, "", "", number);
    case LOGICAL_LOCAL_MILLIS: return time_units(writer, value, 1000, "", "Z", number);
    case LOGICAL_LOCAL_MICROS: return time_units(writer, value, 1000000, "", "Z", number);
    case LOGICAL_LOCAL_NANOS: return time_units(writer, value, 1000000000, "", "Z", number);
    default: break;
  }
  return whole_number(value, number);
}

static bool put_whole(writer *writer, const node *type, const place *place, const rxd_value *value) {
  int64_t number;
  fitting status = number_of(writer, type, value, &number);
  if (status == FITS && type->type == AVRO_INT && (number < INT32_MIN || number > INT32_MAX)) status = TOO_LARGE;
  switch (status) {
    case FITS: put_long(writer->output, number); return true;
    case TOO_LARGE: return refuse(writer, place, "the number is beyond those of %s", type_name(type->type));
    case NOT_WHOLE: return refuse(writer, place, "the number is not whole, and the type is %s", type_name(type->type));
    default:
      if (host->kind(value) == RXD_TEXT && logical_of(writer, type) != LOGICAL_NONE)
        return refuse(writer, place, logical_of(writer, type) == LOGICAL_DATE ? "the text is not a date such as 2026-11-29" : "the text is not a time");
      return unfit(writer, place, value, type);
  }
}

static bool put_real(writer *writer, const node *type, const place *place, const rxd_value *value) {
  double real;
  int kind = host->kind(value);
  if (kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE) {
    real = host->number(value);
  } else if (kind == RXD_TEXT) {
    rxd_text text = host->text(writer->scope, value);
    if (text_is(text, RXD_TEXT_OF("NaN"))) real = NAN;
    else if (text_is(text, RXD_TEXT_OF("Infinity"))) real = INFINITY;
    else if (text_is(text, RXD_TEXT_OF("-Infinity"))) real = -INFINITY;
    else return unfit(writer, place, value, type);
  } else {
    return unfit(writer, place, value, type);
  }
  if (type->type == AVRO_FLOAT) {
    float single = (float)real;
    if (isinf(single) && !isinf(real)) return refuse(writer, place, "the number is beyond those of float");
    uint32_t bits;
    memcpy(&bits, &single, 4);
    bits = htole32(bits);
    output_append(writer->output, (const char *)&bits, 4);
  } else {
    uint64_t bits;
    memcpy(&bits, &real, 8);
    bits = htole64(bits);
    output_append(writer->output, (const char *)&bits, 8);
  }
  return true;
}

/* ---- Bytes ---- */

#define MOST_DIGITS 2400

/* Writes a decimal in the fewest bytes, or in exactly `width` bytes if that is not 0. */
static bool put_decimal(writer *writer, const node *type, const place *place, const rxd_value *value) {
  int kind = host->kind(value);
  rxd_text text;
  if (kind == RXD_TEXT) text = host->text(writer->scope, value);
  else if (kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE) text = host->json(writer->scope, value);
  else return unfit(writer, place, value, type);
  char digits[MOST_DIGITS];
  size_t count = 0, at = 0;
  int64_t behind = -1, exponent = 0;
  bool is_negative = text.count > 0 && text.bytes[0] == '-', has_digits = false;
  if (is_negative) at++;
  for (; at < text.count; at++) {
    char c = text.bytes[at];
    if (c == '.' && behind < 0) {
      behind = 0;
      continue;
    }
    if (!isdigit((unsigned char)c)) break;
    has_digits = true;
    if (behind >= 0) behind++;
    if (count == 0 && c == '0') continue;
    if (count == MOST_DIGITS) return refuse(writer, place, "the decimal has more than %d digits", MOST_DIGITS);
    digits[count++] = c;
  }
  if (at < text.count && (text.bytes[at] == 'e' || text.bytes[at] == 'E') && has_digits) {
    bool is_below = ++at < text.count && text.bytes[at] == '-';
    if (at < text.count && (text.bytes[at] == '-' || text.bytes[at] == '+')) at++;
    has_digits = false;
    for (; at < text.count && isdigit((unsigned char)text.bytes[at]) && exponent < 10000; at++) exponent = exponent * 10 + (text.bytes[at] - '0'), has_digits = true;
    if (is_below) exponent = -exponent;
  }
  if (!has_digits || at != text.count) return kind == RXD_TEXT ? refuse(writer, place, "the text is not a decimal") : unfit(writer, place, value, type);
  int64_t more = (int64_t)type->scale - (behind < 0 ? 0 : behind) + exponent; /* zeros to append */
  for (; more < 0 && count > 0; more++)
    if (digits[--count] != '0') return refuse(writer, place, "the decimal has more than %u digits behind the point", type->scale);
  if (count > 0 && (more > MOST_DIGITS || count + (size_t)more > type->precision))
    return refuse(writer, place, "the decimal has more than %u digits", type->precision);
  for (; more > 0 && count > 0; more--) digits[count++] = '0';

  unsigned char bytes[MOST_DIGITS / 2] = {0}; /* most significant byte first; two digits take less than a byte */
  size_t start = sizeof bytes - 1;
  for (size_t i = 0; i < count; i++) {
    uint32_t carry = (uint32_t)(digits[i] - '0');
    for (size_t j = sizeof bytes; j-- > start || carry > 0;) {
      carry += bytes[j] * 10u;
      bytes[j] = (unsigned char)carry;
      carry >>= 8;
      if (j < start) start = j;
    }
  }
  if (is_negative) {
    uint32_t carry = 1;
    for (size_t j = sizeof bytes; j-- > 0;) {
      carry += (unsigned char)~bytes[j];
      bytes[j] = (unsigned char)carry;
      carry >>= 8;
    }
  }
  unsigned char sign = bytes[0] & 0x80 ? 0xff : 0;
  size_t first = 0;
  while (first + 1 < sizeof bytes && bytes[first] == sign && (bytes[first + 1] & 0x80) == (sign & 0x80)) first++;
  size_t needed = sizeof bytes - first;
  if (type->type == AVRO_BYTES) {
    put_bytes(writer->output, (rxd_text){(const char *)bytes + first, needed});
    return true;
  }
  if (needed > type->size) return refuse(writer, place, "the decimal needs %zu bytes, and the fixed has %zu", needed, type->size);
  memset(output_room(writer->output, type->size - needed), sign, type->size - needed);
  writer->output->count += type->size - needed;
  output_append(writer->output, (const char *)bytes + first, needed);
  return true;
}

/* Appends the bytes of a text in base64, of either alphabet, with or without `=` at the end. */
static bool put_base64(output_bytes *output, rxd_text text) {
  uint32_t bits = 0;
  int count = 0;
  if (text.count > 0 && text.count % 4 == 0 && text.bytes[text.count - 1] == '=') {
    text.count--;
    if (text.bytes[text.count - 1] == '=') text.count--;
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

/* Writes the bytes of a schema's default: each character of the text, up to U+00FF, is one byte. */
static bool put_characters(output_bytes *output, rxd_text text) {
  for (size_t i = 0; i < text.count; i++) {
    unsigned char c = (unsigned char)text.bytes[i];
    if (c >= 0x80) {
      if ((c != 0xc2 && c != 0xc3) || i + 1 == text.count) return false;
      c = (unsigned char)(c << 6 | (text.bytes[++i] & 0x3f));
    }
    output_append(output, (const char *)&c, 1);
  }
  return true;
}

static bool put_duration(writer *writer, const place *place, const rxd_value *value) {
  static const char *const names[] = {"months", "days", "milliseconds"};
  if (host->count(writer->scope, value) != 3) return refuse(writer, place, "a duration of Avro needs the members months, days and milliseconds");
  for (int i = 0; i < 3; i++) {
    rxd_value one = host->member(writer->scope, value, text_of(names[i]));
    int64_t number;
    if (host->kind(&one) == RXD_ABSENT || whole_number(&one, &number) != FITS || number < 0 || number > UINT32_MAX)
      return refuse(writer, place, "a duration of Avro needs the members months, days and milliseconds, whole numbers up to 4294967295");
    uint32_t little = htole32((uint32_t)number);
    output_append(writer->output, (const char *)&little, 4);
  }
  return true;
}

static bool put_uuid(writer *writer, const place *place, rxd_text text) {
  int count = 0;
  unsigned digit = 0;
  for (size_t i = 0; i < text.count && count <= 32; i++) {
    unsigned char c = (unsigned char)text.bytes[i];
    if (c == '-' && (i == 8 || i == 13 || i == 18 || i == 23)) continue;
    if (!isxdigit(c)) break;
    digit = digit << 4 | (unsigned)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    if (++count % 2 == 0) {
      char byte = (char)digit;
      output_append(writer->output, &byte, 1);
    }
  }
  return (count == 32 && (text.count == 32 || text.count == 36)) || refuse(writer, place, "the text is not a UUID");
}

static bool put_binary(writer *writer, const node *type, const place *place, const rxd_value *value) {
  int kind = host->kind(value);
  if (logical_of(writer, type) == LOGICAL_DECIMAL && kind != RXD_BYTES) return put_decimal(writer, type, place, value);
  if (logical_of(writer, type) == LOGICAL_DURATION && kind == RXD_OBJECT) return put_duration(writer, place, value);
  if (logical_of(writer, type) == LOGICAL_UUID && kind == RXD_TEXT) return put_uuid(writer, place, host->text(writer->scope, value));
  if (kind != RXD_BYTES && kind != RXD_TEXT) return unfit(writer, place, value, type);
  rxd_text text = host->text(writer->scope, value);
  output_bytes found;
  begin_output(&found);
  bool is_good = true;
  if (kind == RXD_TEXT) {
    is_good = writer->is_default ? put_characters(&found, text) : put_base64(&found, text);
    if (!is_good) refuse(writer, place, "the text is not base64, and the type is %s", type_name(type->type));
    text = (rxd_text){found.bytes, found.count};
  }
  if (is_good && type->type == AVRO_FIXED && text.count != type->size)
    is_good = refuse(writer, place, "there are %zu bytes, and the fixed has %zu", text.count, type->size);
  if (is_good && type->type == AVRO_FIXED) output_append(writer->output, text.bytes, text.count);
  else if (is_good) put_bytes(writer->output, text);
  free_output(&found);
  return is_good;
}

/* ---- Unions ---- */

static int64_t symbol_of(const node *type, rxd_text name) {
  for (size_t i = 0; i < type->count; i++)
    if (text_is(type->symbols[i], name)) return (int64_t)i;
  return -1;
}

/* Whether each member of an object is a field of the record, and each field without a default is present. */
static bool has_fields_of(writer *writer, const node *type, const rxd_value *object) {
  size_t count = host->count(writer->scope, object), found = 0;
  for (size_t i = 0; i < type->count; i++) {
    rxd_value member = host->member(writer->scope, object, type->fields[i].name);
    if (host->kind(&member) != RXD_ABSENT) found++;
    else if (!type->fields[i].has_default) return false;
  }
  return found == count;
}

/* How well a value fits a branch of a union: 0 not at all, 3 exactly. Only records are looked into. */
static int fit(writer *writer, const node *type, const rxd_value *value) {
  int kind = host->kind(value);
  logical_type logical = logical_of(writer, type);
  bool is_time = logical >= LOGICAL_MILLIS && logical <= LOGICAL_LOCAL_NANOS;
  int64_t number;
  switch (type->type) {
    case AVRO_NULL: return kind == RXD_NULL || kind == RXD_ABSENT ? 3 : 0;
    case AVRO_BOOLEAN: return kind == RXD_BOOL ? 3 : 0;
    case AVRO_INT: case AVRO_LONG:
      if (number_of(writer, type, value, &number) != FITS) return 0;
      if (type->type == AVRO_INT && (number < INT32_MIN || number > INT32_MAX)) return 0;
      if (logical == LOGICAL_NONE) return kind == RXD_INT ? 3 : 1;
      return kind == RXD_TIMESTAMP ? (is_time ? 3 : 1) : kind == RXD_DURATION ? 3 : kind == RXD_TEXT ? 2 : 1;
    case AVRO_FLOAT: return kind == RXD_DOUBLE && (double)(float)host->number(value) == host->number(value) ? 2 : kind == RXD_DOUBLE || kind == RXD_INT || kind == RXD_UINT ? 1 : 0;
    case AVRO_DOUBLE: return kind == RXD_DOUBLE ? 3 : kind == RXD_INT || kind == RXD_UINT ? 2 : 0;
    case AVRO_STRING: return kind == RXD_TEXT ? 3 : kind == RXD_TIMESTAMP || kind == RXD_DURATION ? 1 : 0;
    case AVRO_BYTES: case AVRO_FIXED:
      if (kind == RXD_BYTES) return type->type == AVRO_BYTES ? 2 : host->text(writer->scope, value).count == type->size ? 3 : 0;
      if (logical == LOGICAL_DURATION && kind == RXD_OBJECT) return 1;
      if (logical == LOGICAL_DECIMAL && (kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE)) return 1;
      return kind == RXD_TEXT ? 1 : 0;
    case AVRO_ENUM: return kind == RXD_TEXT && symbol_of(type, host->text(writer->scope, value)) >= 0 ? 3 : 0;
    case AVRO_ARRAY: return kind == RXD_LIST ? 3 : 0;
    case AVRO_MAP: return kind == RXD_OBJECT ? 2 : 0;
    case AVRO_RECORD: return kind != RXD_OBJECT ? 0 : has_fields_of(writer, type, value) ? 3 : 1;
    default: return 0;
  }
}

/* ---- Values ---- */

static bool put(writer *writer, const node *type, const place *place, const rxd_value *value, int depth);

static bool put_record(writer *writer, const node *type, const place *place, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_OBJECT) return unfit(writer, place, value, type);
  size_t count = host->count(writer->scope, value), next = 0, found = 0;
  rxd_text name = {NULL, 0};
  rxd_value candidate = host->make_null();
  if (count > 0) candidate = host->entry(writer->scope, value, 0, &name);
  for (size_t i = 0; i < type->count; i++) {
    const record_field *field = &type->fields[i];
    struct place here = {.up = place, .name = field->name};
    rxd_value member;
    if (next < count && text_is(name, field->name)) { /* members usually have the order of the fields */
      member = candidate;
      if (++next < count) candidate = host->entry(writer->scope, value, next, &name);
    } else {
      member = host->member(writer->scope, value, field->name);
    }
    if (host->kind(&member) != RXD_ABSENT) {
      found++;
      if (!put(writer, field->type, &here, &member, depth + 1)) return false;
    } else if (field->has_default) {
      output_append(writer->output, field->otherwise.bytes, field->otherwise.count);
    } else {
      bool can_be_null = field->type->type == AVRO_NULL;
      for (size_t j = 0; field->type->type == AVRO_UNION && j < field->type->count; j++) can_be_null = can_be_null || field->type->branches[j]->type == AVRO_NULL;
      if (!can_be_null || writer->is_default) return refuse(writer, &here, "the event does not have the field, and it has no default");
      if (!put(writer, field->type, &here, &member, depth + 1)) return false;
    }
  }
  if (found == count || writer->ignores_unknown) return true;
  rxd_text *names = need(malloc((count + 1) * sizeof *names)), twice = {"", 0};
  bool is_known = true;
  for (size_t i = 0; i < count && is_known; i++) {
    names[i] = (rxd_text){"", 0};
    host->entry(writer->scope, value, i, &names[i]);
    is_known = false;
    for (size_t j = 0; j < type->count && !is_known; j++) is_known = text_is(names[i], type->fields[j].name);
    if (!is_known) refuse(writer, place, "the record %.*s has no field '%.*s'", shown_count(type->name), type->name.bytes, shown_count(names[i]), names[i].bytes);
  }
  if (is_known && repeated_name(names, count, &twice) != NULL) refuse(writer, place, "the object has the member '%.*s' twice", shown_count(twice), twice.bytes);
  free(names);
  return false;
}

static bool put_array(writer *writer, const node *type, const place *place, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_LIST) return unfit(writer, place, value, type);
  size_t count = host->count(writer->scope, value);
  if (count > 0) put_long(writer->output, (int64_t)count);
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(writer->scope, value, i);
    struct place here = {.up = place, .index = i, .has_index = true};
    if (!put(writer, type->items, &here, &element, depth + 1)) return false;
  }
  put_long(writer->output, 0);
  return true;
}

static bool put_map(writer *writer, const node *type, const place *place, const rxd_value *value, int depth) {
  if (host->kind(value) != RXD_OBJECT) return unfit(writer, place, value, type);
  size_t count = host->count(writer->scope, value);
  rxd_text few[32], twice, *names = count <= 32 ? few : need(malloc(count * sizeof *names));
  bool is_good = true;
  if (count > 0) put_long(writer->output, (int64_t)count);
  for (size_t i = 0; i < count && is_good; i++) {
    names[i] = (rxd_text){"", 0};
    rxd_value element = host->entry(writer->scope, value, i, &names[i]);
    struct place here = {.up = place, .name = names[i]};
    put_bytes(writer->output, names[i]);
    is_good = put(writer, type->items, &here, &element, depth + 1);
  }
  if (is_good && repeated_name(names, count, &twice) != NULL)
    is_good = refuse(writer, place, "the object has the member '%.*s' twice", shown_count(twice), twice.bytes);
  if (names != few) free(names);
  put_long(writer->output, 0);
  return is_good;
}

/* Writes the union branch that fits the value best; tries the next one if a nested value does not fit. */
static bool put_union(writer *writer, const node *type, const place *place, const rxd_value *value, int depth) {
  size_t before = writer->output->count;
  bool is_first = true;
  char message[sizeof writer->message];
  for (int wanted = 3; wanted > 0; wanted--) {
    for (size_t i = 0; i < type->count; i++) {
      if (fit(writer, type->branches[i], value) != wanted) continue;
      if (!is_first && (writer->attempts_left == 0 || writer->attempts_left-- == 0)) continue;
      put_long(writer->output, (int64_t)i);
      if (put(writer, type->branches[i], place, value, depth + 1)) return true;
      writer->output->count = before;
      if (is_first) memcpy(message, writer->message, sizeof message);
      is_first = false;
    }
  }
  if (is_first) return refuse(writer, place, "%s fits no branch of the union", host->kind(value) == RXD_ABSENT ? "nothing" : value_kind(host->kind(value)));
  memcpy(writer->message, message, sizeof message);
  return false;
}

static bool put(writer *writer, const node *type, const place *place, const rxd_value *value, int depth) {
  int kind = host->kind(value);
  if (depth > DEPTH_LIMIT) return refuse(writer, place, "the event is nested more deeply than %d levels", DEPTH_LIMIT);
  switch (type->type) {
    case AVRO_NULL: return kind == RXD_NULL || kind == RXD_ABSENT || unfit(writer, place, value, type);
    case AVRO_BOOLEAN: {
      if (kind != RXD_BOOL) return unfit(writer, place, value, type);
      char byte = host->boolean(value) ? 1 : 0;
      output_append(writer->output, &byte, 1);
      return true;
    }
    case AVRO_INT: case AVRO_LONG: return put_whole(writer, type, place, value);
    case AVRO_FLOAT: case AVRO_DOUBLE: return put_real(writer, type, place, value);
    case AVRO_STRING:
      if (kind == RXD_TEXT) put_bytes(writer->output, host->text(writer->scope, value));
      else if (kind == RXD_TIMESTAMP || kind == RXD_DURATION) put_bytes(writer->output, plain_text(writer->scope, value));
      else return unfit(writer, place, value, type);
      return true;
    case AVRO_BYTES: case AVRO_FIXED: return put_binary(writer, type, place, value);
    case AVRO_ENUM: {
      if (kind != RXD_TEXT) return unfit(writer, place, value, type);
      rxd_text name = host->text(writer->scope, value);
      int64_t symbol = symbol_of(type, name);
      if (symbol < 0) return refuse(writer, place, "the enum %.*s has no symbol '%.*s'", shown_count(type->name), type->name.bytes, shown_count(name), name.bytes);
      put_long(writer->output, symbol);
      return true;
    }
    case AVRO_ARRAY: return put_array(writer, type, place, value, depth);
    case AVRO_MAP: return put_map(writer, type, place, value, depth);
    case AVRO_UNION: return put_union(writer, type, place, value, depth);
    default: return put_record(writer, type, place, value, depth);
  }
}

bool write_value(rxd_scope *scope, const node *node, const rxd_value *value, bool ignores_unknown, bool is_default, output_bytes *output) {
  writer writer = {.scope = scope, .output = output, .ignores_unknown = ignores_unknown, .is_default = is_default, .attempts_left = 10000};
  return put(&writer, node, NULL, value, 0) || (host->fail(scope, text_of(writer.message), text_of("")), false);
}
