/* Encodes events as GELF messages. */
#include <math.h>
#include <zlib.h>

#include "gelf.h"

/* ---- JSON ---- */

static void append_text(output_bytes *output, const char *text) { output_append(output, text, strlen(text)); }
static void append_json(output_bytes *output, rxd_scope *scope, const rxd_value *value) {
  rxd_text json = host->json(scope, value);
  output_append(output, json.bytes, json.count);
}
static void append_quoted(output_bytes *output, rxd_scope *scope, rxd_text text) {
  rxd_value value = host->make_text(scope, text);
  append_json(output, scope, &value);
}

/* ---- Fields ---- */

/* The standard members of GELF 1.1, which are encoded specially. */
static const char *const own_fields[] = {"version", "host", "short_message", "full_message", "timestamp", "level"};
static bool is_own(rxd_text name) {
  for (size_t i = 0; i < sizeof own_fields / sizeof own_fields[0]; i++)
    if (text_is(name, text_of(own_fields[i]))) return true;
  return false;
}

/* Appends the name of an additional field: adds a leading underscore if there is none, replaces invalid characters by
 * underscores, and writes the reserved name `id` as `__id`. */
static void append_name(output_bytes *names, rxd_text name) {
  bool has_underscore = name.count > 0 && name.bytes[0] == '_';
  bool is_id = text_is(name, RXD_TEXT_OF("id")) || text_is(name, RXD_TEXT_OF("_id"));
  if (!has_underscore || is_id) append_text(names, "_");
  if (is_id && !has_underscore) append_text(names, "_");
  for (size_t i = 0; i < name.count; i++) {
    unsigned char byte = (unsigned char)name.bytes[i];
    if ((byte & 0xc0) == 0x80) continue; /* continuation byte: its character is already replaced */
    output_append(names, isalnum(byte) || memchr("_-.", byte, 3) != NULL ? name.bytes + i : "_", 1);
  }
}

/* Appends the value of an additional field, which may only be a number or a text. */
static void append_value(output_bytes *output, rxd_scope *scope, const rxd_value *value) {
  int kind = host->kind(value);
  double number = kind == RXD_DOUBLE ? host->number(value) : 0;
  if (kind == RXD_TEXT || kind == RXD_INT || kind == RXD_UINT || (kind == RXD_DOUBLE && isfinite(number))) {
    append_json(output, scope, value);
  } else if (kind == RXD_DOUBLE) {
    append_text(output, isnan(number) ? "\"NaN\"" : number < 0 ? "\"-Infinity\"" : "\"Infinity\"");
  } else {
    rxd_text json = host->json(scope, value);
    if (json.count > 0 && json.bytes[0] == '"') output_append(output, json.bytes, json.count); /* time, duration, bytes */
    else append_quoted(output, scope, json);
  }
}

static int append_additional(output_bytes *output, rxd_scope *scope, const rxd_value *event, bool uses_message) {
  size_t count = host->count(scope, event), used = 0;
  size_t *ends = need(malloc((count + 1) * sizeof *ends));
  rxd_text *names = need(malloc((count + 1) * sizeof *names));
  output_bytes all;
  begin_output(&all);
  int status = RXD_OK;
  for (size_t i = 0; i < count && status == RXD_OK; i++) {
    rxd_text name;
    rxd_value value = host->entry(scope, event, i, &name);
    int kind = host->kind(&value);
    if (kind == RXD_NULL || kind == RXD_ABSENT || is_own(name) || (uses_message && text_is(name, RXD_TEXT_OF("message")))) continue;
    if (name.count == 0) {
      status = refuse("the event has a member without a name");
      break;
    }
    size_t begin = all.count;
    append_name(&all, name);
    append_text(output, ",\"");
    output_append(output, all.bytes + begin, all.count - begin);
    append_text(output, "\":");
    append_value(output, scope, &value);
    ends[used++] = all.count;
  }
  /* Reallocation has moved the bytes, so the texts are set again. */
  for (size_t i = 0; i < used; i++) names[i] = (rxd_text){all.bytes + (i == 0 ? 0 : ends[i - 1]), ends[i] - (i == 0 ? 0 : ends[i - 1])};
  rxd_text twice;
  if (status == RXD_OK && repeated_name(names, used, &twice) != NULL)
    status = refuse("two members would be the field '%.*s'", shown_count(twice), twice.bytes);
  free_output(&all);
  free(names);
  free(ends);
  return status;
}

static int append_level(output_bytes *output, rxd_scope *scope, const rxd_value *level) {
  static const char *const words[] = {"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"};
  static const char *const others[] = {"emergency", "panic", "critical", "error", "warn", "", "informational", "trace"};
  int kind = host->kind(level);
  int64_t number = kind == RXD_INT ? host->integer(level) : -1;
  rxd_text text = kind == RXD_TEXT ? host->text(scope, level) : (rxd_text){"", 0};
  for (int i = 0; i < 8 && text.count > 0; i++)
    if ((text.count == strlen(words[i]) && strncasecmp(text.bytes, words[i], text.count) == 0)
        || (text.count == strlen(others[i]) && strncasecmp(text.bytes, others[i], text.count) == 0)) number = i;
  if (number < 0 || number > 7) return refuse("'level' must be a number from 0 to 7 or the name of a level, such as \"warning\"");
  char digits[32];
  snprintf(digits, sizeof digits, ",\"level\":%d", (int)number);
  append_text(output, digits);
  return RXD_OK;
}

