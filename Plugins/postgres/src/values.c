// Converts between server values in text format and values of rxd.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres.h"

// Type OIDs from pg_type.dat, which never change.
enum {
  type_bool = 16, type_bytea = 17, type_int8 = 20, type_int2 = 21, type_int4 = 23, type_oid = 26, type_json = 114,
  type_float4 = 700, type_float8 = 701, type_numeric = 1700, type_timestamptz = 1184, type_jsonb = 3802,
  type_text = 25,
};

/// The element type; 0 if `type` is not a known array.
static Oid element_type(Oid type) {
  static const Oid arrays[][2] = {
      {1000, type_bool}, {1001, type_bytea}, {1005, type_int2}, {1007, type_int4}, {1016, type_int8}, {199, type_json},
      {1009, type_text}, {1015, 1043},       {1014, 1042},      {1021, type_float4}, {1022, type_float8},
      {1231, type_numeric}, {1185, type_timestamptz}, {1115, 1114}, {1182, 1082}, {2951, 2950}, {3807, type_jsonb},
      {1187, 1186}, {1041, 869}, {651, 650}, {1028, type_oid}, {1003, 19}};
  for (size_t index = 0; index < sizeof arrays / sizeof arrays[0]; index++) {
    if (arrays[index][0] == type) return arrays[index][1];
  }
  return 0;
}

/// Parses "2026-01-02 03:04:05.678901+00". False: another format, such as "infinity" or a year before 1.
static bool parse_timestamp(const char *text, int64_t *nanoseconds) {
  int year, month, day, hour, minute, second, used = 0;
  if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second, &used) != 6) return false;
  int64_t fraction = 0;
  if (text[used] == '.') {
    int64_t scale = 100000000;
    for (used++; text[used] >= '0' && text[used] <= '9'; used++, scale /= 10) fraction += (text[used] - '0') * scale;
  }
  if (strcmp(text + used, "+00") != 0) return false;
  // Days since 1970. Years start in March here, so that the leap day is the last day.
  int64_t y = month > 2 ? year : year - 1, m = month > 2 ? month - 3 : month + 9;
  int64_t days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
  int64_t seconds = days * 86400 + hour * 3600 + minute * 60 + second;
  return !__builtin_mul_overflow(seconds, (int64_t)1000000000, nanoseconds) &&
         !__builtin_add_overflow(*nanoseconds, fraction, nanoseconds);
}

/// Parses `{1,NULL,"a b",{2}}`; `*at` moves from after the opening brace to after the closing one.
static rxd_value parse_array(rxd_scope *scope, Oid type, const char **at) {
  rxd_value *values = NULL;
  size_t count = 0, room = 0;
  buffer text = {0};
  while (**at != 0 && **at != '}') {
    if (count == room) {
      room = room * 2 + 8;
      values = realloc(values, room * sizeof *values);
      if (values == NULL) abort();
    }
    if (**at == '{') {
      ++*at;
      values[count++] = parse_array(scope, type, at);
    } else {
      bool is_quoted = **at == '"';
      text.count = 0;
      append_text(&text, "");
      if (is_quoted) ++*at;
      while (**at != 0 && (is_quoted ? **at != '"' : **at != ',' && **at != '}')) {
        if (**at == '\\' && (*at)[1] != 0) ++*at;
        append(&text, (*at)++, 1);
      }
      if (is_quoted && **at == '"') ++*at;
      bool is_null = !is_quoted && strcmp(text.bytes, "NULL") == 0;
      values[count++] = is_null ? host->make_null() : value_of_text(scope, type, text.bytes, text.count);
    }
    if (**at == ',') ++*at;
  }
  if (**at == '}') ++*at;
  rxd_value list = host->make_list(scope, values, count);
  free(values);
  free(text.bytes);
  return list;
}

rxd_value value_of_text(rxd_scope *scope, Oid type, const char *text, size_t count) {
  rxd_text whole = {text, count};
  rxd_value value;
  char *end;
  switch (type) {
    case type_bool: return host->make_bool(text[0] == 't');
    case type_int2: case type_int4: case type_int8: case type_oid: return host->make_int(strtoll(text, NULL, 10));
    case type_float4: case type_float8: {
      // JSON has no NaN and no infinity.
      double number = strtod(text, &end);
      if (number - number != 0) break;
      return host->make_double(number);
    }
    case type_numeric: case type_json: case type_jsonb:
      // A number keeps its digits; NaN becomes a text.
      if (host->parse_json(scope, whole, &value) == RXD_OK) return value;
      break;
    case type_bytea: {
      size_t length = 0;
      unsigned char *bytes = PQunescapeBytea((const unsigned char *)text, &length);
      if (bytes == NULL) break;
      value = host->make_bytes(scope, (rxd_text){(const char *)bytes, length});
      PQfreemem(bytes);
      return value;
    }
    case type_timestamptz: {
      int64_t nanoseconds;
      if (!parse_timestamp(text, &nanoseconds)) break;
      return host->make_timestamp(nanoseconds);
    }
    default: {
      Oid element = element_type(type);
      if (element == 0 || text[0] != '{') break;
      const char *at = text + 1;
      return parse_array(scope, element, &at);
    }
  }
  return host->make_text(scope, whole);
}

