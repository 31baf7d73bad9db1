// Numbers and literals of JSON text.
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "rx_json_text.h"

namespace rx_json {

namespace {

const double powers_of_ten[] = {
  1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

const uint64_t natural_powers_of_ten[] = {1, 10, 100, 1'000, 10'000, 100'000, 1'000'000, 10'000'000};

/// The number made of eight digit values, the first one in the lowest byte.
inline uint64_t of_eight(uint64_t digits) {
  // Combines neighbours: digits to pairs, pairs to fours, fours to all eight.
  digits = (digits * (1 + (10 << 8))) >> 8;
  digits = ((digits & 0x00FF00FF00FF00FFu) * (1 + (uint64_t{100} << 16))) >> 16;
  return ((digits & 0x0000FFFF0000FFFFu) * (1 + (uint64_t{10000} << 32))) >> 32;
}

/// Appends the digits at `at` to `number`, which wraps; returns the position after them.
inline const uint8_t *read_digits(const uint8_t *at, const uint8_t *end, uint64_t &number) {
  while (end - at >= 8) {
    uint64_t bytes;
    memcpy(&bytes, at, 8);
    bytes ^= 0x3030303030303030u;
    // The lowest set high bit is that of the first byte that is not a digit; carries only affect later bytes.
    const uint64_t others = (bytes | (bytes + 0x7676767676767676u)) & 0x8080808080808080u;
    if (others) {
      const int count = __builtin_ctzll(others) / 8;
      if (count) number = number * natural_powers_of_ten[count] + of_eight(bytes << (64 - 8 * count));
      return at + count;
    }
    number = number * 100'000'000 + of_eight(bytes);
    at += 8;
  }
  while (at < end && is_digit(*at)) number = number * 10 + (*at++ - '0');
  return at;
}

/// The value of a number that the standard library reports as out of range: infinity or zero. `integral`: the number of
/// digits before the point, without leading zeros; `zeros`: the number of zeros directly after the point.
double beyond(bool negative, int64_t integral, int64_t zeros, int64_t exponent) {
  const int64_t magnitude = integral > 0 ? integral + exponent : exponent - zeros;
  const double value = magnitude > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  return negative ? -value : value;
}

}  // namespace

const uint8_t *read_number(const uint8_t *at, const uint8_t *end, rx_value &value) {
  const uint8_t *const start = at;
  const bool negative = at < end && *at == '-';
  if (negative) at++;
  const uint8_t *const digits = at;
  uint64_t mantissa = 0;
  at = read_digits(at, end, mantissa);
  const size_t integral = at - digits;
  if (integral == 0 || (integral > 1 && *digits == '0')) return nullptr;
  if (at == end || (*at != '.' && *at != 'e' && *at != 'E')) {
    // Nineteen digits fit into 64 bits.
    if (integral <= 18 || (integral == 19 && mantissa <= INT64_MAX)) {
      if (negative) {
        value = mantissa == 0
          ? make_double(uint64_t{1} << 63, start, at - start)
          : make(RX_INT, ~mantissa + 1);
      } else {
        value = make(RX_INT, mantissa);
      }
      return at;
    }
    const char *const from = reinterpret_cast<const char *>(start);
    const char *const to = reinterpret_cast<const char *>(at);
    int64_t whole;
    if (std::from_chars(from, to, whole).ec == std::errc()) {
      value = make(RX_INT, static_cast<uint64_t>(whole));
      return at;
    }
    uint64_t natural;
    if (!negative && std::from_chars(from, to, natural).ec == std::errc()) {
      value = make(RX_UINT, natural);
      return at;
    }
  }
  size_t count = integral;
  int64_t exponent = 0;
  const uint8_t *const point = at;
  if (at < end && *at == '.') {
    at++;
    const uint8_t *const fraction = at;
    at = read_digits(at, end, mantissa);
    if (at == fraction) return nullptr;
    count += at - fraction;
    exponent = -(at - fraction);
    if (count <= 15 && (at == end || (*at | 0x20) != 'e')) {
      // Both operands are exact, so the one rounding of the operation is the right one.
      const double number = static_cast<double>(static_cast<int64_t>(mantissa)) / powers_of_ten[at - fraction];
      uint64_t bits;
      memcpy(&bits, &number, sizeof bits);
      bits |= static_cast<uint64_t>(negative) << 63;
      // The writer produces the same bytes, unless the text has an extra trailing zero, or the writer would use an
      // exponent, below 1e-6.
      const bool is_usual = (at[-1] != '0' || at - fraction == 1) && (number >= 1e-6 || mantissa == 0);
      value = is_usual ? make(RX_DOUBLE, bits) : make_double(bits, start, at - start);
      return at;
    }
  }
  int64_t written = 0;
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    bool below = false;
    if (at < end && (*at == '+' || *at == '-')) below = *at++ == '-';
    const uint8_t *const first = at;
    while (at < end && is_digit(*at)) {
      if (written < 1'000'000'000) written = written * 10 + (*at - '0');
      at++;
    }
    if (at == first) return nullptr;
    if (below) written = -written;
    exponent += written;
  }
  double number;
  // Both operands are exact, so the one rounding of the operation is the right one.
  if (count <= 18 && mantissa <= (uint64_t{1} << 53) && exponent >= -22 && exponent <= 22) {
    number = static_cast<double>(mantissa);
    number = exponent < 0 ? number / powers_of_ten[-exponent] : number * powers_of_ten[exponent];
    if (negative) number = -number;
  } else {
    const auto result = std::from_chars(
      reinterpret_cast<const char *>(start), reinterpret_cast<const char *>(at), number);
    if (result.ec != std::errc()) {
      const bool none = *digits == '0';
      int64_t zeros = 0;
      if (point < at && *point == '.') {
        while (point + 1 + zeros < at && point[1 + zeros] == '0') zeros++;
      }
      number = beyond(negative, none ? 0 : static_cast<int64_t>(integral), zeros, written);
    }
  }
  // Refused, because neither the value nor the text could be kept: writing it would give a different value.
  if (at - start > RX_TEXT_LIMIT && std::isinf(number)) return nullptr;
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  value = make_double(bits, start, at - start);
  return at;
}

const uint8_t *read_literal(const uint8_t *at, const uint8_t *end, rx_value &value) {
  const size_t left = end - at;
  if (left >= 4 && memcmp(at, "true", 4) == 0) {
    value = make(RX_BOOL, 1);
    return at + 4;
  }
  if (left >= 5 && memcmp(at, "false", 5) == 0) {
    value = make(RX_BOOL, uint64_t{0});
    return at + 5;
  }
  if (left >= 4 && memcmp(at, "null", 4) == 0) {
    value = make(RX_NULL, uint64_t{0});
    return at + 4;
  }
  return nullptr;
}

}  // namespace rx_json
