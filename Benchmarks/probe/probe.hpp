// What the probes share: reading lines in blocks, writing in blocks, and the text of values as rxd writes it.
#pragma once
#include <simdjson.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace probe {

constexpr size_t block = 256 << 10;

struct output {
  int file;
  std::vector<char> held = std::vector<char>(1 << 20);
  size_t count = 0;

  void flush() {
    for (size_t done = 0; done < count;) {
      const ssize_t written = write(file, held.data() + done, count - done);
      if (written < 0) abort();
      done += written;
    }
    count = 0;
  }
  void add(const char *text, size_t length) {
    if (count + length > held.size()) flush();
    memcpy(held.data() + count, text, length);
    count += length;
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  template <size_t size>
  void add(const char (&text)[size]) { add(text, size - 1); }
  void add(char byte) { add(&byte, 1); }

  template <typename Integer>
  void add_number(Integer number) {
    char text[24];
    add(text, std::to_chars(text, text + sizeof text, number).ptr - text);
  }
  /// The shortest digits that give the number again, with a point; the numbers here need no exponent.
  void add_double(double number) {
    char text[400];
    char *end = std::to_chars(text, text + sizeof text - 2, number, std::chars_format::fixed).ptr;
    if (std::string_view(text, end - text).find_first_of(".en") == std::string_view::npos) {
      *end++ = '.';
      *end++ = '0';
    }
    add(text, end - text);
  }
  /// The place of the first byte from `at` on that a JSON string must escape, or the end.
  static size_t plain(std::string_view text, size_t at) {
#ifdef __SSE2__
    for (; at + 16 <= text.size(); at += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(text.data() + at));
      const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
      const __m128i found = _mm_or_si128(
        low, _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
      if (const int mask = _mm_movemask_epi8(found)) return at + __builtin_ctz(mask);
    }
#endif
    for (; at < text.size(); at++) {
      const unsigned char byte = text[at];
      if (byte < 0x20 || byte == '"' || byte == '\\') break;
    }
    return at;
  }
  /// The inside of a JSON string: quotes, backslashes and control characters are escaped, nothing else.
  void add_escaped(std::string_view text) {
    size_t done = 0;
    for (size_t at = 0; at < text.size(); at++) {
      at = plain(text, at);
      if (at == text.size()) break;
      const unsigned char byte = text[at];
      add(text.data() + done, at - done);
      done = at + 1;
      static const char digits[] = "0123456789abcdef";
      char out[6] = {'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]};
      switch (byte) {
        case '"': case '\\': out[1] = byte; add(out, 2); break;
        case '\b': out[1] = 'b'; add(out, 2); break;
        case '\f': out[1] = 'f'; add(out, 2); break;
        case '\n': out[1] = 'n'; add(out, 2); break;
        case '\r': out[1] = 'r'; add(out, 2); break;
        case '\t': out[1] = 't'; add(out, 2); break;
        default: add(out, 6);
      }
    }
    add(text.data() + done, text.size() - done);
  }
};

/// Calls `body` with each line, its line feed included; simdjson may read behind it.
template <typename Body>
void each_line(int file, Body body) {
  std::vector<char> memory(2 * block + simdjson::SIMDJSON_PADDING);
  char *const start = memory.data();
  size_t held = 0;
  while (true) {
    const ssize_t count = read(file, start + held, block);
    if (count <= 0) break;
    const char *line = start;
    const char *const end = start + held + count;
    while (const void *found = memchr(line, '\n', end - line)) {
      const char *next = static_cast<const char *>(found) + 1;
      body(line, next - line);
      line = next;
    }
    held = end - line;
    memmove(start, line, held);
  }
}

/// Calls `body` with each line as a document and as text. Lines that are not documents are passed over.
template <typename Body>
void each_document(int file, Body body) {
  simdjson::ondemand::parser parser;
  each_line(file, [&](const char *line, size_t length) {
    simdjson::ondemand::document document;
    if (parser.iterate(line, length, length + simdjson::SIMDJSON_PADDING).get(document)) return;
    body(document, std::string_view(line, length));
  });
}

inline uint64_t hash(std::string_view text) {
  uint64_t sum = text.size() * 0x9e3779b97f4a7c15u;
  const char *at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    sum = (sum ^ word) * 0xbf58476d1ce4e5b9u;
    sum ^= sum >> 32;
  }
  uint64_t word = 0;
  memcpy(&word, at, left);
  sum = (sum ^ word) * 0x94d049bb133111ebu;
  return sum ^ (sum >> 29);
}

using work = void (*)(int input, output &out);

void filter(int input, output &out);
void filters(int input, output &out);
void changes(int input, output &out);
void distinct(int input, output &out);
void lines(int input, output &out);
void map(int input, output &out);
void set(int input, output &out);
void serialise(int input, output &out);
void canonical(int input, output &out);
void groups(int input, output &out);
void windows(int input, output &out);
void statistics(int input, output &out);
void join(int input, output &out);
void access(int input, output &out);
void ints(int input, output &out);
void copies(int input, output &out);
void line_ends(int input, output &out);
void one_field(int input, output &out);
void reads(int input, output &out);
void writes(int input, output &out);

}  // namespace probe
