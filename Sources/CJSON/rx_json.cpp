// Whole documents: simdjson finds the tokens, the walk over them checks the grammar and builds the tree.
#include "rx_json.h"

#include <simdjson.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "rx_json_text.h"

using namespace rx_json;

namespace {

constexpr uint32_t max_depth = 1024;
/// The working memory of documents above this size is freed.
constexpr size_t kept_capacity = 4 << 20;
constexpr size_t max_length = 0xFFFFFF00;

struct level {
  uint32_t first;  // index into the scratch values
  bool map;
};

}  // namespace

struct rx_json_parser {
  std::unique_ptr<simdjson::internal::dom_parser_implementation> tokens;
  size_t capacity = 0;
  /// Finished values of the containers that are still open; holds `scratch_capacity` values.
  std::unique_ptr<rx_value[]> scratch;
  size_t scratch_capacity = 0;
  std::vector<uint32_t> table;  // open addressing, for objects with many members
  bool has_backslash = false;
  level levels[max_depth + 1];

  bool reserve(size_t length) {
    if (length < capacity) return true;
    size_t wanted = capacity < 4096 ? 4096 : capacity;
    while (wanted <= length) wanted *= 2;
    tokens.reset();
    capacity = 0;
    if (simdjson::get_active_implementation()->create_dom_parser_implementation(wanted, 1, tokens)) {
      return false;
    }
    capacity = wanted;
    return true;
  }

  bool reserve_scratch(size_t count) {
    if (count <= scratch_capacity) return true;
    const size_t wanted = count < 2 * scratch_capacity ? 2 * scratch_capacity : count;
    scratch.reset(new (std::nothrow) rx_value[wanted]);
    scratch_capacity = scratch ? wanted : 0;
    return scratch != nullptr;
  }

  void give_back() {
    if (capacity <= kept_capacity) return;
    tokens.reset();
    capacity = 0;
    scratch.reset();
    scratch_capacity = 0;
    std::vector<uint32_t>().swap(table);
  }

  /// Finds the tokens. `text` must begin and end with brackets.
  bool index(const uint8_t *text, size_t length, uint32_t &reason) {
    if (length > max_length) return reason = RX_JSON_TOO_LARGE, false;
    if (!reserve(length)) return reason = RX_JSON_NO_MEMORY, false;
    const auto error = tokens->stage1(text, length, simdjson::stage1_mode::regular);
    if (error) return reason = error == simdjson::MEMALLOC ? RX_JSON_NO_MEMORY : RX_JSON_MALFORMED, false;
    // The last byte is a bracket outside of every string, so it is the last token: the walk relies on it.
    if (tokens->n_structural_indexes == 0
        || tokens->structural_indexes[tokens->n_structural_indexes - 1] != length - 1) {
      return reason = RX_JSON_MALFORMED, false;
    }
    return true;
  }

  bool balanced(const uint8_t *text) const {
    const uint32_t *at = tokens->structural_indexes.get();
    const uint32_t *const last = at + tokens->n_structural_indexes - 1;
    int64_t depth = 0;
    for (; at < last; at++) {
      const uint8_t c = text[*at] | 0x20;
      depth += (c == '{') - (c == '}');
      if (depth <= 0) return false;
    }
    return depth == 1;
  }

  template <bool building>
  uint32_t walk(
    const uint8_t *text, size_t length, rx_json_limits limits, uint8_t *memory, uint8_t *keys, rx_value &root);
  uint32_t distinct(rx_value *members, uint32_t count);
};

