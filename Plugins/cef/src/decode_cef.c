/* The Common Event Format: CEF:0|vendor|product|version|class|name|severity|key=value key=value ... */
#include "cef.h"

enum { HEADER_FIELDS = 6 };
static const char *const header_names[HEADER_FIELDS] = {"deviceVendor", "deviceProduct", "deviceVersion", "deviceEventClassId", "name", "severity"};

typedef struct line {
  rxd_scope *scope;
  const reading *how;
  rxd_text all;
  texts texts;
} line;

static size_t offset_of(const line *line, const char *at) { return (size_t)(at - line->all.bytes); }

/* Replaces the escapes of a text: those of `escaped`, and with `breaks` \n and \r. Other backslashes stay. */
static int unescape(line *line, rxd_text text, const char *escaped, bool breaks, rxd_text *result) {
  *result = text;
  if (text.count == 0 || memchr(text.bytes, '\\', text.count) == NULL) return RXD_OK;
  if (line->texts.block == NULL) line->texts.block = need(malloc(line->all.count));
  char *to = line->texts.block + line->texts.used, *begin = to;
  for (size_t i = 0; i < text.count; i++) {
    char byte = text.bytes[i], next = i + 1 < text.count ? text.bytes[i + 1] : 0;
    if (byte != '\\') *to++ = byte;
    else if (next != 0 && strchr(escaped, next) != NULL) *to++ = next, i++;
    else if (breaks && (next == 'n' || next == 'r')) *to++ = next == 'n' ? '\n' : '\r', i++;
    else if (line->how->is_strict) return fail_at(line->scope, "", "byte %zu: a backslash is followed by neither a character that it escapes nor another one", offset_of(line, text.bytes + i));
    else *to++ = byte;
  }
  *result = (rxd_text){begin, (size_t)(to - begin)};
  line->texts.used += result->count;
  return RXD_OK;
}

/* The end of a header field: a bar that is not escaped. NULL: there is none. */
static const char *end_of_field(const char *at, const char *end) {
  for (; at < end; at++) {
    if (*at == '|') return at;
    if (*at == '\\' && at + 1 < end) at++;
  }
  return NULL;
}

/* A severity of digits becomes a whole number; any other, such as High, a text. */
static rxd_value severity_of(rxd_scope *scope, rxd_text text) {
  int number = 0;
  bool is_number = text.count > 0 && text.count < 4;
  for (size_t i = 0; i < text.count && is_number; i++) {
    is_number = isdigit((unsigned char)text.bytes[i]);
    number = number * 10 + (text.bytes[i] - '0');
  }
  return is_number ? host->make_int(number) : host->make_text(scope, text);
}

/* ---- The extension ---- */

static bool is_key(rxd_text text) {
  for (size_t i = 0; i < text.count; i++) {
    unsigned char byte = (unsigned char)text.bytes[i];
    if (!isalnum(byte) && (byte == 0 || strchr("_.-[]:", byte) == NULL) && byte < 0x80) return false;
  }
  return text.count > 0 && is_utf8(text.bytes, text.count);
}

/* Finds the next key at or after `at`: the text between a space, or `begin`, and an equals sign that is not escaped.
 * False: there is none. */
static bool next_key(const char *begin, const char *at, const char *end, rxd_text *key) {
  const char *word = at;
  bool is_first = at == begin;
  for (; at < end; at++) {
    if (*at == '\\' && at + 1 < end) at++;
    else if (*at == ' ' || *at == '\t') word = at + 1, is_first = true;
    else if (*at == '=' && is_first) {
      *key = (rxd_text){word, (size_t)(at - word)};
      if (is_key(*key)) return true;
      is_first = false;
    } else if (*at == '=') {
      is_first = false;
    }
  }
  return false;
}

/* Renames members by their labels: cs1Label=Policy cs1=Default becomes Policy: Default. Both stay unchanged if another
 * member has that name. */
