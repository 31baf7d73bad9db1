// What the two readers of JSON text share; not part of the interface.
#ifndef RX_JSON_TEXT_H
#define RX_JSON_TEXT_H
#include <cstddef>
#include <cstdint>

#include "rx_json.h"

namespace rx_json {

inline bool is_white(uint8_t c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

inline bool is_digit(uint8_t c) { return static_cast<uint8_t>(c - '0') < 10; }

/// Whether a number or a literal may end before this byte.
inline bool is_delimiter(uint8_t c) {
  switch (c) {
    case ' ': case '\t': case '\n': case '\r':
    case ',': case ':': case '[': case ']': case '{': case '}':
      return true;
    default:
      return false;
  }
}

/// Reads the number at `at`; returns the byte behind it, or null if it breaks the grammar. Does not look
/// at what follows.
const uint8_t *read_number(const uint8_t *at, const uint8_t *end, rx_value &value);
/// The same for true, false and null.
const uint8_t *read_literal(const uint8_t *at, const uint8_t *end, rx_value &value);
/// Whether every backslash in a string's inside begins a legal escape.
bool valid_escapes(const uint8_t *at, const uint8_t *end);
/// Finds the first fault of a text by reading it byte by byte; RX_JSON_OK if there is none.
rx_json_failure locate_failure(const uint8_t *text, size_t length, rx_json_limits limits);

inline rx_value make(rx_kind kind, uint64_t payload, uint32_t length = 0, uint8_t flags = 0) {
  return rx_value{payload, static_cast<uint8_t>(kind), flags, 0, length};
}
inline rx_value make(rx_kind kind, const uint8_t *start, size_t length, uint8_t flags = 0) {
  return rx_value{
    reinterpret_cast<uintptr_t>(start), static_cast<uint8_t>(kind), flags, 0, static_cast<uint32_t>(length)};
}

}  // namespace rx_json
#endif
