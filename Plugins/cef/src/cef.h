/* Reads lines of CEF and LEEF. */
#ifndef CEF_H
#define CEF_H
#include "format_util.h"

typedef struct reading {
  bool renames;  /* CEF: cs1 gets the name that cs1Label gives it */
  bool is_strict; /* CEF: escapes that the format does not define are refused */
} reading;

int decode_cef(const reading *how, rxd_scope *scope, rxd_text line, rxd_value *event);
int decode_leef(rxd_scope *scope, rxd_text line, rxd_value *event);

/* ---- Shared ---- */

/* Unescaped texts of a line: an unescaped text is never longer than its escaped form, so one block of the line's size holds all. */
typedef struct texts {
  char *block;
  size_t used;
} texts;

/* The index of the format's prefix, such as `CEF:`: at the start, or after a byte that names cannot contain, such as a
 * space. -1: none. */
ptrdiff_t find_mark(rxd_text line, const char *mark);

/* Makes an object of the members; of members with the same name, the last one wins. */
rxd_value object_of(rxd_scope *scope, value_stack *stack, size_t start);

static inline rxd_text trimmed(rxd_text text) {
  while (text.count > 0 && (text.bytes[0] == ' ' || text.bytes[0] == '\t')) text.bytes++, text.count--;
  while (text.count > 0 && strchr(" \t\r", text.bytes[text.count - 1]) != NULL && text.bytes[text.count - 1] != 0) text.count--;
  return text;
}
#endif
