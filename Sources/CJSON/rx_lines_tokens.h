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
  size_t token_capacity = 0;
  rx_line *rows = nullptr;
  size_t row_capacity = 0;
  size_t row_count = 0;
  bool is_sound = true;     ///< every line has tokens
  bool is_verbatim = true;  ///< nothing but the lines and a line feed behind each

  ~rx_lines() {
    free(tokens);
    free(backslashes);
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

/// Finds the tokens of one document as if it were one line, whatever line feeds it holds; not limited in length.
/// False: it has no sound outline.
bool index_document(rx_lines &lines, const char *text, size_t length);

}  // namespace rx_json
#endif