// ---- From rxd to the server ----

static void append_timestamp(buffer *to, int64_t nanoseconds) {
  int64_t seconds = nanoseconds / 1000000000, rest = nanoseconds % 1000000000;
  if (rest < 0) seconds--, rest += 1000000000;
  int64_t days = seconds / 86400, time = seconds % 86400;
  if (time < 0) days--, time += 86400;
  // The civil date, with years starting in March again; years from 1678 to 2262.
  int64_t z = days + 719468, era = z / 146097, doe = z - era * 146097;
  int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  int64_t m = (5 * doy + 2) / 153, day = doy - (153 * m + 2) / 5 + 1, month = m < 10 ? m + 3 : m - 9;
  int64_t year = yoe + era * 400 + (month <= 2);
  append_format(to, "%04d-%02d-%02dT%02d:%02d:%02d.%09dZ", (int)year, (int)month, (int)day, (int)(time / 3600),
                (int)(time / 60 % 60), (int)(time % 60), (int)rest);
}

static bool append_array(rxd_scope *scope, Oid element, const rxd_value *list, buffer *to) {
  append_text(to, "{");
  size_t count = host->count(scope, list);
  buffer text = {0};
  bool is_good = true;
  for (size_t index = 0; is_good && index < count; index++) {
    if (index > 0) append_text(to, ",");
    rxd_value value = host->element(scope, list, index);
    if (host->kind(&value) == RXD_LIST && element != type_json && element != type_jsonb) {
      is_good = append_array(scope, element, &value, to);
      continue;
    }
    bool is_null;
    text.count = 0;
    is_good = text_of_value(scope, element, &value, &text, &is_null);
    if (is_null) {
      append_text(to, "NULL");
      continue;
    }
    append_text(to, "\"");
    for (size_t at = 0; at < text.count; at++) {
      if (text.bytes[at] == '"' || text.bytes[at] == '\\') append_text(to, "\\");
      append(to, text.bytes + at, 1);
    }
    append_text(to, "\"");
  }
  free(text.bytes);
  append_text(to, "}");
  return is_good;
}

bool text_of_value(rxd_scope *scope, Oid type, const rxd_value *value, buffer *to, bool *is_null) {
  int kind = host->kind(value);
  *is_null = kind == RXD_ABSENT || kind == RXD_NULL;
  append_text(to, "");
  if (*is_null) return true;
  rxd_text text;
  if (type == type_json || type == type_jsonb) {
    text = host->json(scope, value);
    append(to, text.bytes, text.count);
    return true;
  }
  switch (kind) {
    case RXD_BOOL: append_text(to, host->boolean(value) ? "true" : "false"); return true;
    case RXD_INT: append_format(to, "%lld", (long long)host->integer(value)); return true;
    case RXD_TIMESTAMP: append_timestamp(to, host->integer(value)); return true;
    case RXD_DURATION: {
      int64_t nanoseconds = host->integer(value);
      if (type == type_int8 || type == type_int4 || type == type_numeric || type == type_float8) {
        append_format(to, "%lld", (long long)nanoseconds);
        return true;
      }
      uint64_t size = nanoseconds < 0 ? 0 - (uint64_t)nanoseconds : (uint64_t)nanoseconds;
      append_format(to, "PT%s%llu.%09lluS", nanoseconds < 0 ? "-" : "", (unsigned long long)(size / 1000000000),
                    (unsigned long long)(size % 1000000000));
      return true;
    }
    case RXD_TEXT: case RXD_BYTES:
      text = host->text(scope, value);
      if (kind == RXD_TEXT && type != type_bytea) {
        if (text.count > 0 && memchr(text.bytes, 0, text.count) != NULL) return false;
        append(to, text.bytes, text.count);
        return true;
      }
      append_text(to, "\\x");
      for (size_t index = 0; index < text.count; index++) append_format(to, "%02x", (unsigned char)text.bytes[index]);
      return true;
    case RXD_LIST:
      if (element_type(type) != 0) return append_array(scope, element_type(type), value, to);
      break;
    default: break;
  }
  // Objects, and numbers with their original digits.
  text = host->json(scope, value);
  append(to, text.bytes, text.count);
  return true;
}