namespace {

inline uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// Differs for each process, so that nobody can prepare colliding keys.
uint64_t seed() {
  static const uint64_t value = [] {
    auto *somewhere = new uint64_t;
    const uint64_t entropy = reinterpret_cast<uintptr_t>(somewhere) ^ reinterpret_cast<uintptr_t>(&malloc);
    delete somewhere;
    return mix(entropy ^ 0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u) | 1;
  }();
  return value;
}

inline uint64_t load(const uint8_t *at, size_t count) {
  uint64_t word = 0;
  memcpy(&word, at, count);
  return word;
}

inline uint64_t hash(const rx_value &key) {
  const auto *at = reinterpret_cast<const uint8_t *>(key.payload);
  size_t left = key.length;
  uint64_t state = seed() + left;
  while (left > 8) {
    state = mix(state ^ load(at, 8), 0xa0761d6478bd642fu);
    at += 8;
    left -= 8;
  }
  uint64_t word = 0;
  if (left == 8) word = load(at, 8);
  else if (left >= 4) word = load(at, 4) | load(at + left - 4, 4) << 32;
  else if (left > 0) word = at[0] | uint64_t{at[left / 2]} << 8 | uint64_t{at[left - 1]} << 16;
  return mix(state ^ word, 0xe7037ed1a0b428dbu);
}

/// Containers above this size are moved piece by piece.
constexpr size_t piece = 1 << 20;

/// Moves `size` bytes out of memory that is not read afterwards, and returns each page once it is empty, so that a
/// large document never needs room for all of its values twice.
__attribute__((noinline)) void move_pieces(uint8_t *target, uint8_t *source, size_t size) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t empty = (reinterpret_cast<uintptr_t>(source) + page - 1) & ~(page - 1);
  while (size > 0) {
    const size_t count = size < piece ? size : piece;
    memcpy(target, source, count);
    target += count;
    source += count;
    size -= count;
    const uintptr_t end = reinterpret_cast<uintptr_t>(source) & ~(page - 1);
    if (end > empty) {
      madvise(reinterpret_cast<void *>(empty), end - empty, MADV_DONTNEED);
      empty = end;
    }
  }
}

inline void move_values(uint8_t *target, rx_value *source, size_t size) {
  if (__builtin_expect(size <= piece, true)) {
    memcpy(target, source, size);
  } else {
    move_pieces(target, reinterpret_cast<uint8_t *>(source), size);
  }
}

inline bool same(const rx_value &a, const rx_value &b) {
  return a.length == b.length
    && memcmp(reinterpret_cast<void *>(a.payload), reinterpret_cast<void *>(b.payload), a.length) == 0;
}

}  // namespace

/// Drops every member whose key occurred before; returns the number of members that remain. Members are pairs of
/// values.
uint32_t rx_json_parser::distinct(rx_value *members, uint32_t count) {
  uint32_t kept = 0;
  if (count <= 64) {
    uint64_t seen[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < count; i++) {
      const rx_value key = members[2 * i];
      const uint64_t h = hash(key);
      uint64_t &word = seen[(h >> 6) & 3];
      const uint64_t bit = uint64_t{1} << (h & 63);
      bool duplicate = false;
      if (word & bit) {
        for (uint32_t j = 0; j < kept && !duplicate; j++) duplicate = same(members[2 * j], key);
      }
      word |= bit;
      if (duplicate) continue;
      if (kept != i) memcpy(&members[2 * kept], &members[2 * i], 2 * sizeof(rx_value));
      kept++;
    }
    return kept;
  }
  size_t size = 256;
  while (size < size_t{count} * 2) size *= 2;
  table.assign(size, 0);
  for (uint32_t i = 0; i < count; i++) {
    const rx_value key = members[2 * i];
    size_t slot = hash(key) & (size - 1);
    bool duplicate = false;
    while (table[slot]) {
      if (same(members[2 * (table[slot] - 1)], key)) {
        duplicate = true;
        break;
      }
      slot = (slot + 1) & (size - 1);
    }
    if (duplicate) continue;
    if (kept != i) memcpy(&members[2 * kept], &members[2 * i], 2 * sizeof(rx_value));
    table[slot] = ++kept;
  }
  // A large table is freed, so that it does not occupy memory while the values are moved.
  if (size > piece) std::vector<uint32_t>().swap(table);
  return kept;
}

