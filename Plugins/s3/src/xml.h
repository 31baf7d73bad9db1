/* Parses XML answers. Documents with a type declaration are rejected: no S3 server sends one, and the entities that
 * it declares could expand without limit. */
#ifndef XML_H
#define XML_H
#include <stdbool.h>
#include <stddef.h>

/* Called at the end of an element; `text` is the text directly in it. `parent`: "" for the root. */
typedef void xml_element(void *closure, const char *parent, const char *name, const char *text, size_t count);

/* False: the document is not well formed, has a type declaration, or is nested too deeply. */
bool xml_read(const char *bytes, size_t count, xml_element *element, void *closure);

#endif