static void rename_labelled(line *line, value_stack *stack, size_t start) {
  size_t count = stack->count - start, kept = 0;
  rxd_text *names = stack->names + start;
  rxd_value *values = stack->values + start;
  enum { SUFFIX = 5, MOST = 256 };
  if (count > MOST) return; /* no device writes so many members */
  bool is_used[MOST] = {false};
  for (size_t i = 0; i < count; i++) {
    if (names[i].count <= SUFFIX || memcmp(names[i].bytes + names[i].count - SUFFIX, "Label", SUFFIX) != 0) continue;
    rxd_text of = {names[i].bytes, names[i].count - SUFFIX}, label = host->text(line->scope, &values[i]);
    size_t found = count;
    bool is_taken = label.count == 0;
    for (size_t j = 0; j < count && !is_taken; j++) {
      if (text_is(names[j], of) && !is_used[j]) found = j;
      else is_taken = text_is(names[j], label);
    }
    if (found == count || is_taken) continue;
    names[found] = label;
    is_used[i] = true;
  }
  for (size_t i = 0; i < count; i++) {
    if (is_used[i]) continue;
    names[kept] = names[i];
    values[kept++] = values[i];
  }
  stack->count = start + kept;
}

static int push_extension(line *line, const char *at, const char *end, value_stack *stack) {
  const char *begin = at;
  rxd_text key, following;
  while (begin < end && (*begin == ' ' || *begin == '\t')) begin++;
  at = begin;
  if (at == end) return RXD_OK;
  if (!next_key(begin, at, end, &key) || key.bytes != begin)
    return fail_at(line->scope, "", "byte %zu: the extension does not begin with a key and '='", offset_of(line, begin));
  for (bool goes_on = true; goes_on; key = following) {
    const char *value = key.bytes + key.count + 1;
    goes_on = next_key(begin, value, end, &following);
    rxd_text text;
    if (unescape(line, trimmed((rxd_text){value, (size_t)((goes_on ? following.bytes : end) - value)}), "\\=|", true, &text) != RXD_OK) return RXD_FAILED;
    push_member(stack, key, host->make_text(line->scope, text));
  }
  return RXD_OK;
}

/* ---- The line ---- */

static int push_line(line *line, value_stack *stack) {
  rxd_scope *scope = line->scope;
  ptrdiff_t mark = find_mark(line->all, "CEF:");
  if (mark < 0) return fail_at(scope, "", "the line has no 'CEF:'");
  const char *at = line->all.bytes + mark + 4, *end = line->all.bytes + line->all.count;
  rxd_text head = trimmed((rxd_text){line->all.bytes, (size_t)mark});
  if (head.count > 0) push_member(stack, RXD_TEXT_OF("head"), host->make_text(scope, head));
  const char *bar = end_of_field(at, end);
  if (bar == NULL) return fail_at(scope, "", "byte %zu: the header ends in its version", line->all.count);
  rxd_text version = trimmed((rxd_text){at, (size_t)(bar - at)});
  if (version.count != 1 || (version.bytes[0] != '0' && version.bytes[0] != '1'))
    return fail_at(scope, "", "byte %zu: the version is '%.*s', and must be 0 or 1", offset_of(line, at), shown_count(version), version.bytes);
  push_member(stack, RXD_TEXT_OF("version"), host->make_int(version.bytes[0] - '0'));
  for (int i = 0; i < HEADER_FIELDS; i++) {
    at = bar + 1;
    bar = end_of_field(at, end);
    bool is_last = i == HEADER_FIELDS - 1;
    if (bar == NULL && !is_last) return fail_at(scope, "", "byte %zu: the header ends before its field '%s'", line->all.count, header_names[i + 1]);
    if (bar == NULL) bar = end; /* devices omit the last bar if there is no extension */
    rxd_text text;
    if (unescape(line, trimmed((rxd_text){at, (size_t)(bar - at)}), "\\|", false, &text) != RXD_OK) return RXD_FAILED;
    push_member(stack, text_of(header_names[i]), is_last ? severity_of(scope, text) : host->make_text(scope, text));
  }
  size_t start = stack->count;
  if (bar < end && push_extension(line, bar + 1, end, stack) != RXD_OK) return RXD_FAILED;
  if (line->how->renames) rename_labelled(line, stack, start);
  rxd_value extension = object_of(scope, stack, start);
  push_member(stack, RXD_TEXT_OF("extension"), extension);
  return RXD_OK;
}

int decode_cef(const reading *how, rxd_scope *scope, rxd_text text, rxd_value *event) {
  line line = {.scope = scope, .how = how, .all = text};
  value_stack stack = {0};
  int status = push_line(&line, &stack);
  if (status == RXD_OK) *event = pop_object(scope, &stack, 0);
  free_values(&stack);
  free(line.texts.block);
  return status;
}
