#include "rx_paths.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "rx_json_text.h"
#include "rx_lines_tokens.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

using namespace rx_json;

namespace {

struct node {
  const char *key;
  uint32_t key_length;
  int32_t slot;
  int32_t first_child;
  int32_t child_count;
  bool presence_only;
  /// Of an object: for the last byte of a key, in its low five bits, which of the children may be meant; 32 words for
  /// each 64 children.
  const uint64_t *candidates;
};

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

/// Walks the tokens of one document whose brackets are balanced: its last token is the one that closes it, and
/// none before it does.
struct walker {
  const uint8_t *const text;
  const node *const nodes;
  rx_value *const slots;
  const uint8_t *const stop;  ///< behind the document
  const uint64_t *const backslashes;

  const uint8_t *skip_white(const uint8_t *at) const {
    while (is_white(*at)) at++;
    return at;
  }

  /// From the token that opens a container to the one that closes it; null if they do not fit.
  const uint32_t *closing(const uint32_t *at) const {
    const uint8_t bracket = text[*at] + 2;
    for (int64_t depth = 1;;) {
      depth += brackets.step[text[*++at]];
      if (depth == 0) return text[*at] == bracket ? at : nullptr;
    }
  }

  /// Whether there is a backslash between two places.
  bool has_backslash(const uint8_t *from, const uint8_t *to) const {
    const size_t first = from - text;
    const size_t last = to - text;
    const uint64_t *word = backslashes + first / 64;
    const uint64_t *const end = backslashes + last / 64;
    uint64_t found = *word & ~uint64_t{0} << first % 64;
    for (; word < end; found = *++word) {
      if (found) return true;
    }
    return (found & ~(~uint64_t{0} << last % 64)) != 0;
  }

  /// Whether the key whose closing quote is at `quote` holds a backslash; nothing of it lies before `first`.
  bool is_escaped(const uint8_t *quote, const uint8_t *first) const {
    if (!has_backslash(first, quote)) return false;
    for (const uint8_t *at = quote - 1; at > first; at--) {
      if (*at == '\\') return true;
      if (*at == '"') return at[-1] == '\\';
    }
    return false;
  }

