// Reads parts of documents from left to right without an index: strings, one member of an object, and the position of
// the first fault.
#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "rx_json.h"
#include "rx_json_text.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace rx_json {

// MARK: Strings

namespace {

/// The value of four hexadecimal digits, or -1.
int32_t hexadecimal(const uint8_t *at, const uint8_t *end) {
  if (end - at < 4) return -1;
  int32_t value = 0;
  for (int i = 0; i < 4; i++) {
    const uint8_t c = at[i];
    const int32_t digit = is_digit(c) ? c - '0'
      : static_cast<uint8_t>((c | 0x20) - 'a') < 6 ? (c | 0x20) - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

char *put_scalar(uint32_t scalar, char *target) {
  if (scalar < 0x80) {
    *target++ = static_cast<char>(scalar);
  } else if (scalar < 0x800) {
    *target++ = static_cast<char>(0xC0 | scalar >> 6);
    *target++ = static_cast<char>(0x80 | (scalar & 0x3F));
  } else if (scalar < 0x10000) {
    *target++ = static_cast<char>(0xE0 | scalar >> 12);
    *target++ = static_cast<char>(0x80 | (scalar >> 6 & 0x3F));
    *target++ = static_cast<char>(0x80 | (scalar & 0x3F));
  } else {
    *target++ = static_cast<char>(0xF0 | scalar >> 18);
    *target++ = static_cast<char>(0x80 | (scalar >> 12 & 0x3F));
    *target++ = static_cast<char>(0x80 | (scalar >> 6 & 0x3F));
    *target++ = static_cast<char>(0x80 | (scalar & 0x3F));
  }
  return target;
}

/// The first quote or backslash at or after `at`, or `end`.
inline const uint8_t *quote_or_backslash(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  while (end - at >= 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
    const int mask = _mm_movemask_epi8(
      _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)));
    if (mask) return at + __builtin_ctz(mask);
    at += 16;
  }
#endif
  while (at < end && *at != '"' && *at != '\\') at++;
  return at;
}

/// The closing quote of the string whose content begins at `at`, or null.
inline const uint8_t *closing_quote(const uint8_t *at, const uint8_t *end, bool &escaped) {
  escaped = false;
  while (true) {
    at = quote_or_backslash(at, end);
    if (at == end) return nullptr;
    if (*at == '"') return at;
    escaped = true;
    if (end - at < 2) return nullptr;
    at += 2;
  }
}

/// The byte after the container that begins at `at`, or null.
const uint8_t *container_end(const uint8_t *at, const uint8_t *end) {
  int64_t depth = 0;
  bool escaped;
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i bit = _mm_set1_epi8(0x20);
  const __m128i open = _mm_set1_epi8('{');
  const __m128i close = _mm_set1_epi8('}');
  while (end - at >= 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
    const __m128i lower = _mm_or_si128(block, bit);
    int mask = _mm_movemask_epi8(_mm_or_si128(
      _mm_cmpeq_epi8(block, quote),
      _mm_or_si128(_mm_cmpeq_epi8(lower, open), _mm_cmpeq_epi8(lower, close))));
    const uint8_t *next = at + 16;
    while (mask) {
      const uint8_t *found = at + __builtin_ctz(mask);
      mask &= mask - 1;
      if (*found == '"') {
        const uint8_t *quoted = closing_quote(found + 1, end, escaped);
        if (!quoted) return nullptr;
        next = quoted + 1;
        if (next >= at + 16) break;
        // The string ended within this block: ignores the marks inside it.
        mask &= ~0u << (next - at);
        next = at + 16;
        continue;
      }
      depth += (*found | 0x20) == '{' ? 1 : -1;
      if (depth <= 0) return depth == 0 ? found + 1 : nullptr;
    }
    at = next;
  }
#endif
  while (at < end) {
    const uint8_t c = *at;
    if (c == '"') {
      at = closing_quote(at + 1, end, escaped);
      if (!at) return nullptr;
    } else if ((c | 0x20) == '{') {
      depth++;
    } else if ((c | 0x20) == '}') {
      if (--depth <= 0) return depth == 0 ? at + 1 : nullptr;
    }
    at++;
  }
  return nullptr;
}

rx_value failed(size_t offset, uint32_t reason, bool at_end) {
  return rx_value{offset, RX_ERROR, static_cast<uint8_t>(at_end), RX_ERROR_JSON, reason};
}

/// Reads the parts of one container, from left to right.
struct reader {
  const uint8_t *const start;
  const uint8_t *const end;
  const uint8_t *at;

  void skip_white() {
    while (at < end && is_white(*at)) at++;
  }

