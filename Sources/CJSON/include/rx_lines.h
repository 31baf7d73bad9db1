// Many documents on lines of their own: their tokens are found in one pass over the block and used twice,
// for the outline of each document and for the paths that are read from it.
#ifndef RX_LINES_H
#define RX_LINES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rx_project.h"
#include "rx_value.h"
#ifdef __cplusplus
extern "C" {
#endif

/// The tokens of one block; keeps its memory for the next. Not thread-safe.
typedef struct rx_lines rx_lines;
rx_lines *rx_lines_new(void);
void rx_lines_free(rx_lines *lines);

/// Blocks above this many bytes are not indexed.
#define RX_LINES_LIMIT (2u << 20)
/// The line must be read by itself.
#define RX_LINES_NONE UINT32_MAX

/// Finds the tokens of a block. False: some line has a fault that may hide where its tokens end (or the block
/// is too large), so every line must be read by itself. Strings hold no line feed where this is true, so no
/// token of a line depends on another line.
bool rx_lines_index(rx_lines *lines, const char *text, size_t length);

/// Opens the object or array that fills `start ..< end` of the block but for white space, as `rx_json_open`
/// does without `complete`; returns its first token. Lines are opened from first to last. RX_LINES_NONE: the
/// line is blank, a scalar or faulty, and `rx_json_open` shall say which.
uint32_t rx_lines_open(rx_lines *lines, size_t start, size_t end, rx_value *value);

/// One document of a block that is still indexed: who has `payload` and `length` in hand has this one.
typedef struct rx_lines_row {
  const rx_lines *lines; ///< null: none
  uint64_t payload;
  uint32_t length;
  uint32_t token;
} rx_lines_row;

/// Does for the row what `rx_project` does for its text. False: the document is not as it should be where it
/// was read, or a path needs the careful reader; some slots may have been set, and `rx_project` shall decide.
bool rx_lines_project(const rx_lines_row *row, const rx_path_node *nodes, rx_value *slots);

#ifdef __cplusplus
}
#endif
#endif
