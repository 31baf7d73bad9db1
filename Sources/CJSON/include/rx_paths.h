// Reading a few paths out of a JSON document without reading the rest.
#ifndef RX_PATHS_H
#define RX_PATHS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rx_lines.h"
#include "rx_value.h"
#ifdef __cplusplus
extern "C" {
#endif

/// One field on the wanted paths; the children of a node are consecutive in the same array.
typedef struct rx_path_node {
  const char *key;  ///< UTF-8, unescaped; must live as long as the paths
  uint32_t key_length;
  int32_t slot;  ///< where the value goes, or -1
  int32_t first_child;
  int32_t child_count;
  uint8_t presence_only;  ///< the slot needs only the kind: a container's range is not determined
} rx_path_node;

/// Paths prepared for reading; immutable. The first node is the document.
typedef struct rx_paths rx_paths;
rx_paths *rx_paths_new(const rx_path_node *nodes, size_t count);
void rx_paths_free(rx_paths *paths);

/// Fills the slots of the paths from an object of an indexed block; all `count` slots are absent before the call, and
/// those not found stay absent. Of members with equal keys the first counts. Strings and containers point into the
/// text.
///
/// False: the object is malformed in a part that is checked. Besides the outline, these are the keys, colons and
/// brackets up to the last wanted member, and the commas and values of the wanted members.
bool rx_paths_read_row(const rx_paths *paths, const rx_lines_row *row, rx_value *slots, size_t count);

/// Reads the paths below `root` from one separate document, which may have white space around it; other slots keep
/// their values, and `lines` is used as working memory. False also if the document is not an object with a sound
/// outline.
bool rx_paths_read(
  const rx_paths *paths, rx_lines *lines, int32_t root, const char *text, size_t length, bool is_checked,
  rx_value *slots);

#ifdef __cplusplus
}
#endif
#endif
