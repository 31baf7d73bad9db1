#include "rx_paths.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "rx_json_text.h"
#include "rx_lines_tokens.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

using namespace rx_json;

#define RX_COLD __attribute__((noinline, cold))

namespace {

struct node {
  const char *key;
  uint32_t key_length;
  int32_t slot;
  int32_t first_child;
  int32_t child_count;
  bool presence_only;
  /// For an object: a table of `table_size` words for each 64 children. At `slot_of`, the children that a key with
  /// these last bytes may match, as bits.
  const uint64_t *candidates;
  /// The last eight bytes of the quoted key, the closing quote highest; `mask` covers those that exist.
  uint64_t tail;
  uint64_t mask;
  /// The first eight bytes of the quoted key, the opening quote lowest; a shorter key is entirely in its tail.
  uint64_t head;
};

constexpr size_t table_size = 64;

/// The index in the table for the last two bytes before a key's closing quote; for a key of one byte, the opening quote
/// is one of them.
inline size_t slot_of(uint8_t before, uint8_t last) { return (last ^ before * 5) % table_size; }

}  // namespace

struct rx_paths {
  node *nodes;
  uint64_t *tables;

  ~rx_paths() {
    free(nodes);
    free(tables);
  }
};

namespace {

/// Walks the tokens of one document whose brackets balance: only its last token closes it.
struct walker {
  const uint8_t *const text;
  const node *const nodes;
  rx_value *const slots;
  const uint8_t *const stop;  ///< end of the document
  const uint64_t *const backslashes;
  /// There is no unread backslash before this position.
  const uint8_t *slash;
  /// The `aux` of JSON text in the document.
  const uint16_t checked = 0;

  const uint8_t *skip_white(const uint8_t *at) const {
    while (is_white(*at)) at++;
    return at;
  }

  /// The token that closes the container opened by the token at `at`; null if the brackets do not match.
  const uint32_t *closing(const uint32_t *at) const {
    const uint8_t bracket = text[*at] + 2;
    for (int64_t depth = 1;;) {
      depth += brackets.step[text[*++at]];
      if (depth == 0) return text[*at] == bracket ? at : nullptr;
    }
  }

  /// The first backslash at or after `from`, or a position after the document.
  const uint8_t *next_slash(const uint8_t *from) const {
    const size_t place = from - text;
    const uint64_t *word = backslashes + place / 64;
    const uint64_t *const end = backslashes + (stop - text) / 64;
    uint64_t found = *word >> place % 64 << place % 64;
    while (found == 0) {
      if (word == end) return stop;
      found = *++word;
    }
    return text + (word - backslashes) * 64 + __builtin_ctzll(found);
  }

  /// Whether the key whose closing quote is at `quote` contains a backslash; no part of the key is before `first`.
  RX_COLD bool is_escaped(const uint8_t *quote, const uint8_t *first) {
    if (slash < first) slash = next_slash(first);
    if (slash >= quote) return false;
    for (const uint8_t *at = quote - 1; at > first; at--) {
      if (*at == '\\') return true;
      if (*at == '"') return at[-1] == '\\';
    }
    return false;
  }

  /// The child that an escaped key matches, among those in `missing`, or -1; -2: it is not a key.
  RX_COLD int escaped(const node *children, uint64_t missing, const uint8_t *quote, const uint8_t *first) const {
    const uint8_t *open = quote - 1;
    while (true) {
      while (open >= first && *open != '"') open--;
      if (open < first) return -2;
      const uint8_t *slash = open;
      while (slash > first && slash[-1] == '\\') slash--;
      if ((open - slash) % 2 == 0) break;
      open--;
    }
    const auto length = static_cast<size_t>(quote - open) - 1;
    char few[256];
    char *const buffer = length <= sizeof few ? few : static_cast<char *>(malloc(length));
    if (!buffer) return -2;
    const size_t count = rx_json_unescape(reinterpret_cast<const char *>(open) + 1, length, buffer);
    int result = -1;
    for (uint64_t rest = missing; rest && result < 0; rest &= rest - 1) {
      const int index = __builtin_ctzll(rest);
      if (children[index].key_length == count && memcmp(children[index].key, buffer, count) == 0) result = index;
    }
    if (buffer != few) free(buffer);
    return result;
  }

  /// Reads the wanted members of the object that token `at` opens; returns the token after its closing one. With
  /// `last`, nothing after this object is wanted, and the result only says whether reading succeeded. Null: the object
  /// is malformed in a part that was read.
  const uint32_t *object(const node &parent, const uint32_t *const open, bool last) {
    const uint32_t *end = nullptr;
    for (int group = 0; group < parent.child_count; group += 64) {
      end = members(parent, group, open, last && group + 64 >= parent.child_count);
      if (!end) return nullptr;
    }
    return end;
  }

