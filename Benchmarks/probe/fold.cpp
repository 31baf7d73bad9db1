// Probes with state from line to line.
#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>

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

/// The number of events of each `client` in each second of `time`, second by second, in the order of the first events.
/// The input is ordered by time.
void windows(int input, output &out) {
  struct group {
    std::string client;
    int64_t count;
  };
  std::vector<group> all;
  std::unordered_map<std::string, size_t> places;
  int64_t open = INT64_MIN;
  auto close = [&] {
    for (const group &group : all) {
      out.add("{\"client\":\"");
      out.add_escaped(group.client);
      out.add("\",\"at\":");
      out.add_number(open);
      out.add(",\"count\":");
      out.add_number(group.count);
      out.add("}\n");
    }
    all.clear();
    places.clear();
  };
  each_document(input, [&](auto &document, std::string_view) {
    std::string_view time, client;
    if (document.find_field("time").get_string().get(time) || time.size() < 19) return;
    auto number = [&](int at, int count) {
      int64_t sum = 0;
      for (int i = at; i < at + count; i++) sum = 10 * sum + (time[i] - '0');
      return sum;
    };
    // Days since 1970 of a Gregorian date.
    const int64_t month = number(5, 2), year = number(0, 4) - (month <= 2);
    const int64_t day = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + number(8, 2) - 1;
    const int64_t days = year / 400 * 146097 + year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + day - 719468;
    const int64_t second = ((days * 24 + number(11, 2)) * 60 + number(14, 2)) * 60 + number(17, 2);
    if (document.find_field("client").get_string().get(client)) return;
    if (second > open) {
      close();
      open = second;
    }
    const auto [place, is_new] = places.try_emplace(std::string(client), all.size());
    if (is_new) all.push_back({std::string(client), 0});
    all[place->second].count++;
  });
  close();
}

/// Statistics of bids by channel and day, in the order of the first bids.
void statistics(int input, output &out) {
  struct group {
    std::string channel, day, last;
    std::array<int64_t, 4> bids{};
    std::array<std::unordered_set<int64_t>, 4> bidders, auctions;
  };
  std::vector<group> all;
  std::unordered_map<std::string, size_t> places;
  each_document(input, [&](auto &document, std::string_view) {
    int64_t auction, bidder, price;
    std::string_view channel, time;
    if (document.find_field("auction").get(auction) || document.find_field("bidder").get(bidder)) return;
    if (document.find_field("price").get(price)) return;
    if (document.find_field("channel").get_string().get(channel)) return;
    if (document.find_field("time").get_string().get(time) || time.size() < 10) return;
    std::string key(channel);
    key += time.substr(0, 10);
    const auto [place, is_new] = places.try_emplace(key, all.size());
    if (is_new) all.push_back({std::string(channel), std::string(time.substr(0, 10)), ""});
    group &group = all[place->second];
    group.last = std::max<std::string_view>(group.last, time);
    for (const int rank : {0, price < 10000 ? 1 : price < 1000000 ? 2 : 3}) {
      group.bids[rank]++;
      group.bidders[rank].insert(bidder);
      group.auctions[rank].insert(auction);
    }
  });
  for (const group &group : all) {
    out.add("{\"channel\":\"");
    out.add_escaped(group.channel);
    out.add(std::string("\",\"day\":\"") + group.day + "\",\"last\":\"" + group.last + "\",\"bids\":[");
    for (int rank = 0; rank < 4; rank++) {
      if (rank) out.add(',');
      out.add_number(group.bids[rank]);
    }
    for (const auto *sets : {&group.bidders, &group.auctions}) {
      out.add(sets == &group.bidders ? std::string_view("],\"bidders\":[") : std::string_view("],\"auctions\":["));
      for (int rank = 0; rank < 4; rank++) {
        if (rank) out.add(',');
        out.add_number((*sets)[rank].size());
      }
    }
    out.add("]}\n");
  }
}

/// Joins the events with themselves by `id`: the number of pairs, and the sum of `bytes` of the one and `status` of the
/// other. One reading fills a table, a second looks events up in it.
void join(int input, output &out) {
  // Open addressing; the text of an event is kept, which any program that forms pairs must do.
  struct kept {
    int64_t id;
    char *text;
    int64_t bytes;
  };
  std::vector<kept> table(1 << 10);
  size_t count = 0;
  const auto place = [&](int64_t id) {
    size_t at = hash({reinterpret_cast<const char *>(&id), sizeof id}) & (table.size() - 1);
    while (table[at].text != nullptr && table[at].id != id) at = (at + 1) & (table.size() - 1);
    return at;
  };
  each_document(input, [&](auto &document, std::string_view line) {
    int64_t id, bytes;
    if (document.find_field("id").get(id) || document.find_field("bytes").get(bytes)) return;
    if (2 * ++count > table.size()) {
      std::vector<kept> small(2 * table.size());
      small.swap(table);
      for (const kept &one : small) {
        if (one.text != nullptr) table[place(one.id)] = one;
      }
    }
    char *text = static_cast<char *>(malloc(line.size()));
    memcpy(text, line.data(), line.size());
    table[place(id)] = {id, text, bytes};
  });
  int64_t pairs = 0, sum = 0;
  lseek(input, 0, SEEK_SET);
  each_document(input, [&](auto &document, std::string_view) {
    int64_t id, status;
    if (document.find_field("id").get(id) || document.find_field("status").get(status)) return;
    const kept &found = table[place(id)];
    if (found.text == nullptr) return;
    pairs++;
    sum += found.bytes + status;
  });
  out.add("{\"pairs\":");
  out.add_number(pairs);
  out.add(",\"sum\":");
  out.add_number(sum);
  out.add("}\n");
}

/// The running sum of integers, at each change.
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
