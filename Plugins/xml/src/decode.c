/* Parses a document with expat. Documents that declare entities are refused, and external entities are never read. */
#include "xml.h"

#include <expat.h>

/* An open element. */
typedef struct frame {
  rxd_text name;
  size_t start;      /* index of its first member on the stack */
  size_t text;       /* index of the first byte of its text */
  bool has_elements;
} frame;

/* Names live until their objects are made, so they are kept in blocks that do not move. */
typedef struct block {
  struct block *next;
  size_t used, capacity;
  char bytes[];
} block;

typedef struct document {
  XML_Parser parser;
  rxd_scope *scope;
  const reading *how;
  value_stack stack, *events;
  output_bytes text;
  block *blocks;
  frame frames[DEPTH_LIMIT];
  size_t depth;
  size_t matched;   /* number of open elements that match `records` */
  char problem[256];
  unsigned long long line;  /* line of `problem` */
  long long byte;
} document;

__attribute__((format(printf, 2, 3)))
static void stop(document *self, const char *format, ...) {
  if (self->problem[0] != 0) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(self->problem, sizeof self->problem, format, arguments);
  va_end(arguments);
  self->line = XML_GetCurrentLineNumber(self->parser);
  self->byte = XML_GetCurrentByteIndex(self->parser);
  XML_StopParser(self->parser, XML_FALSE);
}

static rxd_text keep_name(document *self, char prefix, const char *name) {
  size_t count = strlen(name) + (prefix != 0);
  if (self->blocks == NULL || self->blocks->capacity - self->blocks->used < count) {
    size_t capacity = count > 4096 ? count : 4096;
    block *made = need(malloc(sizeof *made + capacity));
    *made = (block){.next = self->blocks, .capacity = capacity};
    self->blocks = made;
  }
  char *to = self->blocks->bytes + self->blocks->used;
  self->blocks->used += count;
  if (prefix != 0) to[0] = prefix;
  memcpy(to + (prefix != 0), name, count - (prefix != 0));
  return (rxd_text){to, count};
}

/* ---- Members ---- */

static int compare_members(const void *a, const void *b) {
  const rxd_text *left = *(const rxd_text *const *)a, *right = *(const rxd_text *const *)b;
  int order = compare_names(left, right);
  return order != 0 ? order : left < right ? -1 : 1;
}

static bool is_list(const document *self, rxd_text name) {
  for (size_t i = 0; i < self->how->list_count; i++)
    if (text_is(self->how->lists[i], name)) return true;
  return false;
}

/* Replaces members with the same name by a list, at the position of the first, and makes lists of elements that are
 * always lists. */
static void gather(document *self, size_t start) {
  value_stack *stack = &self->stack;
  size_t count = stack->count - start;
  rxd_text twice;
  if (count == 0 || (self->how->list_count == 0 && repeated_name(stack->names + start, count, &twice) == NULL)) return;
  const rxd_text **order = need(malloc(count * sizeof *order));
  rxd_value *values = need(malloc(count * sizeof *values));
  bool *is_dropped = need(calloc(count, sizeof *is_dropped));
  for (size_t i = 0; i < count; i++) order[i] = &stack->names[start + i];
  qsort(order, count, sizeof *order, compare_members);
  for (size_t i = 0, next; i < count; i = next) {
    size_t at = (size_t)(order[i] - stack->names);
    for (next = i; next < count && compare_names(order[i], order[next]) == 0; next++) {
      size_t other = (size_t)(order[next] - stack->names);
      values[next - i] = stack->values[other];
      is_dropped[other - start] = next > i;
    }
    if (next - i > 1 || is_list(self, *order[i])) stack->values[at] = host->make_list(self->scope, values, next - i);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (is_dropped[i]) continue;
    stack->names[start + kept] = stack->names[start + i];
    stack->values[start + kept++] = stack->values[start + i];
  }
  stack->count = start + kept;
  free(is_dropped);
  free(values);
  free(order);
}

static rxd_text trimmed(rxd_text text) {
  while (text.count > 0 && strchr(" \t\r\n", text.bytes[0]) != NULL) text.bytes++, text.count--;
  while (text.count > 0 && strchr(" \t\r\n", text.bytes[text.count - 1]) != NULL) text.count--;
  return text;
}

/* ---- Callbacks of the parser ---- */

/* Whether the open element belongs to an event. */
static bool is_kept(const document *self) { return self->how->record_depth == 0 || self->matched == self->how->record_depth; }

