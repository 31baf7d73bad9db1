// Writing JSON text: strings, numbers, documents without white space.
#include <simdjson.h>

#include <charconv>
#include <cstring>

#include "rx_json.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

/// Whether any of eight bytes is a control character, a quote or a backslash.
inline bool needs_escape(uint64_t word) {
  constexpr uint64_t ones = 0x0101010101010101u;
  const uint64_t quote = word ^ ones * '"';
  const uint64_t backslash = word ^ ones * '\\';
  return (((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash))
    & ones * 0x80;
}

/// The two digits of each number below 100.
struct pair_table {
  char digits[200] = {};
  constexpr pair_table() {
    for (int i = 0; i < 100; i++) {
      digits[2 * i] = static_cast<char>('0' + i / 10);
      digits[2 * i + 1] = static_cast<char>('0' + i % 10);
    }
  }
};
constexpr pair_table pairs;

/// Writes a number below 10^8 as eight digits, with leading zeros.
inline void write_eight(uint32_t number, char *target) {
  const uint32_t high = number / 10000;
  const uint32_t low = number % 10000;
  memcpy(target, pairs.digits + high / 100 * 2, 2);
  memcpy(target + 2, pairs.digits + high % 100 * 2, 2);
  memcpy(target + 4, pairs.digits + low / 100 * 2, 2);
  memcpy(target + 6, pairs.digits + low % 100 * 2, 2);
}

/// Writes a number below 10^8 without leading zeros; returns the number of digits.
inline size_t write_few(uint32_t number, char *target) {
  char eight[8];
  write_eight(number, eight);
  size_t zeros = 0;
  while (zeros < 7 && eight[zeros] == '0') zeros++;
  memcpy(target, eight + zeros, 8 - zeros);
  return 8 - zeros;
}

/// Writes at most 20 bytes.
inline size_t write_digits(uint64_t number, char *target) {
  constexpr uint64_t eight = 100'000'000;
  if (number < 100) {
    if (number >= 10) {
      memcpy(target, pairs.digits + number * 2, 2);
      return 2;
    }
    *target = static_cast<char>('0' + number);
    return 1;
  }
  if (number < eight) return write_few(static_cast<uint32_t>(number), target);
  const uint64_t high = number / eight;
  size_t count;
  if (high < eight) {
    count = write_few(static_cast<uint32_t>(high), target);
  } else {
    count = write_few(static_cast<uint32_t>(high / eight), target);
    write_eight(static_cast<uint32_t>(high % eight), target + count);
    count += 8;
  }
  write_eight(static_cast<uint32_t>(number % eight), target + count);
  return count + 8;
}

/// Writes a number with at most fifteen digits, six of them after the point, as most numbers are; returns 0 for any
/// other.
///
/// Different decimals of up to fifteen digits are different doubles. So if a decimal reads back as `number`, no shorter
/// one does, apart from trailing zeros.
inline size_t write_decimal(double number, char *target) {
  const double scaled = number * 1e6;
  if (!(scaled > -1e15 && scaled < 1e15)) return 0;
  const auto whole = static_cast<int64_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  // Both sides of the division are exact, so the quotient is the double nearest to the decimal.
  if (static_cast<double>(whole) / 1e6 != number || whole == 0) return 0;
  char *out = target;
  if (whole < 0) *out++ = '-';
  const uint64_t digits = whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
  out += write_digits(digits / 1'000'000, out);
  char fraction[8];
  write_eight(static_cast<uint32_t>(digits % 1'000'000 * 100), fraction);
  size_t count = 6;
  while (count > 1 && fraction[count - 1] == '0') count--;
  *out++ = '.';
  memcpy(out, fraction, 6);
  return out + count - target;
}

}  // namespace