  /// The child that a key matches, among `few`, or -1; -2: the text before the key is malformed. The key ends at
  /// `quote`; no part of it is before `first`, where the object's members begin if `is_first`.
  __attribute__((noinline)) int meant(
    const node *children, uint64_t few, const uint8_t *quote, const uint8_t *first, bool is_first) const {
    for (uint64_t rest = few; rest; rest &= rest - 1) {
      const int candidate = __builtin_ctzll(rest);
      const node &wanted = children[candidate];
      const size_t length = wanted.key_length;
      const uint8_t *const begin = quote - length;
      if (begin - 1 < first) continue;
      if (quote - text >= 7) {
        uint64_t tail;
        memcpy(&tail, quote - 7, 8);
        if ((tail & wanted.mask) != wanted.tail) continue;
        if (length > 6) {
          uint64_t head;
          memcpy(&head, begin - 1, 8);
          if (head != wanted.head || (length > 14 && memcmp(begin, wanted.key, length) != 0)) continue;
        }
      } else if (begin[-1] != '"' || memcmp(begin, wanted.key, length) != 0) {
        continue;
      }
      if (begin[-2] == '\\') continue;
      const uint8_t *before = begin - 2;
      while (is_white(*before)) before--;
      return *before == ',' || (before == first - 1 && is_first) ? candidate : -2;
    }
    return -1;
  }

  const uint32_t *members(const node &parent, int group, const uint32_t *const open, bool last) {
    const node *const children = nodes + parent.first_child + group;
    const int count = parent.child_count - group;
    const uint64_t *const candidates = parent.candidates + group / 64 * table_size;
    uint64_t missing = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    const uint32_t *at = open + 1;
    const uint8_t *first = text + *open + 1;  // no part of the next key is before it
    while (true) {
      const uint8_t *const colon = text + *at;
      if (__builtin_expect(*colon != ':', false)) return *colon == '}' ? at + 1 : nullptr;
      const uint8_t *quote = colon - 1;
      if (__builtin_expect(*quote != '"', false)) {
        while (is_white(*quote)) quote--;
        if (*quote != '"') return nullptr;
      }
      if (__builtin_expect(quote <= first, false)) return nullptr;
      const uint64_t few = candidates[slot_of(quote[-2], quote[-1])] & missing;
      int index = few ? meant(children, few, quote, first, at == open + 1) : -1;
      at++;
      if (index < 0) {
        if (__builtin_expect(index == -2, false)) return nullptr;
        if (__builtin_expect(slash < quote, false) && is_escaped(quote, first)) {
          index = escaped(children, missing, quote, first);
          if (index == -2) return nullptr;
        }
      }
      if (index < 0) {
        if ((text[*at] | 0x20) == '{') {
          at = closing(at);
          if (!at) return nullptr;
          at++;
        }
      } else {
        missing &= ~(uint64_t{1} << index);
        at = value(children[index], at, skip_white(colon + 1), last && missing == 0);
        if (!at || (last && missing == 0)) return at;
        if (missing == 0) {
          if (text[*at] == '}') return at + 1;
          // The rest of the object is not checked.
          for (int64_t depth = 1;; at++) {
            depth += brackets.step[text[*at]];
            if (depth == 0) return text[*at] == '}' ? at + 1 : nullptr;
          }
        }
      }
      first = text + at[-1] + 1;
    }
  }

  /// Reads the value that begins at `start`; `at` is the first token at or after it. Returns the first token after the
  /// value.
  __attribute__((noinline)) const uint32_t *value(const node &wanted, const uint32_t *at, const uint8_t *start, bool last) {
    const uint8_t c = *start;
    if (c == '{' || c == '[') {
      if (text + *at != start) return nullptr;
      const bool is_map = c == '{';
      const uint32_t *close = nullptr;
      if (wanted.slot >= 0) {
        if (wanted.presence_only) {
          slots[wanted.slot] = make(is_map ? RX_JSON_MAP : RX_JSON_LIST, start, 0, 0, checked);
        } else {
          close = closing(at);
          if (!close) return nullptr;
          slots[wanted.slot] = make(is_map ? RX_JSON_MAP : RX_JSON_LIST, start, text + *close + 1 - start, 0, checked);
        }
      }
      if (is_map && wanted.child_count > 0) {
        const uint32_t *behind = object(wanted, at, last);
        if (!behind || last) return behind;
        if (!close) return behind;
      } else if (last) {
        return at;
      }
      if (!close) close = closing(at);
      return close ? close + 1 : nullptr;
    }
    // A scalar ends before the next comma or closing bracket that counts.
    const uint8_t *end;
    if (c == '"') {
      end = string(wanted, start);
    } else if (c == 't' || c == 'f' || c == 'n') {
      rx_value unused;
      end = read_literal(start, stop, wanted.slot >= 0 ? slots[wanted.slot] : unused);
    } else {
      rx_value unused;
      end = read_number(start, stop, wanted.slot >= 0 ? slots[wanted.slot] : unused);
    }
    if (!end) return nullptr;
    end = skip_white(end);
    return *end == ',' || (*end == '}' && end == text + *at) ? at : nullptr;
  }

