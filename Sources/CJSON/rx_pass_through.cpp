// Reads blocks in the form that most programs write: one object or array per line, each followed by a line feed, no
// white space around them, no other control character. Such a block needs fewer checks than any other, and may be
// passed on unchanged.

#include <simdjson.h>

#include <atomic>

#include "rx_lines_block.h"
#include "rx_lines_tokens.h"

using namespace rx_json;

namespace {

/// The continuation bytes that a UTF-8 sequence at the end of a 64-byte block requires in the next block, as bits.
struct utf8_debt {
  uint64_t second = 0;
  uint64_t third = 0;
  uint64_t fourth = 0;
  /// The second byte must be at least 0xA0, below 0xA0, at least 0x90, or below 0x90.
  uint64_t from_a0 = 0;
  uint64_t below_a0 = 0;
  uint64_t from_90 = 0;
  uint64_t below_90 = 0;
};

/// The bytes among the 64 at `from` that are not UTF-8.
RX_INLINE uint64_t utf8_faults(const uint8_t *from, utf8_debt &debt) {
  block64 bytes;
  memcpy(&bytes, from, sizeof bytes);
  const uint64_t high = RX_BITS((bytes & 0x80) != 0);
  const uint64_t lead = RX_BITS(bytes >= 0xC0);
  const uint64_t overlong = RX_BITS((bytes & 0xFE) == 0xC0);
  const uint64_t three = RX_BITS(bytes >= 0xE0);
  uint64_t due = lead << 1 | debt.second;
  uint64_t faults = overlong;
  debt.second = lead >> 63;
  if (three | debt.third | debt.fourth | debt.from_a0 | debt.below_a0 | debt.from_90 | debt.below_90) {
    const uint64_t four = RX_BITS(bytes >= 0xF0);
    due |= three << 2 | debt.third | four << 3 | debt.fourth;
    debt.third = three >> 62;
    debt.fourth = four >> 61;
    faults |= RX_BITS(bytes > 0xF4);
    const uint64_t at_least_a0 = RX_BITS(bytes >= 0xA0);
    const uint64_t at_least_90 = RX_BITS(bytes >= 0x90);
    const uint64_t e0 = RX_BITS(bytes == 0xE0);
    const uint64_t ed = RX_BITS(bytes == 0xED);
    const uint64_t f0 = RX_BITS(bytes == 0xF0);
    const uint64_t f4 = RX_BITS(bytes == 0xF4);
    faults |= (e0 << 1 | debt.from_a0) & ~at_least_a0;
    faults |= (ed << 1 | debt.below_a0) & at_least_a0;
    faults |= (f0 << 1 | debt.from_90) & ~at_least_90;
    faults |= (f4 << 1 | debt.below_90) & at_least_90;
    debt.from_a0 = e0 >> 63;
    debt.below_a0 = ed >> 63;
    debt.from_90 = f0 >> 63;
    debt.below_90 = f4 >> 63;
  }
  return faults | (due ^ (high & ~lead));
}

/// The 64 bytes of a text at `base`; at its end they are copied to `last` and padded with spaces.
RX_INLINE const uint8_t *block_at(const uint8_t *text, size_t length, size_t base, uint8_t *last) {
  if (__builtin_expect(length - base >= 64, true)) return text + base;
  memset(last, ' ', 64);
  memcpy(last, text + base, length - base);
  return last;
}

/// State that is needed only when something is found, and is therefore not kept in registers.
struct findings {
  rx_line *row;  ///< the next one to be written
  rx_line *rows_end;
  size_t count = 0;
  uint32_t line = 0;      ///< where the line begins
  uint32_t first = 0;     ///< its first token
  uint64_t was_low = 0;   ///< 1: the byte before closed the outermost bracket
  uint64_t was_feed = 1;  ///< 1: the byte before was a line feed
};

/// Defines `name`, which implements `scan_pass_through`, and `name##_utf8`, its last step. The latter checks only the
/// noted places with non-ASCII bytes, so that the first pass has no branch that depends on the text except at the ends
/// of lines.
#define RX_VERBATIM(name, attributes, parity, put, lows)                                                     \
  attributes bool name##_utf8(const uint8_t *text, size_t length, const uint32_t *at, const uint32_t *end) { \
    utf8_debt debt;                                                                                          \
    uint64_t faults = 0;                                                                                     \
    for (uint32_t next = 0; at < end; next = *at++ + 64) {                                                   \
      if (*at != next) debt = {};                                                                            \
      uint8_t last[64];                                                                                      \
      faults |= utf8_faults(block_at(text, length, *at, last), debt);                                        \
    }                                                                                                        \
    return faults == 0;                                                                                      \
  }                                                                                                          \
                                                                                                             \
  template <bool keeps> attributes bool name(rx_lines &lines, size_t length) {                               \
    const uint8_t *const text = lines.text;                                                                  \
    uint32_t *const tokens = lines.tokens;                                                                   \
    uint32_t *out = tokens;                                                                                  \
    uint64_t *backslashes = lines.backslashes;                                                               \
    uint32_t *high_out = lines.highs;                                                                        \
    uint64_t was_high = 0;                                                                                   \
    uint64_t in_string = 0; /* all ones: the 64 bytes begin inside a string */                               \
    uint64_t escaped = 0;   /* 1: the first of them is escaped */                                            \
    int32_t depth = 0;                                                                                       \
    findings now;                                                                                            \
    now.row = lines.rows;                                                                                    \
    now.rows_end = lines.rows + lines.row_capacity;                                                          \
    for (size_t base = 0; base < length; base += 64) {                                                       \
      uint8_t last[64];                                                                                      \
      const uint8_t *from = block_at(text, length, base, last);                                              \
      block64 bytes;                                                                                         \
      memcpy(&bytes, from, sizeof bytes);                                                                    \
      const block64 lower = bytes | 0x20;                                                                    \
      const uint64_t backslash = RX_BITS(bytes == '\\');                                                     \
      if (keeps) *backslashes++ = backslash;                                                                 \
      const uint64_t quote = RX_BITS(bytes == '"') & ~hidden(backslash, escaped);                            \
      const uint64_t inside = parity(quote) ^ in_string;                                                     \
      in_string = static_cast<uint64_t>(static_cast<int64_t>(inside) >> 63);                                 \
      const uint64_t control = RX_BITS(bytes < 0x20);                                                        \
      const uint64_t open = RX_BITS(lower == '{') & ~inside;                                                 \
      const uint64_t close = RX_BITS(lower == '}') & ~inside;                                                \
      const uint64_t high = RX_BITS((bytes & 0x80) != 0);                                                    \
      *high_out = static_cast<uint32_t>(base);                                                               \
      high_out += (high | was_high) != 0;                                                                    \
      was_high = high >> 61;                                                                                 \
      const uint64_t wanted = open | close | (RX_BITS(bytes == ':') & ~inside) | control;                    \
      const int closed = __builtin_popcountll(close);                                                        \
      if (__builtin_expect((depth <= closed) | (control != 0), false)) {                                     \
        /* A line feed after each bracket that closes a document, and nowhere else; an opening bracket       \
           after each line feed. */                                                                          \
        const uint64_t low = lows(open, close, depth);                                                       \
        const uint64_t feed = RX_BITS(bytes == '\n');                                                        \
        const uint64_t live = length - base < 64 ? (uint64_t{1} << (length - base)) - 1 : ~uint64_t{0};      \
        const uint64_t lost = (low << 1 | now.was_low) ^ feed;                                               \
        const uint64_t loose = (feed << 1 | now.was_feed) & ~open;                                           \
        if (((lost | loose) & live) | (control ^ feed) | (feed & inside)) return false;                      \
        now.was_low = low >> 63;                                                                             \
        now.was_feed = feed >> 63;                                                                           \
        if (keeps && now.rows_end - now.row < 64) {                                                          \
          if (!grow_rows(lines)) return false;                                                               \
          now.row = lines.rows + now.count;                                                                  \
          now.rows_end = lines.rows + lines.row_capacity;                                                    \
        }                                                                                                    \
        for (uint64_t rest = feed; rest; rest &= rest - 1) {                                                 \
          const auto place = static_cast<uint32_t>(base) + static_cast<uint32_t>(__builtin_ctzll(rest));     \
          /* The bracket that was opened first is the one that was closed last. */                           \
          if (text[place - 1] != text[now.line] + 2) return false;                                           \
          if (keeps) {                                                                                       \
            *now.row++ = {now.line, place, now.line, place, now.first};                                      \
            now.first = static_cast<uint32_t>(out - tokens)                                                  \
              + static_cast<uint32_t>(__builtin_popcountll(wanted & (rest ^ (rest - 1))));                   \
          }                                                                                                  \
          now.line = place + 1;                                                                              \
          now.count++;                                                                                       \
        }                                                                                                    \
      }                                                                                                      \
      if (keeps) out = put(out, static_cast<uint32_t>(base), wanted);                                        \
      depth += __builtin_popcountll(open) - closed;                                                          \
    }                                                                                                        \
    if (in_string || now.line != length) return false;                                                       \
    lines.row_count = now.count;                                                                             \
    const auto highs = static_cast<size_t>(high_out - lines.highs);                                          \
    if (highs > length / 256) return simdjson::validate_utf8(reinterpret_cast<const char *>(text), length);  \
    return name##_utf8(text, length, lines.highs, high_out);                                                 \
  }

