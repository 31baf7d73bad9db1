#include "rx_lines.h"

#include <simdjson.h>

#include <cstring>
#include <memory>

#include "rx_json_text.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

using namespace rx_json;

struct rx_lines {
  std::unique_ptr<simdjson::internal::dom_parser_implementation> tokens;
  size_t capacity = 0;
  const uint8_t *text = nullptr;
  const uint32_t *cursor = nullptr;
};

namespace {

/// How much deeper a token leads.
struct bracket_table {
  int8_t step[256] = {};
  constexpr bracket_table() {
    step['{'] = step['['] = 1;
    step['}'] = step[']'] = -1;
  }
};
constexpr bracket_table brackets;

/// Whether the inside of a string holds a backslash. May read 16 bytes from its start.
inline bool has_backslash(const uint8_t *inside, size_t length) {
#if defined(__SSE2__)
  if (length <= 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i *>(inside));
    const int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8('\\')));
    return (mask & ((1 << length) - 1)) != 0;
  }
#endif
  return memchr(inside, '\\', length) != nullptr;
}

/// Walks the tokens of one document whose brackets are balanced: its last token is the one that closes it,
/// and none before it does.
struct walker {
  const uint8_t *const text;
  const rx_path_node *const nodes;
  rx_value *const slots;

  /// From a token inside a container, outside of those in it, to the token that closes it, which should be
  /// `bracket`: else null.
  const uint32_t *closing(const uint32_t *at, uint8_t bracket) const {
    for (int64_t depth = 1;; at++) {
      depth += brackets.step[text[*at]];
      if (depth == 0) return text[*at] == bracket ? at : nullptr;
    }
  }

  /// Whether what is inside a container may begin with this token: the careful reader notices, too.
  bool begins(bool is_map, const uint32_t *at) const {
    const uint8_t c = text[*at];
    if (!is_map) return c != '}' && c != ',' && c != ':';
    if (c == '}') return true;
    if (c != '"' || text[at[1]] != ':') return false;
    const uint8_t first = text[at[2]];
    return first != '}' && first != ']' && first != ',' && first != ':';
  }

  /// Reads the wanted members of the object whose first inner token is `at`; returns the token behind the last
  /// value that was looked at: the closing one, or one at the same depth. Null: give up. With `last` nothing
  /// is wanted behind this object, and the result means nothing but success.
  const uint32_t *object(const rx_path_node &parent, const uint32_t *at, bool last) const {
    const rx_path_node *const children = nodes + parent.first_child;
    const int count = parent.child_count;
    if (count > 64) return nullptr;
    uint64_t missing = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    if (text[*at] == '}') return at;
    while (true) {
      const uint8_t *const key = text + *at;
      if (*key != '"' || text[at[1]] != ':') return nullptr;
      const uint8_t *stop = text + at[1] - 1;
      while (is_white(*stop)) stop--;
      if (*stop != '"' || stop == key) return nullptr;
      const size_t length = static_cast<size_t>(stop - key) - 1;
      at += 2;
      const rx_path_node *child = nullptr;
      for (uint64_t rest = missing; rest; rest &= rest - 1) {
        const int index = __builtin_ctzll(rest);
        const rx_path_node &wanted = children[index];
        // Escapes make a key longer than what it means, never shorter.
        if (length < wanted.key_length) continue;
        if (has_backslash(key + 1, length)) return nullptr;
        if (
          length == wanted.key_length && (length == 0 || key[1] == static_cast<uint8_t>(*wanted.key))
          && memcmp(key + 1, wanted.key, length) == 0) {
          child = &wanted;
          missing &= ~(uint64_t{1} << index);
          break;
        }
      }
      at = value(child, at, last && missing == 0);
      if (!at || (last && missing == 0)) return at;
      const uint8_t next = text[*at];
      if (next == '}') return at;
      if (next != ',') return nullptr;
      if (missing == 0) return at;
      at++;
    }
  }