  /// Reads a string that is known to be closed.
  const uint8_t *string(const node &wanted, const uint8_t *start) const {
    const uint8_t *at = start + 1;
    uint8_t flags = 0;
    while (true) {
#if defined(__SSE2__)
      while (stop - at >= 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
        const int mask = _mm_movemask_epi8(_mm_or_si128(
          _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
        if (mask) {
          at += __builtin_ctz(mask);
          break;
        }
        at += 16;
      }
#endif
      if (at >= stop) return nullptr;
      if (*at == '"') break;
      if (*at == '\\') {
        flags = RX_ESCAPED;
        at++;
      }
      at++;
    }
    if (wanted.slot >= 0) {
      slots[wanted.slot] = make(RX_STRING, start + 1, at - start - 1, flags, flags ? 0 : RX_PLAIN);
    }
    return at + 1;
  }
};

}  // namespace

extern "C" {

rx_paths *rx_paths_new(const rx_path_node *nodes, size_t count) {
  size_t tables = 0;
  for (size_t i = 0; i < count; i++) tables += (nodes[i].child_count + 63) / 64;
  auto *paths = new rx_paths;
  paths->nodes = static_cast<node *>(calloc(count, sizeof(node)));
  paths->tables = static_cast<uint64_t *>(calloc(tables + 1, table_size * sizeof(uint64_t)));
  if (!paths->nodes || !paths->tables) abort();
  uint64_t *table = paths->tables;
  struct tail {
    uint64_t tail = 0;
    uint64_t mask = 0;
    uint64_t head = 0;
  };
  std::vector<tail> tails(count);
  for (size_t i = 0; i < count; i++) {
    const rx_path_node &from = nodes[i];
    paths->nodes[i] = {
      from.key, from.key_length, from.slot, from.first_child, from.child_count, from.presence_only != 0, table, 0, 0, 0};
    for (int child = 0; child < from.child_count; child++) {
      const rx_path_node &one = nodes[from.first_child + child];
      std::string text = "\"" + std::string(one.key, one.key_length) + "\"";
      uint64_t *const row = table + child / 64 * table_size;
      const uint64_t bit = uint64_t{1} << (child % 64);
      if (one.key_length) {
        row[slot_of(text[text.size() - 3], text[text.size() - 2])] |= bit;
      } else {
        // The byte before the two quotes is unknown.
        for (size_t place = 0; place < table_size; place++) row[place] |= bit;
      }
      const size_t kept = text.size() < 8 ? text.size() : 8;
      for (size_t byte = 0; byte < kept; byte++) {
        const size_t place = 7 - byte;
        tails[from.first_child + child].tail |=
          static_cast<uint64_t>(static_cast<uint8_t>(text[text.size() - 1 - byte])) << place * 8;
        tails[from.first_child + child].mask |= uint64_t{0xFF} << place * 8;
      }
      memcpy(&tails[from.first_child + child].head, text.data(), kept);
    }
    table += (from.child_count + 63) / 64 * table_size;
  }
  for (size_t i = 0; i < count; i++) {
    paths->nodes[i].tail = tails[i].tail;
    paths->nodes[i].mask = tails[i].mask;
    paths->nodes[i].head = tails[i].head;
  }
  return paths;
}

void rx_paths_free(rx_paths *paths) { delete paths; }

bool rx_paths_read_row(const rx_paths *paths, const rx_lines_row *row, rx_value *slots, size_t count) {
  static_assert(RX_ABSENT == 0);
  for (size_t i = 0; i < count; i++) {
    slots[i] = rx_value{};
    // Keeps the loop: there are few slots, so storing them takes fewer instructions than a call of memset.
    asm volatile("" ::: "memory");
  }
  const auto *const stop = reinterpret_cast<const uint8_t *>(row->payload) + row->length;
  const uint8_t *const text = row->lines->text;
  // The next line begins after this one and has left the L1 cache by now; the wanted members are near its beginning.
  for (int ahead = 1; ahead < 1 + 5 * 64; ahead += 64) __builtin_prefetch(stop + ahead);
  walker walk{text, paths->nodes, slots, stop, row->lines->backslashes, text};
  walk.slash = walk.next_slash(text + row->lines->tokens[row->token]);
  return walk.object(paths->nodes[0], row->lines->tokens + row->token, true) != nullptr;
}

bool rx_paths_read(
  const rx_paths *paths, rx_lines *lines, int32_t root, const char *text, size_t length, bool is_checked, rx_value *slots
) {
  bool is_sound = index_document(*lines, text, length) && text[lines->rows[0].start] == '{';
  if (is_sound) {
    const rx_line row = lines->rows[0];
    walker walk{lines->text, paths->nodes, slots, lines->text + row.end, lines->backslashes, lines->text,
                static_cast<uint16_t>(is_checked ? RX_CHECKED : 0)};
    walk.slash = walk.next_slash(lines->text + lines->tokens[row.token]);
    is_sound = walk.object(paths->nodes[root], lines->tokens + row.token, true) != nullptr;
  }
  // Frees the memory of an unusually large document.
  if (lines->token_capacity > 8u << 20) {
    free(lines->tokens);
    free(lines->backslashes);
    lines->tokens = nullptr;
    lines->backslashes = nullptr;
    lines->token_capacity = 0;
  }
  return is_sound;
}

}  // extern "C"