  rx_value fail(uint32_t reason) const {
    return failed(at - start, reason, at == end);
  }

  /// Reads one value and moves past it. The content of a value that is only skipped is not checked.
  rx_value read(bool wanted) {
    if (at == end) return fail(RX_JSON_EXPECTED_VALUE);
    const uint8_t *const first = at;
    switch (*at) {
      case '"': {
        bool escaped;
        const uint8_t *stop = closing_quote(at + 1, end, escaped);
        if (!stop) return fail(RX_JSON_UNCLOSED_STRING);
        at = stop + 1;
        return make(RX_STRING, first + 1, stop - first - 1, escaped ? RX_ESCAPED : 0);
      }
      case '{': case '[': {
        const uint8_t *stop = container_end(at, end);
        if (!stop) {
          return fail(*at == '{' ? RX_JSON_EXPECTED_COMMA_OR_BRACE : RX_JSON_EXPECTED_COMMA_OR_BRACKET);
        }
        at = stop;
        return make(*first == '{' ? RX_JSON_MAP : RX_JSON_LIST, first, stop - first);
      }
      default: {
        if (!wanted) {
          while (at < end && !is_delimiter(*at)) at++;
          if (at == first) return fail(RX_JSON_EXPECTED_VALUE);
          return rx_value{};
        }
        rx_value value;
        const bool word = *at == 't' || *at == 'f' || *at == 'n';
        const uint8_t *stop = word ? read_literal(at, end, value) : read_number(at, end, value);
        if (!stop || (stop < end && !is_delimiter(*stop))) {
          return fail(*at == '-' || is_digit(*at) ? RX_JSON_BAD_NUMBER : RX_JSON_EXPECTED_VALUE);
        }
        at = stop;
        return value;
      }
    }
  }
};

bool equal_key(const uint8_t *inside, size_t length, bool escaped, const char *key, size_t key_length) {
  if (!escaped) return length == key_length && memcmp(inside, key, length) == 0;
  if (length < key_length) return false;
  char fixed[256];
  std::string heap;
  char *target = fixed;
  if (length > sizeof fixed) {
    heap.resize(length);
    target = &heap[0];
  }
  const size_t count = rx_json_unescape(reinterpret_cast<const char *>(inside), length, target);
  return count == key_length && memcmp(target, key, count) == 0;
}

}  // namespace

bool valid_escapes(const uint8_t *at, const uint8_t *end) {
  while (true) {
    at = static_cast<const uint8_t *>(memchr(at, '\\', end - at));
    if (!at) return true;
    if (end - at < 2) return false;
    switch (at[1]) {
      case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        at += 2;
        break;
      case 'u':
        if (hexadecimal(at + 2, end) < 0) return false;
        at += 6;
        break;
      default:
        return false;
    }
  }
}

// MARK: The first fault

