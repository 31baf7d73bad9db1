#include "xml.h"

#include "buffer.h"

#include <expat.h>

enum { DEPTH_MOST = 16, NAME_MOST = 64, BYTES_MOST = 1 << 26 };

typedef struct reader {
  XML_Parser parser;
  xml_element *element;
  void *closure;
  char names[DEPTH_MOST + 1][NAME_MOST];
  int depth;
  bool is_bad;
  buffer text;
} reader;

static void stop(reader *self) {
  self->is_bad = true;
  XML_StopParser(self->parser, XML_FALSE);
}

static void on_start(void *opaque, const XML_Char *name, const XML_Char **attributes) {
  reader *self = opaque;
  (void)attributes;
  if (self->depth >= DEPTH_MOST) {
    stop(self);
    return;
  }
  self->depth++;
  snprintf(self->names[self->depth], NAME_MOST, "%s", name);
  buffer_clear(&self->text);
}

static void on_end(void *opaque, const XML_Char *name) {
  reader *self = opaque;
  (void)name;
  if (self->is_bad) return;
  self->element(self->closure, self->names[self->depth - 1], self->names[self->depth], buffer_text(&self->text),
                self->text.count);
  self->depth--;
  buffer_clear(&self->text);
}

static void on_text(void *opaque, const XML_Char *text, int count) {
  reader *self = opaque;
  buffer_add(&self->text, text, (size_t)count);
}

static void on_doctype(void *opaque, const XML_Char *name, const XML_Char *system, const XML_Char *public, int has_subset) {
  (void)name, (void)system, (void)public, (void)has_subset;
  stop(opaque);
}

bool xml_read(const char *bytes, size_t count, xml_element *element, void *closure) {
  reader *self = calloc(1, sizeof *self);
  if (self == NULL || count > BYTES_MOST || (self->parser = XML_ParserCreate(NULL)) == NULL) {
    free(self);
    return false;
  }
  self->element = element;
  self->closure = closure;
  XML_SetUserData(self->parser, self);
  XML_SetElementHandler(self->parser, on_start, on_end);
  XML_SetCharacterDataHandler(self->parser, on_text);
  XML_SetStartDoctypeDeclHandler(self->parser, on_doctype);
  bool is_read = XML_Parse(self->parser, bytes, (int)count, XML_TRUE) == XML_STATUS_OK && !self->is_bad;
  XML_ParserFree(self->parser);
  buffer_free(&self->text);
  free(self);
  return is_read;
}
