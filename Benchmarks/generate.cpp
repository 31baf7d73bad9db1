// Writes the input of the benchmarks: `generate events N` for access-log events as NDJSON, about 350 bytes
// each, `generate ints N` for a run of integers, one a line. The same arguments give the same bytes on every
// machine: no library's random numbers are used.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/// SplitMix64.
struct numbers {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  template <typename T, size_t count>
  T pick(T (&all)[count]) { return all[below(count)]; }
};

const char *hosts[] = {"web-01", "web-02", "web-03.eu-central", "edge-7"};
const char *methods[] = {"GET", "GET", "GET", "POST", "PUT", "DELETE"};
// Escapes and UTF-8, as paths, agents and referrers have them.
const char *paths[] = {
  "/", "/index.html", "/api/v2/orders", "/api/v2/orders/\\u00fcbersicht", "/static/app.9f3c1d.js",
  "/search?q=caf\xC3\xA9+\\\"noir\\\"", "/\xE6\x96\x87\xE6\xA1\xA3/\xE7\xB4\xA2\xE5\xBC\x95",
  "/download\\/report.pdf"};
const char *agents[] = {
  "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
  "curl/7.88.1", "monitor \\\"probe\\\" 1.4 (J\xC3\xBCrgen)",
  "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15"};
const char *users[] = {"ann", "bj\xC3\xB6rn", "\xD0\xBC\xD0\xB0\xD1\x88\xD0\xB0", "o\\u0027neil", "li"};
// Of twenty answers one is a server error.
const int statuses[] = {
  200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 204, 301, 302, 304, 400, 404, 404, 500};

void events(uint64_t count) {
  numbers random{20260131};
  std::string out;
  char text[1024];
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t second = i / 40;
    const int status = statuses[random.below(20)];
    // The member `status` of `upstream` is no answer's status: whoever looks at the wrong depth, or only
    // searches for the text, gets other events.
    const int length = snprintf(
      text, sizeof text,
      "{\"time\":\"2026-01-%02" PRIu64 "T%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%03" PRIu64
      "Z\",\"id\":%" PRIu64 ",\"host\":\"%s\",\"client\":{\"ip\":\"10.%" PRIu64 ".%" PRIu64 ".%" PRIu64
      "\",\"user\":\"%s\"},\"upstream\":{\"status\":%d,\"took\":0.%03" PRIu64
      "},\"request\":{\"method\":\"%s\",\"path\":\"%s\"},\"status\":%d,\"bytes\":%" PRIu64
      ",\"agent\":\"%s\",\"tags\":[\"%s\",\"v%" PRIu64 "\"],\"secure\":%s,\"referrer\":null}\n",
      1 + second / 86400 % 28, second / 3600 % 24, second / 60 % 60, second % 60, i * 25 % 1000,
      random.next() >> 1, random.pick(hosts), random.below(256), random.below(256), random.below(256),
      random.pick(users), random.below(8) ? 200 : 502, random.below(1000), random.pick(methods),
      random.pick(paths), status, random.below(1 << 20), random.pick(agents),
      random.below(2) ? "public" : "internal", random.below(9), random.below(4) ? "true" : "false");
    out.append(text, length);
    if (out.size() > 1 << 20) {
      fwrite(out.data(), 1, out.size(), stdout);
      out.clear();
    }
  }
  fwrite(out.data(), 1, out.size(), stdout);
}

void ints(uint64_t count) {
  numbers random{7};
  for (uint64_t i = 0; i < count; i++) printf("%" PRIu64 "\n", random.below(3));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: generate events|ints COUNT\n");
    return 64;
  }
  const uint64_t count = strtoull(argv[2], nullptr, 10);
  if (strcmp(argv[1], "events") == 0) {
    events(count);
  } else {
    ints(count);
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
