// One document per line: one pass over a block finds the tokens and the outlines of many documents.
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
/// The line must be read separately.
#define RX_LINES_NONE UINT32_MAX

/// One line of a block; positions are offsets in bytes from the start of the block.
typedef struct rx_line {
  uint32_t line;   ///< where it begins
  uint32_t stop;   ///< where it ends: its line feed, or the end of the block
  uint32_t start;  ///< the same without white space around
  uint32_t end;
  /// The first token, if the line is an object or an array: UTF-8, closed strings without control characters, balanced
  /// brackets, nothing outside them. Otherwise RX_LINES_NONE: the line is blank, a scalar or faulty.
  uint32_t token;
} rx_line;

/// Finds the tokens and lines of a block. False: a line has a fault that may hide where its tokens end, or the block is
/// too large, so every line must be read separately. If true, strings contain no line feed, so no token of a line
/// depends on another line. No byte outside the block is read.
bool rx_lines_index(rx_lines *lines, const char *text, size_t length);
/// The lines of the block that was indexed last.
const rx_line *rx_lines_rows(const rx_lines *lines, size_t *count);
/// Whether every line of that block is an object or an array with a sound outline.
bool rx_lines_are_sound(const rx_lines *lines);
/// Whether, in addition, the block consists only of these documents, each followed by a line feed, without any other
/// control character: each is already on one line, without white space around it.
bool rx_lines_pass_through(const rx_lines *lines);

/// Whether `rx_lines_pass_through` would be true of this block, and how many lines the block has, without keeping any
/// positions. May return false where the answer is true.
bool rx_lines_count_pass_through(rx_lines *lines, const char *text, size_t length, size_t *count);

/// Pass-through blocks are read like any other.
#define RX_LINES_LONG_WAY 4
/// For tests: selects the variant that finds tokens from now on: portable (0), AVX2 (1), or the best of the processor
/// (2), which is the default; with or without RX_LINES_LONG_WAY, which is off by default. Returns the variant in use.
int rx_lines_use(int variant);

/// The number of line feeds.
size_t rx_count_feeds(const char *text, size_t length);

/// One document of a block that is still indexed; a value with the same `payload` and `length` is this document.
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