  /// The child that an escaped key means, among those in `missing`, or -1; -2: the key is none.
  int escaped(const node *children, uint64_t missing, const uint8_t *quote, const uint8_t *first) const {
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

  bool equal(const uint8_t *a, const char *b, size_t length) const {
    if (length >= 8) {
      uint64_t x, y;
      size_t at = 0;
      for (; at + 8 < length; at += 8) {
        memcpy(&x, a + at, 8);
        memcpy(&y, b + at, 8);
        if (x != y) return false;
      }
      memcpy(&x, a + length - 8, 8);
      memcpy(&y, b + length - 8, 8);
      return x == y;
    }
    if (length >= 4) {
      uint32_t x, y, z, w;
      memcpy(&x, a, 4);
      memcpy(&y, b, 4);
      memcpy(&z, a + length - 4, 4);
      memcpy(&w, b + length - 4, 4);
      return ((x ^ y) | (z ^ w)) == 0;
    }
    for (size_t i = 0; i < length; i++) {
      if (a[i] != static_cast<uint8_t>(b[i])) return false;
    }
    return true;
  }

  /// Reads the wanted members of the object that token `at` opens; returns the token behind the one that closes
  /// it. With `last` nothing is wanted behind this object, and the result means nothing but success. Null: the
  /// object is malformed where it was looked at.
  const uint32_t *object(const node &parent, const uint32_t *const open, bool last) const {
    const uint32_t *end = nullptr;
    for (int group = 0; group < parent.child_count; group += 64) {
      end = members(parent, group, open, last && group + 64 >= parent.child_count);
      if (!end) return nullptr;
    }
    return end;
  }

  const uint32_t *members(const node &parent, int group, const uint32_t *const open, bool last) const {
    const node *const children = nodes + parent.first_child + group;
    const int count = parent.child_count - group;
    const uint64_t *const candidates = parent.candidates + group / 2;
    uint64_t missing = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    const uint32_t *at = open + 1;
    const uint8_t *first = text + *open + 1;  // nothing of the next key lies before it
    while (true) {
      const uint8_t *const colon = text + *at;
      if (*colon != ':') {
        if (*colon != '}') return nullptr;
        return at + 1;
      }
      const uint8_t *quote = colon - 1;
      while (is_white(*quote)) quote--;
      if (quote <= first || *quote != '"') return nullptr;
      int index = -1;
      for (uint64_t rest = candidates[quote[-1] & 31] & missing; rest; rest &= rest - 1) {
        const int candidate = __builtin_ctzll(rest);
        const size_t length = children[candidate].key_length;
        const uint8_t *const begin = quote - length;
        if (begin - 1 < first || begin[-1] != '"' || begin[-2] == '\\') continue;
        if (!equal(begin, children[candidate].key, length)) continue;
        const uint8_t *before = begin - 2;
        while (is_white(*before)) before--;
        if (*before != ',' && (before != first - 1 || at != open + 1)) return nullptr;
        index = candidate;
        break;
      }
      if (index < 0 && is_escaped(quote, first)) {
        index = escaped(children, missing, quote, first);
        if (index == -2) return nullptr;
      }
      at++;
      const uint8_t next = text[*at];
      if (index < 0) {
        if (next == '{' || next == '[') {
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
          // What follows is not looked at.
          for (int64_t depth = 1;; at++) {
            depth += brackets.step[text[*at]];
            if (depth == 0) return text[*at] == '}' ? at + 1 : nullptr;
          }
        }
      }
      first = text + at[-1] + 1;
    }
  }

  /// Reads the value that begins at `start`; `at` is the first token at or behind it. Returns the first token
  /// behind the value.
  const uint32_t *value(const node &wanted, const uint32_t *at, const uint8_t *start, bool last) const {
    const uint8_t c = *start;
    if (c == '{' || c == '[') {
      if (text + *at != start) return nullptr;
      const bool is_map = c == '{';
      const uint32_t *close = nullptr;
      if (wanted.slot >= 0) {
        if (wanted.presence_only) {
          slots[wanted.slot] = make(is_map ? RX_JSON_MAP : RX_JSON_LIST, start, 0);
        } else {
          close = closing(at);
          if (!close) return nullptr;
          slots[wanted.slot] = make(is_map ? RX_JSON_MAP : RX_JSON_LIST, start, text + *close + 1 - start);
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

  /// Reads a string, which is known to be closed.
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
      rx_value &value = slots[wanted.slot];
      value = make(RX_STRING, start + 1, at - start - 1, flags);
      value.aux = flags ? 0 : RX_PLAIN;
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
  paths->tables = static_cast<uint64_t *>(calloc(tables + 1, 32 * sizeof(uint64_t)));
  if (!paths->nodes || !paths->tables) abort();
  uint64_t *table = paths->tables;
  for (size_t i = 0; i < count; i++) {
    const rx_path_node &from = nodes[i];
    paths->nodes[i] = {
      from.key, from.key_length, from.slot, from.first_child, from.child_count, from.presence_only != 0, table};
    for (int child = 0; child < from.child_count; child++) {
      const rx_path_node &one = nodes[from.first_child + child];
      const auto end = static_cast<uint8_t>(one.key_length ? one.key[one.key_length - 1] : '"');
      table[child / 64 * 32 + (end & 31)] |= uint64_t{1} << (child % 64);
    }
    table += (from.child_count + 63) / 64 * 32;
  }
  return paths;
}

void rx_paths_free(rx_paths *paths) { delete paths; }

bool rx_paths_read_row(const rx_paths *paths, const rx_lines_row *row, rx_value *slots) {
  const auto *const stop = reinterpret_cast<const uint8_t *>(row->payload) + row->length;
  const walker walk{row->lines->text, paths->nodes, slots, stop, row->lines->backslashes};
  return walk.object(paths->nodes[0], row->lines->tokens + row->token, true) != nullptr;
}

bool rx_paths_read(
  const rx_paths *paths, rx_lines *lines, int32_t root, const char *text, size_t length, rx_value *slots
) {
  bool is_sound = index_document(*lines, text, length) && text[lines->rows[0].start] == '{';
  if (is_sound) {
    const rx_line row = lines->rows[0];
    const walker walk{lines->text, paths->nodes, slots, lines->text + row.end, lines->backslashes};
    is_sound = walk.object(paths->nodes[root], lines->tokens + row.token, true) != nullptr;
  }
  // A document of unusual size shall not keep its memory for ever.
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
