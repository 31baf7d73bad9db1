#include "rx_lines.h"

#include <simdjson.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "rx_json_text.h"
#include "rx_lines_block.h"
#include "rx_lines_tokens.h"

using namespace rx_json;

// One pass over a block finds, 64 bytes at a time, the quotes, and the brackets, colons and line feeds outside strings.
// Only brackets, colons and line feeds are kept: commas, strings and numbers are checked when they are requested. That
// is a quarter of JSON's tokens, and enough to find any member: its key ends before a colon, and its value begins after
// it.

namespace {

// MARK: The pass over the block

/// The characters of interest among 64 bytes, as bit sets.
struct marks {
  uint64_t quote;  ///< not escaped
  uint64_t backslash;
  uint64_t control;  ///< below 0x20
  uint64_t open;
  uint64_t close;
  uint64_t colon;
  uint64_t feed;
  uint64_t high;  ///< not ASCII
};

/// `escaped`: on entry, whether the first byte is escaped; on return, whether the first byte after the 64 is.
RX_INLINE marks look(const uint8_t *from, uint64_t &escaped) {
  block64 bytes;
  memcpy(&bytes, from, sizeof bytes);
  const block64 lower = bytes | 0x20;
  marks all;
  all.high = RX_BITS((bytes & 0x80) != 0);
  all.control = RX_BITS(bytes < 0x20);
  all.open = RX_BITS(lower == '{');
  all.close = RX_BITS(lower == '}');
  all.colon = RX_BITS(bytes == ':');
  all.feed = RX_BITS(bytes == '\n');
  all.backslash = RX_BITS(bytes == '\\');
  all.quote = RX_BITS(bytes == '"') & ~hidden(all.backslash, escaped);
  return all;
}

/// Bytes of the UTF-8 sequence at `at`; 0 if there is none. May read three bytes further.
inline unsigned sequence(const uint8_t *at) {
  const uint8_t first = at[0];
  const auto continues = [](uint8_t c) { return (c & 0xC0) == 0x80; };
  if (first < 0xC2) return 0;
  if (first < 0xE0) return continues(at[1]) ? 2 : 0;
  if (first < 0xF0) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : 0xBF;
    return at[1] >= low && at[1] <= high && continues(at[2]) ? 3 : 0;
  }
  if (first > 0xF4) return 0;
  const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
  return at[1] >= low && at[1] <= high && continues(at[2]) && continues(at[3]) ? 4 : 0;
}

/// The state of the line being read.
struct outline {
  uint32_t line = 0;   ///< where it begins
  uint32_t first = 0;  ///< its first token
  int32_t depth = 0;
  int32_t lows = 0;  ///< tokens that led out of everything: the last one only, if all is well
};

/// Follows the brackets between two line feeds, or of a part of a line.
RX_INLINE void follow(outline &now, uint64_t open, uint64_t close) {
  const int closed = __builtin_popcountll(close);
  if (__builtin_expect(now.depth > closed, true)) {
    now.depth += __builtin_popcountll(open) - closed;
    return;
  }
  for (uint64_t rest = open | close; rest; rest &= rest - 1) {
    now.depth += (open & rest & (0 - rest)) ? 1 : -1;
    now.lows += now.depth <= 0;
  }
}

/// The line ends before `place`; `next` is the first token after it. False: no memory.
RX_INLINE bool end_line(rx_lines &lines, outline &now, uint32_t place, uint32_t next) {
  if (__builtin_expect(lines.row_count == lines.row_capacity, false) && !grow_rows(lines)) return false;
  const uint8_t *const text = lines.text;
  uint32_t from = now.line;
  uint32_t to = place;
  while (from < to && is_white(text[from])) from++;
  while (from < to && is_white(text[to - 1])) to--;
  // Sound: brackets balance, and nothing is outside them.
  if (from != now.line || to != place) lines.is_pass_through = false;
  const bool is_sound = now.lows == 1 && now.depth == 0 && lines.tokens[now.first] == from
    && lines.tokens[next - 2] == to - 1 && text[to - 1] == text[from] + 2;
  if (!is_sound) lines.is_sound = false;
  lines.rows[lines.row_count++] = {now.line, place, from, to, is_sound ? now.first : RX_LINES_NONE};
  now = {place + 1, next};
  return true;
}

/// Checks the UTF-8 of the non-ASCII bytes among the 64 at `text`. Returns, as bits, which bytes after the 64 belong to
/// a sequence; all ones: there is a fault.
uint64_t check(const uint8_t *text, uint64_t high) {
  while (high) {
    const int at = __builtin_ctzll(high);
    const unsigned count = sequence(text + at);
    if (count == 0) return ~uint64_t{0};
    const uint64_t whole = (uint64_t{1} << count) - 1;
    high &= ~(whole << at);
    if (at + count > 64) return whole >> (64 - at);
  }
  return 0;
}