/// Checks the grammar over the tokens that `index` found. When building, it gathers finished values in `scratch` and
/// moves the children of a container to `memory` when the container closes. Every element takes two tokens (its start,
/// and the comma or bracket after it) and every member four, so eight bytes per token suffice.
///
/// Returns RX_JSON_OK or a reason; the position is found by reading the text again.
template <bool building>
uint32_t rx_json_parser::walk(
  const uint8_t *text, size_t length, rx_json_limits limits, uint8_t *memory, uint8_t *keys, rx_value &root
) {
  const uint32_t *at = tokens->structural_indexes.get();
  const uint32_t *const end = at + tokens->n_structural_indexes;
  const uint8_t *const text_end = text + length;
  const uint32_t depth_limit = limits.depth < max_depth ? limits.depth : max_depth;
  rx_value *const base = scratch.get();
  rx_value *top = base;
  uint32_t depth = 0;
  uint32_t fields = 0;
  rx_value value = {};
  const uint8_t *token;
  const bool escapes = has_backslash;
  bool in_map = false;

  // A string ends at the last quote before the next token; only white space lies between.
#define RX_READ_STRING(stop, escaped)                                              \
  const uint8_t *stop = text + at[1] - 1;                                          \
  while (is_white(*stop)) stop--;                                                  \
  if (*stop != '"' || stop <= token) return RX_JSON_MALFORMED;                     \
  bool escaped = false;                                                            \
  if (escapes && memchr(token + 1, '\\', stop - token - 1) != nullptr) {           \
    if (!valid_escapes(token + 1, stop)) return RX_JSON_BAD_ESCAPE;                \
    escaped = true;                                                                \
  }

value:
  token = text + *at;
  switch (*token) {
    case '"': {
      RX_READ_STRING(stop, escaped)
      if (building) value = make(RX_STRING, token + 1, stop - token - 1, escaped ? RX_ESCAPED : 0);
      at++;
      goto finished;
    }
    case '{':
      if (++depth > depth_limit) return RX_JSON_TOO_DEEP;
      levels[depth] = level{static_cast<uint32_t>(top - base), true};
      in_map = true;
      at++;
      if (text[*at] == '}') goto close_map;
      goto key;
    case '[':
      if (++depth > depth_limit) return RX_JSON_TOO_DEEP;
      levels[depth] = level{static_cast<uint32_t>(top - base), false};
      in_map = false;
      at++;
      if (text[*at] == ']') goto close_list;
      goto value;
    case 't': case 'f': case 'n': {
      const uint8_t *stop = read_literal(token, text_end, value);
      if (!stop || !is_delimiter(*stop)) return RX_JSON_EXPECTED_VALUE;
      at++;
      goto finished;
    }
    default: {
      const uint8_t *stop = read_number(token, text_end, value);
      if (!stop || !is_delimiter(*stop)) return RX_JSON_BAD_NUMBER;
      at++;
      goto finished;
    }
  }

key: {
  token = text + *at;
  if (*token != '"') return RX_JSON_EXPECTED_KEY;
  RX_READ_STRING(stop, escaped)
  if (text[at[1]] != ':') return RX_JSON_EXPECTED_COLON;
  if (++fields > limits.fields) return RX_JSON_TOO_MANY_FIELDS;
  if (building) {
    size_t count = stop - token - 1;
    const uint8_t *start = token + 1;
    if (escaped) {
      count = rx_json_unescape(reinterpret_cast<const char *>(start), count, reinterpret_cast<char *>(keys));
      start = keys;
      keys += count;
    }
    *top++ = make(RX_STRING, start, count);
  }
  at += 2;
  goto value;
}

finished:
  if (building) *top++ = value;
  token = text + *at;
  if (*token == ',') {
    at++;
    if (in_map) goto key;
    goto value;
  }
  if (in_map) {
    if (*token != '}') return RX_JSON_EXPECTED_COMMA_OR_BRACE;
    goto close_map;
  }
  if (*token != ']') return RX_JSON_EXPECTED_COMMA_OR_BRACKET;

close_list:
  if (building) {
    rx_value *first = base + levels[depth].first;
    const size_t count = top - first;
    value = make(RX_LIST, memory, count);
    move_values(memory, first, count * sizeof(rx_value));
    memory += count * sizeof(rx_value);
    top = first;
  }
  goto closed;

close_map:
  if (building) {
    rx_value *first = base + levels[depth].first;
    uint32_t count = static_cast<uint32_t>((top - first) / 2);
    if (count > 1) count = distinct(first, count);
    value = make(RX_MAP, memory, count);
    move_values(memory, first, count * sizeof(rx_entry));
    memory += count * sizeof(rx_entry);
    top = first;
  }

closed:
  at++;
  if (--depth == 0) {
    if (building) root = value;
    return at == end ? RX_JSON_OK : RX_JSON_EXPECTED_END;
  }
  // The last token is a bracket, so running out of tokens can only happen here.
  if (at == end) return RX_JSON_MALFORMED;
  in_map = levels[depth].map;
  goto finished;
#undef RX_READ_STRING
}

