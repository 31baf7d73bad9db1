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

size_t rx_json_minify(const char *text, size_t length, char *target) {
  size_t count = 0;
  if (simdjson::minify(text, length, target, count)) {
    memcpy(target, text, length);
    return length;
  }
  return count;
}

size_t rx_json_write_double(double number, char *target) {
  char digits[32];
  const auto written = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific);
  // "-d.ddde-xx": take the digits and the exponent apart.
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
  // As JavaScript does: plain digits from 1e-6 up to 1e21.
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
  return std::to_chars(target, target + 20, number).ptr - target;
}

size_t rx_json_write_uint(uint64_t number, char *target) {
  return std::to_chars(target, target + 20, number).ptr - target;
}

}  // extern "C"
