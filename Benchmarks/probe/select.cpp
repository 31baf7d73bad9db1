// Probes that pass on some of the lines: only bytes that are written are copied.
#include <fcntl.h>

#include <string>

#include "probe.hpp"

namespace probe {

/// The lines whose `status` is at least 500.
void filter(int input, output &out) {
  each_document(input, [&](auto &document, std::string_view line) {
    int64_t status;
    if (document.find_field("status").get(status)) return;
    if (status >= 500) out.add(line);
  });
}

/// The lines whose `status` is at least 500, and in a second file, `OUTPUT.2`, those whose `status` is 404.
void filters(int input, output &out) {
  char path[4096];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(out.file)).c_str(), path, sizeof path);
  if (length < 0) abort();
  output second{open((std::string(path, length) + ".2").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0640)};
  if (second.file < 0) abort();
  each_document(input, [&](auto &document, std::string_view line) {
    int64_t status;
    if (document.find_field("status").get(status)) return;
    if (status >= 500) out.add(line);
    if (status == 404) second.add(line);
  });
  second.flush();
}

/// The lines whose `service` differs from the line before.
void changes(int input, output &out) {
  char before[256];
  size_t length = SIZE_MAX;
  each_document(input, [&](auto &document, std::string_view line) {
    std::string_view service;
    if (document.find_field("service").get_string().get(service) || service.size() > sizeof before) return;
    if (service.size() == length && memcmp(service.data(), before, length) == 0) return;
    length = service.size();
    memcpy(before, service.data(), length);
    out.add(line);
  });
}

/// The first line of each `client`; the last 100,000 clients are remembered.
void distinct(int input, output &out) {
  constexpr size_t places = 1 << 18, most = 100000;
  // Open addressing over a ring of the texts.
  struct client {
    uint8_t length;
    char text[31];
  };
  std::vector<client> ring(most);
  std::vector<uint32_t> table(places);
  size_t known = 0;
  const auto text = [&](uint32_t number) {
    const client &found = ring[(number - 1) % most];
    return std::string_view(found.text, found.length);
  };
  const auto forget = [&](uint32_t number) {
    size_t hole = hash(text(number)) % places;
    while (table[hole] != number) hole = (hole + 1) % places;
    for (size_t at = (hole + 1) % places; table[at] != 0; at = (at + 1) % places) {
      const size_t home = hash(text(table[at])) % places;
      if ((at - home) % places < (at - hole) % places) continue;
      table[hole] = table[at];
      hole = at;
    }
    table[hole] = 0;
  };
  each_document(input, [&](auto &document, std::string_view line) {
    std::string_view name;
    if (document.find_field("client").get_string().get(name) || name.size() > 31) return;
    size_t at = hash(name) % places;
    for (; table[at] != 0; at = (at + 1) % places) {
      if (text(table[at]) == name) return;
    }
    if (known >= most) {
      forget(known + 1 - most);
      at = hash(name) % places;
      while (table[at] != 0) at = (at + 1) % places;
    }
    client &place = ring[known % most];
    place.length = name.size();
    memcpy(place.text, name.data(), name.size());
    table[at] = ++known;
    out.add(line);
  });
}

}  // namespace probe
