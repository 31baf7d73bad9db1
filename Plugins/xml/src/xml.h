/* Reads XML documents. */
#ifndef XML_PLUGIN_H
#define XML_PLUGIN_H
#include "format_util.h"

enum { NAMES_MOST = 32 };

/* A decoder's parameters. */
typedef struct reading {
  char *records_text;            /* owns the names of `records` */
  rxd_text records[NAMES_MOST];  /* the path of element names from the root to an event */
  size_t record_depth;           /* 0: the document is the event */
  rxd_text *lists;               /* names of elements that are always lists */
  size_t list_count;
} reading;

/* Appends the events of a document. */
int decode_xml(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events);
#endif
