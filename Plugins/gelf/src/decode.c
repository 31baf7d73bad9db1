/* Decodes GELF messages. */
#include <math.h>
#include <zlib.h>

#include "gelf.h"

/* ---- Compression ---- */

static bool is_gzip(rxd_text input) {
  return input.count >= 2 && (unsigned char)input.bytes[0] == 0x1f && (unsigned char)input.bytes[1] == 0x8b;
}

/* Recognizes a zlib header: method 8, a window of at most 32 KiB, and a checksum. No JSON document begins with these
 * bytes. */
static bool is_zlib(rxd_text input) {
  if (input.count < 2) return false;
  unsigned first = (unsigned char)input.bytes[0], second = (unsigned char)input.bytes[1];
  return (first & 0x0f) == 8 && first >> 4 <= 7 && (first << 8 | second) % 31 == 0;
}

/* Decompresses all of the input. Memory grows with the actual output, up to `limit`. */
static int inflate_all(rxd_text input, size_t limit, output_bytes *output) {
  if (input.count > UINT32_MAX) return refuse("the compressed message has more than %u bytes", UINT32_MAX);
  z_stream stream = {.next_in = (Bytef *)(uintptr_t)input.bytes, .avail_in = (uInt)input.count};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) abort(); /* out of memory; see `need` */
  int result = Z_OK;
  while (result == Z_OK && output->count <= limit) {
    size_t room = output->capacity - output->count;
    if (room < 1024) room = output->capacity < 1 << 16 ? 1 << 13 : 1 << 16;
    stream.next_out = (Bytef *)output_room(output, room);
    stream.avail_out = (uInt)room;
    result = inflate(&stream, Z_NO_FLUSH);
    output->count += room - stream.avail_out;
    /* The input is exhausted although the output has room: it is truncated. */
    if (result == Z_BUF_ERROR || (result == Z_OK && stream.avail_in == 0 && stream.avail_out > 0)) break;
  }
  size_t at = input.count - stream.avail_in;
  char reason[160];
  snprintf(reason, sizeof reason, "%s", stream.msg == NULL ? "the data is damaged" : stream.msg);
  inflateEnd(&stream);
  if (output->count > limit) return refuse("the message has more than %zu bytes uncompressed ('limit')", limit);
  if (result == Z_OK || result == Z_BUF_ERROR) return refuse("the compressed message is not complete: it ends at byte %zu", input.count);
  if (result != Z_STREAM_END) return refuse("the compressed message is damaged at byte %zu: %s", at, reason);
  if (at < input.count) return refuse("%zu bytes follow the compressed message, from byte %zu on", input.count - at, at);
  return RXD_OK;
}

/* ---- The time ---- */

/* Parses decimal digits with a fraction, such as 1385053862.3072, exactly; digits after the ninth are dropped. False:
 * the text has another form. */
static bool parse_seconds(rxd_text text, int64_t *seconds, uint32_t *nanoseconds) {
  const char *at = text.bytes, *end = at + text.count;
  bool is_negative = at < end && *at == '-';
  if (is_negative) at++;
  if (at == end || !isdigit((unsigned char)*at)) return false;
  int64_t whole = 0;
  for (; at < end && isdigit((unsigned char)*at); at++) {
    if (whole > INT64_MAX / 20) return false;
    whole = whole * 10 + (*at - '0');
  }
  *nanoseconds = 0;
  if (at < end && *at == '.') {
    if (++at == end) return false;
    for (uint32_t unit = 100000000; at < end && isdigit((unsigned char)*at); at++, unit /= 10) *nanoseconds += (uint32_t)(*at - '0') * unit;
  }
  if (at != end) return false;
  *seconds = is_negative ? -whole : whole;
  if (is_negative && *nanoseconds > 0) {
    --*seconds;
    *nanoseconds = 1000000000 - *nanoseconds;
  }
  return true;
}

/* Converts seconds since 1970 to a time. */
static bool time_of_seconds(rxd_scope *scope, const rxd_value *value, rxd_value *time) {
  int64_t seconds;
  uint32_t nanoseconds;
  bool is_text = host->kind(value) == RXD_TEXT;
  if (!parse_seconds(is_text ? host->text(scope, value) : host->json(scope, value), &seconds, &nanoseconds)) {
    double number = host->number(value), whole = floor(number);
    if (is_text || !(fabs(number) < 1e11)) return false;
    seconds = (int64_t)whole;
    nanoseconds = (uint32_t)((number - whole) * 1e9);
    if (nanoseconds > 999999999) nanoseconds = 999999999;
  }
  return make_time(seconds, nanoseconds, time);
}

/* ---- The rules ---- */

static bool is_number(int kind) { return kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE; }

/* Whether the name of an additional field is valid: '_' followed by letters, digits, '_', '-' or '.'. */
static bool is_additional(rxd_text name) {
  for (size_t i = 1; i < name.count; i++)
    if (!isalnum((unsigned char)name.bytes[i]) && memchr("_-.", name.bytes[i], 3) == NULL) return false;
  return name.count > 1 && name.bytes[0] == '_';
}

