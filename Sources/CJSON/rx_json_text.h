// Declarations shared by the two readers of JSON text; not part of the interface.
#ifndef RX_JSON_TEXT_H
#define RX_JSON_TEXT_H
#include <cstddef>
#include <cstdint>
#include <cstring>

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

/// Reads the number at `at`; returns the byte after it, or null if it violates the grammar. Does not check what
/// follows. A number that writing would not reproduce keeps its text (RX_TEXT_LIMIT).
const uint8_t *read_number(const uint8_t *at, const uint8_t *end, rx_value &value);
/// Reads true, false or null in the same way.
const uint8_t *read_literal(const uint8_t *at, const uint8_t *end, rx_value &value);
/// Whether every backslash in a string's content begins a valid escape.
bool valid_escapes(const uint8_t *at, const uint8_t *end);
/// Finds the first fault of a text by reading it byte by byte; RX_JSON_OK if there is none.
rx_json_failure locate_failure(const uint8_t *text, size_t length, rx_json_limits limits);

/// Writes a value as two words, because readers a moment later read whole words.
inline rx_value make(rx_kind kind, uint64_t payload, uint32_t length = 0, uint8_t flags = 0, uint16_t aux = 0) {
  const uint64_t words[2] = {
    payload, static_cast<uint64_t>(kind) | static_cast<uint64_t>(flags) << 8 | static_cast<uint64_t>(aux) << 16
               | static_cast<uint64_t>(length) << 32};
  rx_value value;
  static_assert(sizeof value == sizeof words);
  memcpy(&value, words, sizeof value);
  return value;
}
inline rx_value make(rx_kind kind, const uint8_t *start, size_t length, uint8_t flags = 0, uint16_t aux = 0) {
  return make(kind, reinterpret_cast<uintptr_t>(start), static_cast<uint32_t>(length), flags, aux);
}

/// A double with the text that it was read from, if the text fits.
inline rx_value make_double(uint64_t bits, const uint8_t *text, size_t length) {
  const uint64_t address = reinterpret_cast<uintptr_t>(text);
  if (length > RX_TEXT_LIMIT || address >> 48) return make(RX_DOUBLE, bits);
  return make(
    RX_DOUBLE, bits, static_cast<uint32_t>(address >> 16), static_cast<uint8_t>(length),
    static_cast<uint16_t>(address));
}

}  // namespace rx_json
#endif
