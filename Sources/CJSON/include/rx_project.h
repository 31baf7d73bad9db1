// Reading a few paths out of a JSON document without reading the rest.
#ifndef RX_PROJECT_H
#define RX_PROJECT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rx_value.h"
#ifdef __cplusplus
extern "C" {
#endif

/// One field on the paths that are wanted; the children of a node are a run in the same array.
typedef struct rx_path_node {
  const char *key;  ///< UTF-8, unescaped
  uint32_t key_length;
  int32_t slot;  ///< where the value goes, or -1
  int32_t first_child;
  int32_t child_count;
  uint8_t presence_only;  ///< the slot needs the kind only: a container's range is not looked for
} rx_path_node;

/// The state of one scanner: not thread-safe, reused for every document.
typedef struct rx_projector rx_projector;
rx_projector *rx_projector_create(void);
void rx_projector_free(rx_projector *projector);

/// Fills the slots of the paths under `nodes[root]` from the JSON object at `json`, which is followed by
/// 64 readable bytes. The caller has set the slots to absent; those not found stay so. The first of
/// duplicate keys wins. What lies behind the last wanted field need not be well-formed. Strings and
/// containers point into `json`. Returns -1, or the byte offset of what is malformed.
long rx_project(
  rx_projector *projector, const rx_path_node *nodes, int32_t root, const char *json, size_t length,
  rx_value *slots);

/// Where `needle` first begins in `text`, or -1.
long rx_find(const char *text, size_t length, const char *needle, size_t needle_length);

#ifdef __cplusplus
}
#endif
#endif
