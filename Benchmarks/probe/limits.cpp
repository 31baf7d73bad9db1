// The limits of the machine itself for the bytes of the input. Each writes one line: how much it has seen.
#include "probe.hpp"

namespace probe {

namespace {

void report(output &out, size_t count) {
  out.add_number(count);
  out.add('\n');
}

}  // namespace

/// Copies every block eight times, in addition to reading it.
void copies(int input, output &out) {
  std::vector<char> from(block), to(block);
  size_t sum = 0;
  for (ssize_t count; (count = read(input, from.data(), block)) > 0; sum += count) {
    for (int round = 0; round < 8; round++) {
      memcpy(to.data(), from.data(), count);
      asm volatile("" : : "r"(to.data()) : "memory");
    }
  }
  report(out, sum);
}

/// Finds line ends.
void line_ends(int input, output &out) {
  size_t count = 0;
  each_line(input, [&](const char *, size_t) { count++; });
  report(out, count);
}

/// Finds one field of each line, and nothing else.
void one_field(int input, output &out) {
  size_t count = 0;
  each_document(input, [&](auto &document, std::string_view) {
    int64_t status;
    if (!document.find_field("status").get(status)) count += status >= 500;
  });
  report(out, count);
}

/// Only reads.
void reads(int input, output &out) {
  std::vector<char> memory(block);
  size_t sum = 0;
  for (ssize_t count; (count = read(input, memory.data(), block)) > 0;) sum += count;
  report(out, sum);
}

/// Reads the input once and writes all of it.
void writes(int input, output &out) {
  std::vector<char> memory(block);
  for (ssize_t count; (count = read(input, memory.data(), block)) > 0;) {
    for (ssize_t done = 0; done < count;) {
      const ssize_t written = write(out.file, memory.data() + done, count - done);
      if (written < 0) abort();
      done += written;
    }
  }
}

}  // namespace probe
