// Shared by the code that finds tokens and the code that reads paths; not part of the interface.
#ifndef RX_LINES_TOKENS_H
#define RX_LINES_TOKENS_H
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "rx_lines.h"

struct rx_lines {
  const uint8_t *text = nullptr;
  uint32_t *tokens = nullptr;
  /// The bytes of the text that are backslashes, 64 per word.
  uint64_t *backslashes = nullptr;
  /// The offsets of the groups of 64 bytes that contain a non-ASCII sequence, or may contain the end of one.
  uint32_t *highs = nullptr;
  size_t token_capacity = 0;
  rx_line *rows = nullptr;
  size_t row_capacity = 0;
  size_t row_count = 0;
  bool is_sound = true;     ///< every line has tokens
  bool is_pass_through = true;  ///< only the lines, each followed by a line feed

  /// How many blocks in a row could not be passed through, and how many more are not tried.
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

/// The change of depth by each token.
struct bracket_table {
  int8_t step[256] = {};
  constexpr bracket_table() {
    step['{'] = step['['] = 1;
    step['}'] = step[']'] = -1;
  }
};
inline constexpr bracket_table brackets;

/// The instruction sets that the passes over a block are compiled for.
enum class processor { plain, avx2, avx512 };
processor this_processor();

/// False: no memory.
bool grow_rows(rx_lines &lines);
/// Reserves memory for everything that `length` bytes can contain, except rows, which grow during the pass. False: no
/// memory.
bool reserve(rx_lines &lines, size_t length);

/// Whether the text, which ends with a line feed, consists only of lines as `rx_lines_pass_through` requires; if so,
/// sets their number, `row_count`. `keeps`: also keeps their tokens and rows. Memory must be reserved (`reserve`).
bool scan_pass_through(rx_lines &lines, size_t length, bool keeps);
/// For tests: selects the instruction set used from now on.
void scan_pass_through_for(processor what);

/// Finds the tokens of one document as if it were one line, even if it contains line feeds; its length is not limited.
/// False: it has no sound outline.
bool index_document(rx_lines &lines, const char *text, size_t length);

}  // namespace rx_json
#endif
