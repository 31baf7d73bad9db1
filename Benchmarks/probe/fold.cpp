// Probes that keep something from line to line.
#include "probe.hpp"

namespace probe {

/// Count and mean of `latency` for each pair of `service` and `status`, in the order of their first events.
void groups(int input, output &out) {
  struct group {
    std::vector<char> key;
    size_t service;
    int64_t status, count;
    double sum;
  };
  std::vector<group> all;
  std::vector<uint32_t> table(1 << 10);
  each_document(input, [&](auto &document, std::string_view) {
    std::string_view service;
    int64_t status;
    double latency;
    if (document.find_field("service").get_string().get(service) || service.size() > 200) return;
    if (document.find_field("status").get(status)) return;
    if (document.find_field("latency").get(latency)) return;
    char key[256];
    memcpy(key, service.data(), service.size());
    memcpy(key + service.size(), &status, sizeof status);
    const std::string_view whole(key, service.size() + sizeof status);
    size_t at = hash(whole) % table.size();
    for (; table[at] != 0; at = (at + 1) % table.size()) {
      const auto &found = all[table[at] - 1].key;
      if (std::string_view(found.data(), found.size()) == whole) break;
    }
    if (table[at] == 0) {
      if (2 * all.size() > table.size()) abort();
      all.push_back({{whole.begin(), whole.end()}, service.size(), status, 0, 0});
      table[at] = all.size();
    }
    group &group = all[table[at] - 1];
    group.count++;
    group.sum += latency;
  });
  for (const group &group : all) {
    out.add("{\"service\":\"");
    out.add_escaped(std::string_view(group.key.data(), group.service));
    out.add("\",\"status\":");
    out.add_number(group.status);
    out.add(",\"count\":");
    out.add_number(group.count);
    out.add(",\"mean\":");
    out.add_double(group.sum / static_cast<double>(group.count));
    out.add("}\n");
  }
}

/// The running sum of integers, wherever it changes.
void ints(int input, output &out) {
  int64_t sum = 0;
  int64_t before = -1;
  each_line(input, [&](const char *line, size_t length) {
    int64_t number = 0;
    std::from_chars(line, line + length, number);
    sum += number;
    if (sum == before) return;
    before = sum;
    out.add_number(sum);
    out.add('\n');
  });
}

}  // namespace probe
