// What the finder of tokens and the reader of paths share; not part of the interface.
#ifndef RX_LINES_TOKENS_H
#define RX_LINES_TOKENS_H
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "rx_lines.h"

struct rx_lines {
  const uint8_t *text = nullptr;
  uint32_t *tokens = nullptr;
  /// Which bytes of the text are backslashes, 64 a word.
  uint64_t *backslashes = nullptr;
  /// Where the 64 bytes begin that hold something that is not ASCII, or may hold the end of it.
  uint32_t *highs = nullptr;
  size_t token_capacity = 0;
  rx_line *rows = nullptr;
  size_t row_capacity = 0;
  size_t row_count = 0;
  bool is_sound = true;     ///< every line has tokens
  bool is_pass_through = true;  ///< nothing but the lines and a line feed behind each

  /// How often in a row blocks could not pass through, and how many more are not tried.
  uint32_t failures = 0;
  uint32_t skips = 0;

  ~rx_lines() {
    free(tokens);
    free(backslashes);
    free(highs);
    free(rows);
  }
};

namespace rx_json {

/// How much deeper a token leads.
struct bracket_table {
  int8_t step[256] = {};
  constexpr bracket_table() {
    step['{'] = step['['] = 1;
    step['}'] = step[']'] = -1;
  }
};
inline constexpr bracket_table brackets;

/// The sets of instructions that the passes over a block are made for.
enum class processor { plain, avx2, avx512 };
processor this_processor();

/// False: no memory.
bool grow_rows(rx_lines &lines);
/// Room for what there is to find in `length` bytes; rows grow meanwhile. False: no memory.
bool reserve(rx_lines &lines, size_t length);

/// Whether the text, which ends with a line feed, is nothing but lines as `rx_lines_pass_through` says, and then how
/// many: `row_count`. `keeps`: their tokens and rows, too. There is room (`reserve`).
bool scan_pass_through(rx_lines &lines, size_t length, bool keeps);
/// For tests: from now on with these instructions.
void scan_pass_through_for(processor what);

/// Finds the tokens of one document as if it were one line, whatever line feeds it holds; not limited in length.
/// False: it has no sound outline.
bool index_document(rx_lines &lines, const char *text, size_t length);

}  // namespace rx_json
#endif