extern "C" {

size_t rx_json_copy_plain(const char *text, size_t length, char *target) {
  size_t at = 0;
#if defined(__SSE2__)
  if (length >= 16) {
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');
    const __m128i highest = _mm_set1_epi8(0x1F);
    while (true) {
      const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i *>(text + at));
      const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(block, highest), block);
      const int mask = _mm_movemask_epi8(_mm_or_si128(
        control, _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash))));
      _mm_storeu_si128(reinterpret_cast<__m128i *>(target + at), block);
      if (mask) return at + __builtin_ctz(mask);
      at += 16;
      if (at == length) return length;
      // The last block may overlap the one before.
      if (at + 16 > length) at = length - 16;
    }
  }
#endif
  while (length - at >= 8) {
    uint64_t word;
    memcpy(&word, text + at, 8);
    memcpy(target + at, &word, 8);
    if (needs_escape(word)) break;
    at += 8;
  }
  if (length - at >= 4 && length - at < 8) {
    uint32_t first;
    uint32_t last;
    memcpy(&first, text + at, 4);
    memcpy(&last, text + length - 4, 4);
    if (!needs_escape(uint64_t{last} << 32 | first)) {
      memcpy(target + at, &first, 4);
      memcpy(target + length - 4, &last, 4);
      return length;
    }
  }
  for (; at < length; at++) {
    const auto c = static_cast<uint8_t>(text[at]);
    if (c < 0x20 || c == '"' || c == '\\') break;
    target[at] = text[at];
  }
  return at;
}

unsigned char rx_json_least_byte(const char *text, size_t length) {
  unsigned char least = 0xFF;
  for (size_t at = 0; at < length; at++) {
    const auto byte = static_cast<unsigned char>(text[at]);
    least = byte < least ? byte : least;
  }
  return least;
}

size_t rx_json_minify(const char *text, size_t length, char *target) {
  size_t count = 0;
  if (simdjson::minify(text, length, target, count)) {
    memcpy(target, text, length);
    return length;
  }
  return count;
}

size_t rx_json_write_double(double number, char *target) {
  if (const size_t count = write_decimal(number, target)) return count;
  char digits[32];
  const auto written = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific);
  // Splits "-d.ddde-xx" into digits and exponent.
  const char *at = digits;
  char *out = target;
  if (*at == '-') *out++ = *at++;
  char mantissa[24];
  int count = 0;
  for (; at < written.ptr && *at != 'e'; at++) {
    if (*at != '.') mantissa[count++] = *at;
  }
  int exponent = 0;
  if (at < written.ptr) {
    at++;
    const bool below = *at == '-';
    std::from_chars(at + 1, written.ptr, exponent);
    if (below) exponent = -exponent;
  }
  // Like JavaScript: plain digits from 1e-6 up to 1e21.
  if (exponent >= 21 || exponent < -6) {
    *out++ = mantissa[0];
    if (count > 1) {
      *out++ = '.';
      memcpy(out, mantissa + 1, count - 1);
      out += count - 1;
    }
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    return std::to_chars(out, out + 4, exponent < 0 ? -exponent : exponent).ptr - target;
  }
  if (exponent < 0) {
    *out++ = '0';
    *out++ = '.';
    for (int i = -1; i > exponent; i--) *out++ = '0';
    memcpy(out, mantissa, count);
    return out + count - target;
  }
  for (int i = 0; i <= exponent; i++) *out++ = i < count ? mantissa[i] : '0';
  *out++ = '.';
  if (count <= exponent + 1) {
    *out++ = '0';
  } else {
    memcpy(out, mantissa + exponent + 1, count - exponent - 1);
    out += count - exponent - 1;
  }
  return out - target;
}

size_t rx_json_write_int(int64_t number, char *target) {
  if (number >= 0) return write_digits(static_cast<uint64_t>(number), target);
  *target = '-';
  return 1 + write_digits(~static_cast<uint64_t>(number) + 1, target + 1);
}

size_t rx_json_write_uint(uint64_t number, char *target) { return write_digits(number, target); }

}  // extern "C"