static int check_text(rxd_scope *scope, const rxd_value *event, const char *name, bool is_required) {
  rxd_value value = host->member(scope, event, text_of(name));
  int kind = host->kind(&value);
  if (kind == RXD_ABSENT && !is_required) return RXD_OK;
  if (kind == RXD_ABSENT) return refuse("the message has no '%s'", name);
  if (kind != RXD_TEXT) return refuse("'%s' is %s, and must be a text", name, value_kind(kind));
  if (is_required && host->text(scope, &value).count == 0) return refuse("'%s' is empty", name);
  return RXD_OK;
}

/* Checks each member against GELF 1.1. */
static int check_strictly(rxd_scope *scope, const rxd_value *event) {
  static const char *const own[] = {"version", "host", "short_message", "full_message", "timestamp", "level", "facility", "line", "file"};
  rxd_value version = host->member(scope, event, RXD_TEXT_OF("version"));
  if (host->kind(&version) != RXD_TEXT || !text_is(host->text(scope, &version), RXD_TEXT_OF("1.1")))
    return refuse("'version' is not \"1.1\"");
  if (check_text(scope, event, "host", true) != RXD_OK || check_text(scope, event, "full_message", false) != RXD_OK) return RXD_FAILED;
  size_t count = host->count(scope, event);
  for (size_t i = 0; i < count; i++) {
    rxd_text name;
    rxd_value value = host->entry(scope, event, i, &name);
    bool is_own = false;
    for (size_t j = 0; j < sizeof own / sizeof own[0] && !is_own; j++) is_own = text_is(name, text_of(own[j]));
    if (is_own) continue;
    int shown = shown_count(name), kind = host->kind(&value);
    if (!is_additional(name))
      return refuse("'%.*s' is not a valid field name: write '_' followed by letters, digits, '_', '-' or '.'", shown, name.bytes);
    if (text_is(name, RXD_TEXT_OF("_id"))) return refuse("'_id' must not be a field");
    if (kind != RXD_TEXT && !is_number(kind))
      return refuse("'%.*s' is %s, and must be a text or a number", shown, name.bytes, value_kind(kind));
  }
  return RXD_OK;
}

/* Makes the event of a document. */
static int event_of(const reading *how, rxd_scope *scope, rxd_text document, size_t offset, rxd_value *event) {
  if (!is_utf8(document.bytes, document.count)) return refuse("the message at byte %zu is not UTF-8", offset);
  if (host->parse_json(scope, document, event) != RXD_OK) return refuse("the message at byte %zu is not a JSON document", offset);
  int kind = host->kind(event);
  if (kind != RXD_OBJECT) return refuse("the message at byte %zu is %s, and must be an object", offset, value_kind(kind));
  if (check_text(scope, event, "short_message", true) != RXD_OK || check_text(scope, event, "host", false) != RXD_OK) return RXD_FAILED;
  if (how->is_strict && check_strictly(scope, event) != RXD_OK) return RXD_FAILED;
  rxd_value level = host->member(scope, event, RXD_TEXT_OF("level"));
  kind = host->kind(&level);
  if (kind != RXD_ABSENT && kind != RXD_INT && (how->is_strict || kind != RXD_NULL))
    return refuse("'level' is %s, and must be a whole number", value_kind(kind));
  if (how->is_strict && kind == RXD_INT && (host->integer(&level) < 0 || host->integer(&level) > 7))
    return refuse("'level' is %lld, and must be from 0 to 7", (long long)host->integer(&level));
  rxd_value given = host->member(scope, event, RXD_TEXT_OF("timestamp")), time;
  kind = host->kind(&given);
  if (kind == RXD_ABSENT || (kind == RXD_NULL && !how->is_strict)) return RXD_OK;
  if (!is_number(kind) && (how->is_strict || kind != RXD_TEXT))
    return refuse("'timestamp' is %s, and must be a number of seconds", value_kind(kind));
  if (!time_of_seconds(scope, &given, &time))
    return refuse("'timestamp' is not a number of seconds of a time between 1677-09-21 and 2262-04-11");
  *event = host->with_member(scope, event, RXD_TEXT_OF("timestamp"), &time);
  return RXD_OK;
}

static int decode_documents(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events) {
  if (input.count > how->limit) return refuse("the message has more than %zu bytes ('limit')", how->limit);
  for (size_t offset = 0; offset < input.count;) {
    const char *begin = input.bytes + offset, *end = memchr(begin, 0, input.count - offset);
    size_t count = end == NULL ? input.count - offset : (size_t)(end - begin);
    if (count > 0) {
      rxd_value event;
      if (event_of(how, scope, (rxd_text){begin, count}, offset, &event) != RXD_OK) return RXD_FAILED;
      push_value(events, event);
    }
    offset += count + 1;
  }
  return RXD_OK;
}

int decode_gelf(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events) {
  if (!is_gzip(input) && !is_zlib(input)) return decode_documents(how, scope, input, events);
  output_bytes plain;
  begin_output(&plain);
  int status = inflate_all(input, how->limit, &plain);
  if (status == RXD_OK) status = decode_documents(how, scope, (rxd_text){plain.bytes, plain.count}, events);
  free_output(&plain);
  return status;
}
