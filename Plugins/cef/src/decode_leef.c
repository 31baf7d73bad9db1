/* The Log Event Extended Format: LEEF:1.0|vendor|product|version|event|key=value<tab>key=value ...; version 2.0 has
 * another field with the delimiter. */
#include "cef.h"

enum { HEADER_FIELDS = 4 };
static const char *const header_names[HEADER_FIELDS] = {"vendor", "product", "productVersion", "eventId"};

/* Parses the delimiter of version 2.0: one character, or hexadecimal digits after x or 0x; an empty field means a tab.
 * 0: the field is not a delimiter. */
static int delimiter_of(rxd_text field) {
  field = field.count == 1 ? field : trimmed(field);
  if (field.count == 0) return '\t';
  if (field.count == 1) return (unsigned char)field.bytes[0] < 0x80 ? field.bytes[0] : 0;
  size_t at = field.bytes[0] == '0' ? 1 : 0, code = 0;
  if (field.bytes[at] != 'x' && field.bytes[at] != 'X') return 0;
  if (++at == field.count || field.count - at > 4) return 0;
  for (; at < field.count; at++) {
    unsigned char byte = (unsigned char)field.bytes[at];
    if (!isxdigit(byte)) return 0;
    code = code * 16 + (size_t)(isdigit(byte) ? byte - '0' : (byte | 0x20) - 'a' + 10);
  }
  return code > 0 && code < 0x80 ? (int)code : 0;
}

static int push_line(rxd_scope *scope, rxd_text line, value_stack *stack) {
  ptrdiff_t mark = find_mark(line, "LEEF:");
  if (mark < 0) return fail_at(scope, "", "the line has no 'LEEF:'");
  const char *at = line.bytes + mark + 5, *end = line.bytes + line.count, *bar = memchr(at, '|', (size_t)(end - at));
  rxd_text head = trimmed((rxd_text){line.bytes, (size_t)mark});
  if (head.count > 0) push_member(stack, RXD_TEXT_OF("head"), host->make_text(scope, head));
  if (bar == NULL) return fail_at(scope, "", "byte %zu: the header ends in its version", line.count);
  rxd_text version = trimmed((rxd_text){at, (size_t)(bar - at)});
  bool is_first = text_is(version, RXD_TEXT_OF("1.0")) || text_is(version, RXD_TEXT_OF("1"));
  if (!is_first && !text_is(version, RXD_TEXT_OF("2.0")) && !text_is(version, RXD_TEXT_OF("2")))
    return fail_at(scope, "", "byte %zu: the version is '%.*s', and must be 1.0 or 2.0", (size_t)(at - line.bytes), shown_count(version), version.bytes);
  push_member(stack, RXD_TEXT_OF("version"), host->make_text(scope, is_first ? RXD_TEXT_OF("1.0") : RXD_TEXT_OF("2.0")));
  for (int i = 0; i < HEADER_FIELDS; i++) {
    at = bar + 1;
    bar = memchr(at, '|', (size_t)(end - at));
    if (bar == NULL && i < HEADER_FIELDS - 1)
      return fail_at(scope, "", "byte %zu: the header ends before its field '%s'", line.count, header_names[i + 1]);
    if (bar == NULL) bar = end;
    push_member(stack, text_of(header_names[i]), host->make_text(scope, trimmed((rxd_text){at, (size_t)(bar - at)})));
  }
  int delimiter = '\t';
  at = bar < end ? bar + 1 : end;
  if (!is_first && (bar = memchr(at, '|', (size_t)(end - at))) != NULL) {
    /* Many writers of version 2.0 omit the field; the first key then takes its position. */
    int given = delimiter_of((rxd_text){at, (size_t)(bar - at)});
    if (given != 0) delimiter = given, at = bar + 1;
    else if (memchr(at, '=', (size_t)(bar - at)) == NULL)
      return fail_at(scope, "", "byte %zu: the delimiter must be one ASCII character, or 'x' and its code in hexadecimal digits", (size_t)(at - line.bytes));
  }
  size_t start = stack->count;
  while (at < end) {
    const char *next = memchr(at, delimiter, (size_t)(end - at));
    if (next == NULL) next = end;
    rxd_text attribute = trimmed((rxd_text){at, (size_t)(next - at)});
    if (attribute.count > 0) {
      const char *equals = memchr(attribute.bytes, '=', attribute.count);
      if (equals == NULL || equals == attribute.bytes)
        return fail_at(scope, "", "byte %zu: the attribute has no %s", (size_t)(attribute.bytes - line.bytes), equals == NULL ? "'='" : "name");
      if (!is_utf8(attribute.bytes, (size_t)(equals - attribute.bytes)))
        return fail_at(scope, "", "byte %zu: the name of the attribute is not UTF-8", (size_t)(attribute.bytes - line.bytes));
      rxd_text value = {equals + 1, (size_t)(attribute.bytes + attribute.count - equals - 1)};
      push_member(stack, trimmed((rxd_text){attribute.bytes, (size_t)(equals - attribute.bytes)}), host->make_text(scope, value));
    }
    at = next + (next < end);
  }
  rxd_value attributes = object_of(scope, stack, start);
  push_member(stack, RXD_TEXT_OF("attributes"), attributes);
  return RXD_OK;
}

int decode_leef(rxd_scope *scope, rxd_text line, rxd_value *event) {
  value_stack stack = {0};
  int status = push_line(scope, line, &stack);
  if (status == RXD_OK) *event = pop_object(scope, &stack, 0);
  free_values(&stack);
  return status;
}