static int append_time(output_bytes *output, rxd_scope *scope, const rxd_value *time) {
  int kind = host->kind(time);
  int64_t seconds;
  uint32_t nanoseconds;
  if (kind == RXD_INT || (kind == RXD_DOUBLE && isfinite(host->number(time)))) {
    append_text(output, ",\"timestamp\":");
    append_json(output, scope, time);
    return RXD_OK;
  }
  bool is_time = kind == RXD_TIMESTAMP ? time_of(scope, time, &seconds, &nanoseconds)
                                       : kind == RXD_TEXT && parse_time(host->text(scope, time), &seconds, &nanoseconds);
  if (!is_time) return refuse("'timestamp' must be a time, or a number of seconds");
  bool is_negative = seconds < 0;
  if (is_negative && nanoseconds > 0) seconds++, nanoseconds = 1000000000 - nanoseconds;
  char digits[64];
  int used = snprintf(digits, sizeof digits, ",\"timestamp\":%s%lld", is_negative ? "-" : "", (long long)(is_negative ? -seconds : seconds));
  if (nanoseconds > 0) {
    used += snprintf(digits + used, sizeof digits - (size_t)used, ".%09u", nanoseconds);
    while (digits[used - 1] == '0') used--;
  }
  output_append(output, digits, (size_t)used);
  return RXD_OK;
}

/* Reads the text of a member, which must not be empty. */
static int own_text(rxd_scope *scope, const rxd_value *event, const char *name, rxd_text *text) {
  rxd_value value = host->member(scope, event, text_of(name));
  int kind = host->kind(&value);
  *text = (rxd_text){"", 0};
  if (kind == RXD_ABSENT || kind == RXD_NULL) return RXD_OK;
  if (kind != RXD_TEXT) return refuse("'%s' is %s, and must be a text", name, value_kind(kind));
  *text = host->text(scope, &value);
  return RXD_OK;
}

static int append_object(const writing *how, rxd_scope *scope, const rxd_value *event, output_bytes *output) {
  rxd_text from, text, full;
  if (own_text(scope, event, "host", &from) != RXD_OK || own_text(scope, event, "short_message", &text) != RXD_OK
      || own_text(scope, event, "full_message", &full) != RXD_OK) return RXD_FAILED;
  bool uses_message = text.count == 0;
  if (uses_message && own_text(scope, event, "message", &text) != RXD_OK) return RXD_FAILED;
  if (text.count == 0) return refuse("the event has neither 'short_message' nor 'message'");
  append_text(output, "{\"version\":\"1.1\",\"host\":");
  append_quoted(output, scope, from.count > 0 ? from : text_of(how->host));
  append_text(output, ",\"short_message\":");
  append_quoted(output, scope, text);
  if (full.count > 0) {
    append_text(output, ",\"full_message\":");
    append_quoted(output, scope, full);
  }
  rxd_value time = host->member(scope, event, RXD_TEXT_OF("timestamp")), level = host->member(scope, event, RXD_TEXT_OF("level"));
  int kind = host->kind(&time);
  if (kind != RXD_ABSENT && kind != RXD_NULL && append_time(output, scope, &time) != RXD_OK) return RXD_FAILED;
  kind = host->kind(&level);
  if (kind != RXD_ABSENT && kind != RXD_NULL && append_level(output, scope, &level) != RXD_OK) return RXD_FAILED;
  if (append_additional(output, scope, event, uses_message) != RXD_OK) return RXD_FAILED;
  append_text(output, "}");
  return RXD_OK;
}

/* ---- Compression ---- */

static int deflate_all(rxd_text plain, bool is_gzip, output_bytes *output) {
  if (plain.count > INT32_MAX) return refuse("the message has more than %d bytes", INT32_MAX);
  z_stream stream = {.next_in = (Bytef *)(uintptr_t)plain.bytes, .avail_in = (uInt)plain.count};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, is_gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
  size_t room = deflateBound(&stream, (uLong)plain.count);
  stream.next_out = (Bytef *)output_room(output, room);
  stream.avail_out = (uInt)room;
  int result = deflate(&stream, Z_FINISH);
  output->count += room - stream.avail_out;
  deflateEnd(&stream);
  return result == Z_STREAM_END ? RXD_OK : refuse("the message cannot be compressed");
}

int encode_gelf(const writing *how, rxd_scope *scope, const rxd_value *event, output_bytes *output) {
  int kind = host->kind(event);
  rxd_value made = *event;
  if (kind == RXD_TEXT) {
    const rxd_text name = RXD_TEXT_OF("short_message");
    made = host->make_object(scope, &name, event, 1);
  } else if (kind != RXD_OBJECT) {
    return refuse("the event is %s, and must be an object or a text", value_kind(kind));
  }
  if (how->compression == COMPRESS_NONE) return append_object(how, scope, &made, output);
  output_bytes plain;
  begin_output(&plain);
  int status = append_object(how, scope, &made, &plain);
  if (status == RXD_OK) status = deflate_all((rxd_text){plain.bytes, plain.count}, how->compression == COMPRESS_GZIP, output);
  free_output(&plain);
  return status;
}