struct found {
  uint32_t *end = nullptr;  ///< null: the block cannot be cut into lines
  outline rest;             ///< the text after the last line feed
  bool is_dense = false;    ///< too much is not ASCII to be checked here
};

/// Defines a function that finds tokens and lines; `feeds` is all ones, or 0 if line feeds end no line. No byte outside
/// of the text is read. `parity` sets each bit up to which an odd number of bits is set; `put` writes the indexes of the
/// set bits.
#define RX_FIND(name, parity, put)                                                                       \
  found name(rx_lines &lines, size_t length, uint64_t feeds) {                                           \
    const uint8_t *const text = lines.text;                                                              \
    uint32_t *out = lines.tokens;                                                                        \
    uint64_t in_string = 0; /* all ones: the 64 bytes begin inside a string */                           \
    uint64_t escaped = 0;                                                                                \
    uint64_t faults = 0;                                                                                 \
    uint64_t other = 0; /* control characters that end no line */                                        \
    uint64_t passed = 0; /* bytes of a sequence that was checked, as bits */                             \
    bool is_dense = false;                                                                               \
    outline now;                                                                                         \
    for (size_t base = 0; base < length; base += 64) {                                                   \
      uint8_t last[64 + 4];                                                                              \
      const uint8_t *from = text + base;                                                                 \
      if (length - base < sizeof last) {                                                                 \
        memset(last, ' ', sizeof last);                                                                  \
        memcpy(last, from, length - base);                                                               \
        from = last;                                                                                     \
      }                                                                                                  \
      marks all = look(from, escaped);                                                                   \
      lines.backslashes[base / 64] = all.backslash;                                                      \
      all.feed &= feeds;                                                                                 \
      other |= all.control & ~all.feed;                                                                  \
      const uint64_t inside = parity(all.quote) ^ in_string;                                             \
      in_string = static_cast<uint64_t>(static_cast<int64_t>(inside) >> 63);                             \
      faults |= all.control & inside;                                                                    \
      const uint64_t high = all.high & ~passed;                                                          \
      passed = 0;                                                                                        \
      if (high && !is_dense) {                                                                           \
        is_dense = __builtin_popcountll(high) > 16;                                                      \
        passed = check(from, high);                                                                      \
        if (passed == ~uint64_t{0}) return {};                                                           \
      }                                                                                                  \
      const uint64_t open = all.open & ~inside;                                                          \
      const uint64_t close = all.close & ~inside;                                                        \
      const uint64_t wanted = open | close | (all.colon & ~inside) | all.feed;                           \
      const auto here = static_cast<uint32_t>(out - lines.tokens);                                       \
      out = put(out, static_cast<uint32_t>(base), wanted);                                               \
      uint64_t left = ~uint64_t{0};                                                                      \
      for (uint64_t feed = all.feed; feed; feed &= feed - 1) {                                           \
        const uint64_t upto = feed ^ (feed - 1);                                                         \
        follow(now, open & left & upto, close & left & upto);                                            \
        const uint32_t next = here + static_cast<uint32_t>(__builtin_popcountll(wanted & upto));         \
        if (!end_line(lines, now, static_cast<uint32_t>(base) + __builtin_ctzll(feed), next)) return {}; \
        left = ~upto;                                                                                    \
      }                                                                                                  \
      follow(now, open & left, close & left);                                                            \
    }                                                                                                    \
    if (in_string | faults) return {};                                                                   \
    if (other) lines.is_pass_through = false;                                                                \
    return {out, now, is_dense};                                                                         \
  }

RX_FIND(find_plainly, parity_by_shifts, put_by_bits)

#if defined(__x86_64__)
__attribute__((target(RX_AVX2)))
RX_FIND(find_avx2, parity_by_product, put_by_bits)

__attribute__((target(RX_AVX512), min_vector_width(512)))
RX_FIND(find_avx512, parity_by_product, put_by_compression)
#endif

typedef found (*finder)(rx_lines &lines, size_t length, uint64_t feeds);

finder finder_for(processor what) {
#if defined(__x86_64__)
  if (what == processor::avx512) return find_avx512;
  if (what == processor::avx2) return find_avx2;
#endif
  return find_plainly;
}

std::atomic<finder> find{finder_for(this_processor())};
std::atomic<bool> tries_pass_through{true};

/// Tries the pass-through scan, unless it has failed for recent blocks: after failures it is skipped for 1, 2, 4, ...
/// 64 blocks.
bool is_pass_through_block(rx_lines &lines, size_t length, bool keeps) {
  if (!tries_pass_through.load(std::memory_order_relaxed) || lines.text[length - 1] != '\n') return false;
  if (lines.skips > 0) {
    lines.skips--;
    return false;
  }
  if (scan_pass_through(lines, length, keeps)) {
    lines.failures = 0;
    return true;
  }
  lines.row_count = 0;
  lines.skips = 1u << lines.failures;
  if (lines.failures < 6) lines.failures++;
  return false;
}