  /// Reads or skips the value that begins with token `at`; returns the token behind it. `last` as above.
  const uint32_t *value(const rx_path_node *node, const uint32_t *at, bool last) const {
    const uint8_t *const start = text + *at;
    switch (*start) {
      case '{':
      case '[': {
        const bool is_map = *start == '{';
        const uint8_t bracket = is_map ? '}' : ']';
        const rx_kind kind = is_map ? RX_JSON_MAP : RX_JSON_LIST;
        const uint32_t *close = nullptr;
        if (node && node->slot >= 0) {
          if (node->presence_only) {
            slots[node->slot] = make(kind, start, 0);
          } else {
            if (!begins(is_map, at + 1)) return nullptr;
            close = closing(at + 1, bracket);
            if (!close) return nullptr;
            slots[node->slot] = make(kind, start, text + *close + 1 - start);
          }
        }
        const uint32_t *reached = at + 1;
        if (node && is_map && node->child_count > 0) {
          reached = object(*node, reached, last);
          if (!reached) return nullptr;
        }
        if (last) return reached;
        if (!close) close = closing(reached, bracket);
        return close ? close + 1 : nullptr;
      }
      case ',':
      case ':':
      case '}':
      case ']':
        return nullptr;
      default: {
        if (node && node->slot >= 0) {
          const uint8_t *stop = text + at[1];
          while (is_white(stop[-1])) stop--;
          if (!read_scalar(
                reinterpret_cast<const char *>(start), reinterpret_cast<const char *>(stop),
                &slots[node->slot])) {
            return nullptr;
          }
        }
        return at + 1;
      }
    }
  }
};

}  // namespace

extern "C" {

rx_lines *rx_lines_new(void) { return new rx_lines; }

void rx_lines_free(rx_lines *lines) { delete lines; }

bool rx_lines_index(rx_lines *lines, const char *text, size_t length) {
  lines->text = nullptr;
  if (length == 0 || length > RX_LINES_LIMIT) return false;
  if (length >= lines->capacity) {
    size_t wanted = lines->capacity < 4096 ? 4096 : lines->capacity;
    while (wanted <= length) wanted *= 2;
    lines->tokens.reset();
    lines->capacity = 0;
    if (simdjson::get_active_implementation()->create_dom_parser_implementation(wanted, 1, lines->tokens)) {
      return false;
    }
    lines->capacity = wanted;
  }
  const auto *bytes = reinterpret_cast<const uint8_t *>(text);
  if (lines->tokens->stage1(bytes, length, simdjson::stage1_mode::regular)) return false;
  // Whoever looks for tokens before a place in the block finds an end, also four at a time.
  for (int i = 0; i < 4; i++) {
    lines->tokens->structural_indexes[lines->tokens->n_structural_indexes + i] = static_cast<uint32_t>(length);
  }
  lines->text = bytes;
  lines->cursor = lines->tokens->structural_indexes.get();
  return true;
}

uint32_t rx_lines_open(rx_lines *lines, size_t first, size_t last, rx_value *value) {
  const uint8_t *const text = lines->text;
  const uint8_t *start = text + first;
  const uint8_t *end = text + last;
  while (start < end && is_white(*start)) start++;
  while (start < end && is_white(end[-1])) end--;
  if (end - start < 2) return RX_LINES_NONE;
  const bool is_map = *start == '{';
  if (!(is_map && end[-1] == '}') && !(*start == '[' && end[-1] == ']')) return RX_LINES_NONE;
  const uint32_t from = static_cast<uint32_t>(start - text);
  const uint32_t to = static_cast<uint32_t>(end - text) - 1;
  const uint32_t *at = lines->cursor;
  while (*at < from) at++;
  if (*at != from) return RX_LINES_NONE;
  const uint32_t *const token = at;
  int64_t depth = 0;
  // Four at a time: the sign of `low` tells whether the depth fell to 0 on the way.
  while (at[3] < to) {
    const int64_t first = depth + brackets.step[text[at[0]]];
    const int64_t second = first + brackets.step[text[at[1]]];
    const int64_t third = second + brackets.step[text[at[2]]];
    depth = third + brackets.step[text[at[3]]];
    const int64_t low = (first - 1) | (second - 1) | (third - 1) | (depth - 1);
    if (low < 0) return RX_LINES_NONE;
    at += 4;
  }
  for (; *at < to; at++) {
    depth += brackets.step[text[*at]];
    if (depth <= 0) return RX_LINES_NONE;
  }
  lines->cursor = at;
  if (*at != to || depth != 1) return RX_LINES_NONE;
  lines->cursor = at + 1;
  *value = make(is_map ? RX_JSON_MAP : RX_JSON_LIST, start, end - start);
  return static_cast<uint32_t>(token - lines->tokens->structural_indexes.get());
}

bool rx_lines_project(const rx_lines_row *row, const rx_path_node *nodes, rx_value *slots) {
  const rx_lines *const lines = row->lines;
  const uint32_t *const at = lines->tokens->structural_indexes.get() + row->token;
  const walker walk{lines->text, nodes, slots};
  return walk.object(nodes[0], at + 1, true) != nullptr;
}

}  // extern "C"