RX_VERBATIM(scan_plainly, , parity_by_shifts, put_by_bits, lows_by_bits)

#if defined(__x86_64__)
#define RX_FOR_AVX2 __attribute__((target(RX_AVX2)))
RX_VERBATIM(scan_avx2, RX_FOR_AVX2, parity_by_product, put_by_bits, lows_by_bits)

#define RX_FOR_AVX512 __attribute__((target(RX_AVX512), min_vector_width(512)))
RX_VERBATIM(scan_avx512, RX_FOR_AVX512, parity_by_product, put_by_compression, lows_by_sums)
#endif

typedef bool (*scanner)(rx_lines &lines, size_t length);

template <bool keeps> scanner scanner_for(processor what) {
#if defined(__x86_64__)
  if (what == processor::avx512) return scan_avx512<keeps>;
  if (what == processor::avx2) return scan_avx2<keeps>;
#endif
  return scan_plainly<keeps>;
}

std::atomic<scanner> keeping{scanner_for<true>(this_processor())};
std::atomic<scanner> counting{scanner_for<false>(this_processor())};

}  // namespace

namespace rx_json {

bool scan_pass_through(rx_lines &lines, size_t length, bool keeps) {
  return (keeps ? keeping : counting).load(std::memory_order_relaxed)(lines, length);
}

void scan_pass_through_for(processor what) {
  keeping.store(scanner_for<true>(what), std::memory_order_relaxed);
  counting.store(scanner_for<false>(what), std::memory_order_relaxed);
}

}  // namespace rx_json