static void on_start(void *opaque, const XML_Char *name, const XML_Char **attributes) {
  document *self = opaque;
  if (self->problem[0] != 0) return;
  if (self->depth == DEPTH_LIMIT) {
    stop(self, "elements are nested more deeply than %d levels", DEPTH_LIMIT);
    return;
  }
  if (self->depth > 0) self->frames[self->depth - 1].has_elements = true;
  frame *frame = &self->frames[self->depth++];
  *frame = (struct frame){.start = self->stack.count, .text = self->text.count};
  const reading *how = self->how;
  if (self->matched == self->depth - 1 && self->matched < how->record_depth && text_is(text_of(name), how->records[self->matched])) self->matched++;
  if (!is_kept(self)) return;
  frame->name = keep_name(self, 0, name);
  for (; attributes[0] != NULL; attributes += 2)
    push_member(&self->stack, keep_name(self, '@', attributes[0]), host->make_text(self->scope, text_of(attributes[1])));
}

static void on_end(void *opaque, const XML_Char *name) {
  document *self = opaque;
  (void)name;
  if (self->problem[0] != 0) return;
  const reading *how = self->how;
  frame *frame = &self->frames[--self->depth];
  rxd_text text = {self->text.bytes + frame->text, self->text.count - frame->text};
  bool was_kept = is_kept(self), is_record = was_kept && self->depth + 1 == how->record_depth;
  if (was_kept) {
    rxd_value value;
    if (self->stack.count == frame->start) {
      value = host->make_text(self->scope, text);
    } else {
      if (frame->has_elements) text = trimmed(text);
      gather(self, frame->start);
      if (text.count > 0) push_member(&self->stack, RXD_TEXT_OF("#text"), host->make_text(self->scope, text));
      value = pop_object(self->scope, &self->stack, frame->start);
    }
    if (is_record) push_value(self->events, value);
    else push_member(&self->stack, frame->name, value);
  }
  self->text.count = frame->text;
  if (self->matched > self->depth) self->matched = self->depth;
  if (is_record) {
    /* Nothing outside of records is kept, so no open object needs the names. */
    while (self->blocks != NULL && self->blocks->next != NULL) {
      block *former = self->blocks->next;
      self->blocks->next = former->next;
      free(former);
    }
    if (self->blocks != NULL) self->blocks->used = 0;
  }
}

static void on_text(void *opaque, const XML_Char *text, int count) {
  document *self = opaque;
  if (is_kept(self)) output_append(&self->text, text, (size_t)count);
}

static void on_entity(void *opaque, const XML_Char *name, int is_parameter, const XML_Char *value, int count, const XML_Char *base, const XML_Char *system,
                      const XML_Char *public, const XML_Char *notation) {
  (void)is_parameter, (void)value, (void)count, (void)base, (void)system, (void)public, (void)notation;
  stop(opaque, "the document declares the entity '%.60s'; entities are not read", name);
}

static void on_skipped(void *opaque, const XML_Char *name, int is_parameter) {
  if (!is_parameter) stop(opaque, "the entity '&%.60s;' is not known: declarations in other documents are not read", name);
}

/* ---- The document ---- */

int decode_xml(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events) {
  if (input.count > INT32_MAX) return fail_at(scope, "", "the document has more than %d bytes", INT32_MAX);
  document *self = need(calloc(1, sizeof *self));
  self->scope = scope;
  self->how = how;
  self->events = events;
  self->parser = need(XML_ParserCreate(NULL));
  begin_output(&self->text);
  XML_SetUserData(self->parser, self);
  XML_SetElementHandler(self->parser, on_start, on_end);
  XML_SetCharacterDataHandler(self->parser, on_text);
  XML_SetEntityDeclHandler(self->parser, on_entity);
  XML_SetSkippedEntityHandler(self->parser, on_skipped);
  int status = RXD_OK;
  if (XML_Parse(self->parser, input.bytes, (int)input.count, XML_TRUE) != XML_STATUS_OK || self->problem[0] != 0) {
    bool is_own = self->problem[0] != 0;
    status = fail_at(scope, "", "line %llu, byte %lld: %s", is_own ? self->line : (unsigned long long)XML_GetCurrentLineNumber(self->parser),
                     is_own ? self->byte : (long long)XML_GetCurrentByteIndex(self->parser),
                     is_own ? self->problem : XML_ErrorString(XML_GetErrorCode(self->parser)));
  } else if (how->record_depth == 0) {
    gather(self, 0);
    push_value(events, pop_object(scope, &self->stack, 0));
  }
  XML_ParserFree(self->parser);
  for (block *next; self->blocks != NULL; self->blocks = next) {
    next = self->blocks->next;
    free(self->blocks);
  }
  free_output(&self->text);
  free_values(&self->stack);
  free(self);
  return status;
}
