// Documents on lines of their own: the tokens of many are found in one pass over the block, and their outlines with
// them.
#ifndef RX_LINES_H
#define RX_LINES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/// One line of a block; places are bytes from the start of the block.
typedef struct rx_line {
  uint32_t line;   ///< where it begins
  uint32_t stop;   ///< where it ends: its line feed, or the end of the block
  uint32_t start;  ///< the same without white space around
  uint32_t end;
  /// The first token, where the line is an object or an array: UTF-8, closed strings without control characters,
  /// balanced brackets, nothing beside them. Else RX_LINES_NONE: the line is blank, a scalar or faulty.
  uint32_t token;
} rx_line;

/// Finds the tokens and lines of a block. False: some line has a fault that may hide where its tokens end (or the
/// block is too large), so every line must be read by itself. Strings hold no line feed where this is true, so no
/// token of a line depends on another line. No byte outside of the block is read.
bool rx_lines_index(rx_lines *lines, const char *text, size_t length);
/// The lines of the block that was indexed last.
const rx_line *rx_lines_rows(const rx_lines *lines, size_t *count);
/// Whether every line of that block is an object or an array with a sound outline.
bool rx_lines_are_sound(const rx_lines *lines);
/// Whether, beyond that, the block is nothing but these documents, a line feed behind each, and holds no other control
/// character: each is on one line already, without white space around it.
bool rx_lines_pass_through(const rx_lines *lines);

/// Whether `rx_lines_pass_through` would say so of this block, found out without keeping where anything is; and of how
/// many lines it consists. May say no where the answer is yes.
bool rx_lines_count_pass_through(rx_lines *lines, const char *text, size_t length, size_t *count);

/// Verbatim blocks are read as any other.
#define RX_LINES_LONG_WAY 4
/// For tests: from now on tokens are found by the portable variant (0), by AVX2 (1), or as the processor can best (2),
/// as it is done from the start; with RX_LINES_LONG_WAY, or without it as from the start. Returns which one it is.
int rx_lines_use(int variant);

/// How many line feeds there are.
size_t rx_count_feeds(const char *text, size_t length);

/// One document of a block that is still indexed: who has `payload` and `length` in hand has this one.
typedef struct rx_lines_row {
  const rx_lines *lines;  ///< null: none
  uint64_t payload;
  uint32_t length;
  uint32_t token;
} rx_lines_row;

#ifdef __cplusplus
}
#endif
#endif
