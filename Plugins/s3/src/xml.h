/* Answers in XML. Documents with a type declaration are refused: no server of S3 sends one, and entities that it
 * declares could grow without bounds. */
#ifndef XML_H
#define XML_H
#include <stdbool.h>
#include <stddef.h>

/* An element has ended; `text` is what stood directly in it. `parent`: "" for the root. */
typedef void xml_element(void *closure, const char *parent, const char *name, const char *text, size_t count);

/* False: it is no well-formed document, has a type declaration, or is nested too deeply. */
bool xml_read(const char *bytes, size_t count, xml_element *element, void *closure);

#endif