bool index(rx_lines &lines, const char *text, size_t length, uint64_t feeds) {
  lines.text = reinterpret_cast<const uint8_t *>(text);
  lines.row_count = 0;
  lines.is_sound = true;
  lines.is_pass_through = true;
  if (length == 0 || length > UINT32_MAX - 64 || !reserve(lines, length)) return false;
  if (feeds && is_pass_through_block(lines, length, true)) return true;
  found all = find.load(std::memory_order_relaxed)(lines, length, feeds);
  if (!all.end) return false;
  if (all.is_dense && !simdjson::validate_utf8(text, length)) return false;
  if (feeds && text[length - 1] == '\n') return true;
  lines.is_pass_through = false;
  *all.end++ = static_cast<uint32_t>(length);
  return end_line(lines, all.rest, static_cast<uint32_t>(length), static_cast<uint32_t>(all.end - lines.tokens));
}

}  // namespace

namespace rx_json {

processor this_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (
    __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")
    && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("pclmul")) {
    const bool is_wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
      && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
    return is_wide ? processor::avx512 : processor::avx2;
  }
#endif
  return processor::plain;
}

bool grow_rows(rx_lines &lines) {
  const size_t wanted = lines.row_capacity ? lines.row_capacity * 2 : 1024;
  auto *more = static_cast<rx_line *>(realloc(lines.rows, wanted * sizeof(rx_line)));
  if (!more) return false;
  lines.rows = more;
  lines.row_capacity = wanted;
  return true;
}

bool reserve(rx_lines &lines, size_t length) {
  const size_t wanted = length + token_margin;
  if (wanted <= lines.token_capacity) return true;
  free(lines.tokens);
  free(lines.backslashes);
  free(lines.highs);
  lines.tokens = static_cast<uint32_t *>(malloc(wanted * sizeof(uint32_t)));
  lines.backslashes = static_cast<uint64_t *>(malloc((wanted / 64 + 1) * sizeof(uint64_t)));
  lines.highs = static_cast<uint32_t *>(malloc((wanted / 64 + 2) * sizeof(uint32_t)));
  lines.token_capacity = lines.tokens && lines.backslashes && lines.highs ? wanted : 0;
  return lines.token_capacity > 0;
}

bool index_document(rx_lines &lines, const char *text, size_t length) {
  return index(lines, text, length, 0) && lines.rows[0].token != RX_LINES_NONE;
}

}  // namespace rx_json

extern "C" {

int rx_lines_use(int variant) {
  tries_pass_through.store((variant & RX_LINES_LONG_WAY) == 0, std::memory_order_relaxed);
  const processor best = this_processor();
  processor wanted = processor::plain;
  if ((variant & 3) == 1 && best != processor::plain) wanted = processor::avx2;
  if ((variant & 3) == 2) wanted = best;
  find.store(finder_for(wanted), std::memory_order_relaxed);
  scan_pass_through_for(wanted);
  return static_cast<int>(wanted) | (variant & RX_LINES_LONG_WAY);
}

rx_lines *rx_lines_new(void) { return new rx_lines; }

void rx_lines_free(rx_lines *lines) { delete lines; }

bool rx_lines_index(rx_lines *lines, const char *text, size_t length) {
  return length <= RX_LINES_LIMIT && index(*lines, text, length, ~uint64_t{0});
}

bool rx_lines_count_pass_through(rx_lines *lines, const char *text, size_t length, size_t *count) {
  lines->text = reinterpret_cast<const uint8_t *>(text);
  lines->row_count = 0;
  if (length == 0 || length > RX_LINES_LIMIT || !reserve(*lines, length)) return false;
  if (!is_pass_through_block(*lines, length, false)) return false;
  *count = lines->row_count;
  lines->row_count = 0;
  return true;
}

bool rx_lines_are_sound(const rx_lines *lines) { return lines->is_sound; }

bool rx_lines_pass_through(const rx_lines *lines) { return lines->is_sound && lines->is_pass_through; }

const rx_line *rx_lines_rows(const rx_lines *lines, size_t *count) {
  *count = lines->row_count;
  return lines->rows;
}

size_t rx_count_feeds(const char *text, size_t length) {
  size_t count = 0;
  while (length > 0) {
    // For this many bytes the sums fit into bytes, and the compiler vectorises the loop.
    const size_t part = length < 192 ? length : 192;
    uint8_t some = 0;
    for (size_t i = 0; i < part; i++) some += text[i] == '\n';
    count += some;
    text += part;
    length -= part;
  }
  return count;
}

}  // extern "C"