namespace {

const uint8_t *bytes(const char *text) { return reinterpret_cast<const uint8_t *>(text); }

bool refuse(
  const char *text, size_t length, rx_json_limits limits, uint32_t reason, rx_json_failure *failure) {
  if (reason == RX_JSON_TOO_LARGE || reason == RX_JSON_NO_MEMORY) {
    *failure = {0, reason, false};
    return false;
  }
  *failure = locate_failure(bytes(text), length, limits);
  if (failure->reason == RX_JSON_OK) *failure = {0, RX_JSON_MALFORMED, false};
  return false;
}

bool bracketed(const uint8_t *start, const uint8_t *end) {
  return end - start >= 2 && ((*start == '{' && end[-1] == '}') || (*start == '[' && end[-1] == ']'));
}

}  // namespace

extern "C" {

rx_json_parser *rx_json_parser_new(void) { return new rx_json_parser; }

void rx_json_parser_free(rx_json_parser *parser) { delete parser; }

bool rx_json_open(
  rx_json_parser *parser, const char *text, size_t length, bool complete, rx_json_limits limits,
  rx_value *value, rx_json_failure *failure
) {
  const uint8_t *start = bytes(text);
  const uint8_t *end = start + length;
  while (start < end && is_white(*start)) start++;
  while (start < end && is_white(end[-1])) end--;
  if (start == end) {
    *failure = {length, RX_JSON_EMPTY, true};
    return false;
  }
  const size_t size = end - start;
  if (*start == '{' || *start == '[') {
    uint32_t reason = RX_JSON_MALFORMED;
    if (!bracketed(start, end) || !parser->index(start, size, reason)) {
      return refuse(text, length, limits, reason, failure);
    }
    if (complete) {
      parser->has_backslash = memchr(start, '\\', size) != nullptr;
      rx_value unused;
      reason = parser->walk<false>(start, size, limits, nullptr, nullptr, unused);
      parser->give_back();
      if (reason) return refuse(text, length, limits, reason, failure);
    } else {
      const bool balanced = parser->balanced(start);
      parser->give_back();
      if (!balanced) return refuse(text, length, limits, RX_JSON_MALFORMED, failure);
    }
    *value = make(*start == '{' ? RX_JSON_MAP : RX_JSON_LIST, start, size, 0, complete ? RX_CHECKED : 0);
    return true;
  }
  if (size > max_length) return refuse(text, length, limits, RX_JSON_TOO_LARGE, failure);
  // A scalar is short, or rare: the byte-by-byte reader checks it.
  if (*start == '"' || *start == 't' || *start == 'f' || *start == 'n') {
    *failure = locate_failure(bytes(text), length, limits);
    if (failure->reason != RX_JSON_OK) return false;
    if (*start == '"') {
      const bool escaped = memchr(start, '\\', size) != nullptr;
      *value = make(RX_STRING, start + 1, size - 2, escaped ? RX_ESCAPED : 0);
    } else {
      read_literal(start, end, *value);
    }
    return true;
  }
  if (read_number(start, end, *value) == end) return true;
  return refuse(text, length, limits, RX_JSON_BAD_NUMBER, failure);
}

bool rx_json_validate(
  rx_json_parser *parser, const char *text, size_t length, rx_json_limits limits, rx_json_failure *failure
) {
  rx_value unused;
  return rx_json_open(parser, text, length, true, limits, &unused, failure);
}

int64_t rx_json_index(rx_json_parser *parser, const char *text, size_t length, rx_json_failure *failure) {
  uint32_t reason = RX_JSON_MALFORMED;
  const uint8_t *start = bytes(text);
  if (!bracketed(start, start + length) || !parser->index(start, length, reason)) {
    refuse(text, length, rx_json_limits{max_depth, UINT32_MAX}, reason, failure);
    return -1;
  }
  const size_t count = parser->tokens->n_structural_indexes;
  if (!parser->reserve_scratch(count + 1)) {
    *failure = {0, RX_JSON_NO_MEMORY, false};
    return -1;
  }
  parser->has_backslash = memchr(text, '\\', length) != nullptr;
  return static_cast<int64_t>(count * 8 + (parser->has_backslash ? length : 0));
}

bool rx_json_build(
  rx_json_parser *parser, const char *text, size_t length, rx_json_limits limits, void *memory,
  rx_value *value, rx_json_failure *failure
) {
  auto *values = static_cast<uint8_t *>(memory);
  uint8_t *keys = values + parser->tokens->n_structural_indexes * 8;
  const uint32_t reason = parser->walk<true>(bytes(text), length, limits, values, keys, *value);
  parser->give_back();
  return reason ? refuse(text, length, limits, reason, failure) : true;
}

}  // extern "C"
