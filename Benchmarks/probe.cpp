// What the machine can do: the same work as the pipelines beside, as a plain loop over the same simdjson, on
// one thread. `probe filter|lines|map|ints INPUT OUTPUT`.
//
// `filter` reads the file in blocks, cuts lines, finds the field `status` of each with On-Demand and writes
// the lines where it is at least 500; no byte of a line is copied that is not written.
#include <fcntl.h>
#include <simdjson.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

using namespace simdjson;

namespace {

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
};

/// Calls `body` with each line, its line feed included.
template <typename Body>
void each_line(int file, Body body) {
  std::vector<char> memory(2 * block + SIMDJSON_PADDING);
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

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: probe filter|lines|map|ints INPUT OUTPUT\n");
    return 64;
  }
  const std::string_view work = argv[1];
  const int in = open(argv[2], O_RDONLY);
  const int to = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0640);
  if (in < 0 || to < 0) {
    perror("probe");
    return 66;
  }
  output out{to};
  ondemand::parser parser;
  if (work == "filter") {
    each_line(in, [&](const char *line, size_t length) {
      ondemand::document document;
      int64_t status;
      if (parser.iterate(line, length, length + SIMDJSON_PADDING).get(document)) return;
      if (document.find_field("status").get(status)) return;
      if (status >= 500) out.add(line, length);
    });
  } else if (work == "lines") {
    each_line(in, [&](const char *line, size_t length) { out.add(line, length); });
  } else if (work == "map") {
    each_line(in, [&](const char *line, size_t length) {
      ondemand::document document;
      if (parser.iterate(line, length, length + SIMDJSON_PADDING).get(document)) return;
      std::string_view id, host, method, status;
      ondemand::object request;
      if (document.find_field("id").raw_json_token().get(id)) return;
      if (document.find_field("host").raw_json_token().get(host)) return;
      if (document.find_field("request").get_object().get(request)) return;
      if (request.find_field("method").raw_json_token().get(method)) return;
      if (document.find_field("status").raw_json_token().get(status)) return;
      out.add("{\"id\":");
      out.add(id);
      out.add(",\"status\":");
      out.add(status);
      out.add(",\"host\":");
      out.add(host);
      out.add(",\"method\":");
      out.add(method);
      out.add("}\n");
    });
  } else {
    int64_t sum = 0;
    int64_t before = -1;
    char text[24];
    each_line(in, [&](const char *line, size_t length) {
      int64_t number = 0;
      std::from_chars(line, line + length, number);
      sum += number;
      if (sum == before) return;
      before = sum;
      char *end = std::to_chars(text, text + 20, sum).ptr;
      *end++ = '\n';
      out.add(text, end - text);
    });
  }
  out.flush();
  if (getenv("PROBE_VERBOSE")) {
    fprintf(stderr, "simdjson %s, stage 1 %s, On-Demand compiled for %s\n", SIMDJSON_STRINGIFY(SIMDJSON_VERSION),
      get_active_implementation()->name().c_str(), builtin_implementation()->name().c_str());
  }
  return 0;
}
