// Values of the test host: trees of JSON in the memory of a scope, and the functions of rxd_host that read and make them.
#ifndef RXD_TEST_VALUES_H
#define RXD_TEST_VALUES_H
#include <stdio.h>

#include "rxd_plugin.h"

struct rxd_scope {
  struct block *blocks;
  char *message, *at;  // arguments of `fail`
};

typedef struct node {
  int kind;
  union {
    int64_t integer;
    double number;
    struct { char *bytes; size_t count; } text;
    struct { struct node **values; struct node **names; size_t count; } items;
  };
} node;

void *allocate(rxd_scope *scope, size_t count);
void clear(rxd_scope *scope);
rxd_value value_of(const node *node);
/// NULL if the bytes are not JSON. `is_extended`: {"$duration": 5}, {"$timestamp": 5}, {"$bytes": "text"}, {"$hex":
/// "ff00"}, {"$double": "nan"} and {"$absent": 0} stand for such values.
node *parse(rxd_scope *scope, const char *bytes, size_t count, int is_extended);
void put_string(FILE *to, const char *bytes, size_t count);
void put_value(FILE *to, const rxd_value *value);
/// Times, durations, bytes and doubles are written as `parse` reads them.
void put_typed_value(FILE *to, const rxd_value *value);
rxd_value bytes_value(rxd_scope *scope, const char *bytes, size_t count);

int host_kind(const rxd_value *value);
rxd_text host_text(rxd_scope *scope, const rxd_value *value);
size_t host_count(rxd_scope *scope, const rxd_value *value);
rxd_value host_member(rxd_scope *scope, const rxd_value *object, rxd_text name);
rxd_value host_element(rxd_scope *scope, const rxd_value *list, size_t index);
rxd_text host_json(rxd_scope *scope, const rxd_value *value);
/// Sets the functions that read and make values.
void offer_values(rxd_host *host);
#endif