namespace {

/// The length of the UTF-8 sequence at `at`, or 0 if there is none.
size_t sequence_length(const uint8_t *at, const uint8_t *end) {
  const uint8_t c = *at;
  const auto follows = [&](size_t i, uint8_t low, uint8_t high) {
    return end - at > static_cast<ptrdiff_t>(i) && at[i] >= low && at[i] <= high;
  };
  if (c < 0x80) return 1;
  if (c < 0xC2) return 0;
  if (c < 0xE0) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (c < 0xF0) {
    const uint8_t low = c == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = c == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (c < 0xF5) {
    const uint8_t low = c == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = c == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

/// Moves past the string that begins at `at`. On an error, returns the reason, and `at` is its position.
uint32_t check_string(const uint8_t *&at, const uint8_t *end) {
  const uint8_t *const quote = at++;
  while (at < end) {
    const uint8_t c = *at;
    if (c == '"') {
      at++;
      return RX_JSON_OK;
    }
    if (c == '\\') {
      if (end - at < 2) break;
      const uint8_t kind = at[1];
      if (kind == 'u') {
        if (hexadecimal(at + 2, end) < 0) return RX_JSON_BAD_ESCAPE;
        at += 6;
      } else if (kind != 0 && strchr("\"\\/bfnrt", kind)) {
        at += 2;
      } else {
        return RX_JSON_BAD_ESCAPE;
      }
    } else if (c < 0x20) {
      return RX_JSON_CONTROL_CHARACTER;
    } else {
      const size_t count = sequence_length(at, end);
      if (count == 0) return RX_JSON_BAD_UTF8;
      at += count;
    }
  }
  at = quote;
  return RX_JSON_UNCLOSED_STRING;
}

}  // namespace

rx_json_failure locate_failure(const uint8_t *text, size_t length, rx_json_limits limits) {
  const uint8_t *at = text;
  const uint8_t *const end = text + length;
  const auto fail = [&](uint32_t reason) {
    return rx_json_failure{static_cast<uint64_t>(at - text), reason, at == end};
  };
  const auto skip = [&] {
    while (at < end && is_white(*at)) at++;
  };
  const auto expected = [&](uint32_t reason) {
    if (at < end && *at >= 0x80 && sequence_length(at, end) == 0) reason = RX_JSON_BAD_UTF8;
    return fail(reason);
  };
  constexpr uint32_t deepest = 1024;
  const uint32_t depth_limit = limits.depth < deepest ? limits.depth : deepest;
  bool maps[deepest + 1];
  uint32_t depth = 0;
  uint32_t fields = 0;
  rx_value ignored;

  skip();
  if (at == end) return fail(RX_JSON_EMPTY);

value:
  skip();
  if (at == end) return fail(RX_JSON_EXPECTED_VALUE);
  switch (*at) {
    case '"': {
      const uint32_t reason = check_string(at, end);
      if (reason) return fail(reason);
      break;
    }
    case '{':
      if (depth == depth_limit) return fail(RX_JSON_TOO_DEEP);
      maps[++depth] = true;
      at++;
      skip();
      if (at < end && *at == '}') goto close;
      if (at == end || *at != '"') return expected(RX_JSON_EXPECTED_KEY_OR_END);
      goto key;
    case '[':
      if (depth == depth_limit) return fail(RX_JSON_TOO_DEEP);
      maps[++depth] = false;
      at++;
      skip();
      if (at < end && *at == ']') goto close;
      goto value;
    case 't': case 'f': case 'n': {
      const uint8_t *stop = read_literal(at, end, ignored);
      if (!stop || (stop < end && !is_delimiter(*stop))) return fail(RX_JSON_EXPECTED_VALUE);
      at = stop;
      break;
    }
    default: {
      if (*at != '-' && !is_digit(*at)) return expected(RX_JSON_EXPECTED_VALUE);
      const uint8_t *stop = read_number(at, end, ignored);
      if (!stop || (stop < end && !is_delimiter(*stop))) return fail(RX_JSON_BAD_NUMBER);
      at = stop;
    }
  }

finished:
  skip();
  if (depth == 0) return at == end ? rx_json_failure{0, RX_JSON_OK, false} : expected(RX_JSON_EXPECTED_END);
  if (maps[depth]) {
    if (at == end) return fail(RX_JSON_EXPECTED_COMMA_OR_BRACE);
    if (*at == '}') goto close;
    if (*at != ',') return expected(RX_JSON_EXPECTED_COMMA_OR_BRACE);
    at++;
    skip();
    goto key;
  }
  if (at == end) return fail(RX_JSON_EXPECTED_COMMA_OR_BRACKET);
  if (*at == ']') goto close;
  if (*at != ',') return expected(RX_JSON_EXPECTED_COMMA_OR_BRACKET);
  at++;
  goto value;

key: {
  if (at == end || *at != '"') return expected(RX_JSON_EXPECTED_KEY);
  const uint8_t *const quote = at;
  const uint32_t reason = check_string(at, end);
  if (reason) return fail(reason);
  skip();
  if (at == end || *at != ':') return expected(RX_JSON_EXPECTED_COLON);
  if (++fields > limits.fields) {
    at = quote;
    return fail(RX_JSON_TOO_MANY_FIELDS);
  }
  at++;
  goto value;
}

close:
  at++;
  depth--;
  goto finished;
}

}  // namespace rx_json

using namespace rx_json;

static const uint8_t *bytes(const char *text) { return reinterpret_cast<const uint8_t *>(text); }

extern "C" {

bool rx_json_validate_plainly(
  const char *text, size_t length, rx_json_limits limits, rx_json_failure *failure
) {
  *failure = locate_failure(bytes(text), length, limits);
  return failure->reason == RX_JSON_OK;
}

// MARK: Parts of containers

rx_value rx_json_find(const char *text, size_t length, const char *key, size_t key_length) {
  reader r{bytes(text), bytes(text) + length, bytes(text)};
  r.skip_white();
  if (r.at == r.end || *r.at != '{') return r.fail(RX_JSON_EXPECTED_VALUE);
  r.at++;
  r.skip_white();
  if (r.at < r.end && *r.at == '}') return rx_value{};
  while (true) {
    if (r.at == r.end || *r.at != '"') return r.fail(RX_JSON_EXPECTED_KEY);
    bool escaped;
    const uint8_t *const inside = r.at + 1;
    const uint8_t *const stop = closing_quote(inside, r.end, escaped);
    if (!stop) return r.fail(RX_JSON_UNCLOSED_STRING);
    r.at = stop + 1;
    r.skip_white();
    if (r.at == r.end || *r.at != ':') return r.fail(RX_JSON_EXPECTED_COLON);
    r.at++;
    r.skip_white();
    const bool wanted = equal_key(inside, stop - inside, escaped, key, key_length);
    const rx_value value = r.read(wanted);
    if (wanted || value.kind == RX_ERROR) return value;
    r.skip_white();
    if (r.at < r.end && *r.at == '}') return rx_value{};
    if (r.at == r.end || *r.at != ',') return r.fail(RX_JSON_EXPECTED_COMMA_OR_BRACE);
    r.at++;
    r.skip_white();
  }
}

rx_value rx_json_element(const char *text, size_t length, size_t index) {
  reader r{bytes(text), bytes(text) + length, bytes(text)};
  r.skip_white();
  if (r.at == r.end || *r.at != '[') return r.fail(RX_JSON_EXPECTED_VALUE);
  r.at++;
  r.skip_white();
  if (r.at < r.end && *r.at == ']') return rx_value{};
  while (true) {
    const rx_value value = r.read(index == 0);
    if (index == 0 || value.kind == RX_ERROR) return value;
    index--;
    r.skip_white();
    if (r.at < r.end && *r.at == ']') return rx_value{};
    if (r.at == r.end || *r.at != ',') return r.fail(RX_JSON_EXPECTED_COMMA_OR_BRACKET);
    r.at++;
    r.skip_white();
  }
}

size_t rx_json_document_end(const char *text, size_t length, size_t start) {
  const uint8_t *const end = bytes(text) + length;
  const uint8_t *at = bytes(text) + start;
  if (at >= end) return 0;
  if (*at == '{' || *at == '[') {
    at = container_end(at, end);
  } else if (*at == '"') {
    bool escaped;
    at = closing_quote(at + 1, end, escaped);
    if (at) at++;
  } else {
    const uint8_t *const first = at;
    while (at < end && !is_delimiter(*at)) at++;
    if (at == first) return 0;
  }
  return at ? at - bytes(text) : 0;
}

// MARK: Scalars

bool rx_json_number(const char *text, size_t length, rx_value *value) {
  return read_number(bytes(text), bytes(text) + length, *value) == bytes(text) + length;
}

size_t rx_json_unescape(const char *text, size_t length, char *target) {
  const uint8_t *at = bytes(text);
  const uint8_t *const end = at + length;
  char *const start = target;
  while (at < end) {
    const auto *stop = static_cast<const uint8_t *>(memchr(at, '\\', end - at));
    const size_t plain = (stop ? stop : end) - at;
    memcpy(target, at, plain);
    target += plain;
    at += plain;
    if (!stop) break;
    const uint8_t kind = end - at >= 2 ? at[1] : 0;
    switch (kind) {
      case '"': case '\\': case '/': *target++ = static_cast<char>(kind); break;
      case 'b': *target++ = '\b'; break;
      case 'f': *target++ = '\f'; break;
      case 'n': *target++ = '\n'; break;
      case 'r': *target++ = '\r'; break;
      case 't': *target++ = '\t'; break;
      case 'u': {
        const int32_t unit = hexadecimal(at + 2, end);
        if (unit < 0) {
          *target++ = static_cast<char>(*at++);
          continue;
        }
        at += 6;
        if (unit < 0xD800 || unit > 0xDFFF) {
          target = put_scalar(static_cast<uint32_t>(unit), target);
          continue;
        }
        if (unit < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
          const int32_t low = hexadecimal(at + 2, end);
          if (low >= 0xDC00 && low <= 0xDFFF) {
            target = put_scalar(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), target);
            at += 6;
            continue;
          }
        }
        target = put_scalar(0xFFFD, target);
        continue;
      }
      default:
        *target++ = static_cast<char>(*at++);
        continue;
    }
    at += 2;
  }
  return target - start;
}

bool rx_json_is_utf8(const char *text, size_t length) { return simdjson::validate_utf8(text, length); }

size_t rx_json_utf8_error(const char *text, size_t length) {
  const uint8_t *at = bytes(text);
  const uint8_t *const end = at + length;
  while (at < end) {
    const size_t count = sequence_length(at, end);
    if (count == 0) break;
    at += count;
  }
  return at - bytes(text);
}

long rx_find(const char *text, size_t length, const char *needle, size_t needle_length) {
  const void *hit = memmem(text, length, needle, needle_length);
  return hit ? static_cast<const char *>(hit) - text : -1;
}

}  // extern "C"
