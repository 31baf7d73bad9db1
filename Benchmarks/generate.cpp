// Writes the input of the benchmarks: `generate events N` for access-log events as NDJSON, about 350 bytes
// each, `generate bids N` for bids of an auction as NDJSON, `generate access N` for lines of an
// access log in the combined format, about 200 bytes each, `generate ints N` for a run of integers, one a line. The same arguments give the same bytes on every
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
const char *services[] = {
  "checkout", "search", "catalogue", "login", "payments", "caf\xC3\xA9-menu", "media", "api-gateway", "mail",
  "inventory", "reports", "admin"};
const char *methods[] = {"GET", "GET", "GET", "POST", "PUT", "DELETE"};
// Escapes and UTF-8, as in real paths, agents and referrers.
const char *paths[] = {
  "/", "/index.html", "/api/v2/orders", "/api/v2/orders/\\u00fcbersicht", "/static/app.9f3c1d.js",
  "/search?q=caf\xC3\xA9+\\\"noir\\\"", "/\xE6\x96\x87\xE6\xA1\xA3/\xE7\xB4\xA2\xE5\xBC\x95",
  "/download\\/report.pdf"};
const char *agents[] = {
  "Mozilla/5.0 (X11; Linux) Gecko",
  "curl/7.88.1", "monitor \\\"probe\\\" 1.4 (J\xC3\xBCrgen)",
  "Mozilla/5.0 (Macintosh) WebKit"};
// One answer in twenty is a server error.
const int statuses[] = {
  200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 204, 301, 302, 304, 400, 404, 404, 500};

constexpr uint64_t clients = 100000;

/// A number of thousandths, written as the shortest decimal with a point.
struct decimal {
  char text[24];
  explicit decimal(uint64_t thousandths) {
    int length = snprintf(text, sizeof text, "%" PRIu64 ".%03" PRIu64, thousandths / 1000, thousandths % 1000);
    while (text[length - 1] == '0' && text[length - 2] != '.') text[--length] = 0;
  }
};

void events(uint64_t count) {
  numbers random{20260131};
  std::string out;
  char text[1024];
  const char *service = services[0];
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t second = i / 40;
    const int status = statuses[random.below(20)];
    // The events of a service come in bursts of four.
    if (random.below(4) == 0) service = random.pick(services);
    const decimal took(random.below(1000)), latency(1 + random.below(1000000));
    // Each number is drawn in a statement of its own, because compilers may evaluate arguments in any order.
    const uint64_t id = random.next() >> 1;
    const char *host = random.pick(hosts);
    const int upstream = random.below(8) ? 200 : 502;
    const char *other = random.pick(services), *method = random.pick(methods), *path = random.pick(paths);
    const uint64_t client = random.below(clients), bytes = random.below(1 << 20);
    const char *agent = random.pick(agents), *audience = random.below(2) ? "public" : "internal";
    const uint64_t version = random.below(9);
    const char *secure = random.below(4) ? "true" : "false";
    // The members of `upstream` differ from those of the answer: a program that looks at the wrong depth, or only
    // searches for the text, selects different events.
    const int length = snprintf(
      text, sizeof text,
      "{\"time\":\"2026-01-%02" PRIu64 "T%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%03" PRIu64
      "Z\",\"id\":%" PRIu64 ",\"host\":\"%s\",\"service\":\"%s\",\"upstream\":{\"status\":%d,\"latency\":%s"
      ",\"service\":\"%s\"},\"request\":{\"method\":\"%s\",\"path\":\"%s\"},\"client\":\"c-%05" PRIu64
      "\",\"status\":%d,\"latency\":%s,\"bytes\":%" PRIu64
      ",\"agent\":\"%s\",\"tags\":[\"%s\",\"v%" PRIu64 "\"],\"secure\":%s}\n",
      1 + second / 86400 % 28, second / 3600 % 24, second / 60 % 60, second % 60, i * 25 % 1000, id, host,
      service, upstream, took.text, other, method, path, client, status, latency.text, bytes, agent, audience,
      version, secure);
    out.append(text, length);
    if (out.size() > 1 << 20) {
      fwrite(out.data(), 1, out.size(), stdout);
      out.clear();
    }
  }
  fwrite(out.data(), 1, out.size(), stdout);
}

/// Bids as in Nexmark's auctions: half of them on four channels, the others on ten thousand.
void bids(uint64_t count) {
  numbers random{20260214};
  static const char *const busy[] = {"Apple", "Google", "Facebook", "Baidu"};
  // Powers of ten between 1 and 10^8.
  static const uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t second = i / 10;
    const uint64_t auction = random.below(4) ? i / 50 * 50 : i / 50 * 50 - random.below(1 + i / 50 * 50 % 100000);
    const uint64_t bidder = random.below(4) ? i / 100 * 100 : random.below(1 + i);
    const uint64_t ten = tens[random.below(8)], price = ten + random.below(9 * ten);
    const bool is_busy = random.below(2);
    const uint64_t channel = random.below(is_busy ? 4 : 10000);
    printf("{\"auction\":%" PRIu64 ",\"bidder\":%" PRIu64 ",\"price\":%" PRIu64 ",\"channel\":\"", auction, bidder, price);
    if (is_busy) {
      printf("%s", busy[channel]);
    } else {
      printf("channel-%" PRIu64, channel);
    }
    printf(
      "\",\"url\":\"https://www.nexmark.com/item.htm?query=1&channel_id=%" PRIu64
      "\",\"time\":\"2026-01-%02" PRIu64 "T%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%03" PRIu64 "Z\"}\n",
      channel, 1 + second / 86400 % 28, second / 3600 % 24, second / 60 % 60, second % 60, i * 100 % 1000);
  }
}

void access(uint64_t count) {
  const char *browsers[] = {
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0", "curl/8.5.0",
    "Mozilla/5.0 (compatible; ExampleBot/2.1; +http://bot.example.com/about.html)"};
  const char *pages[] = {
    "/", "/index.html", "/articles/clocks/part-2.html", "/style.css", "/images/kettles-3.png", "/search?q=tide+tables&page=2",
    "/blog/%C3%BCber-br%C3%BCcken", "/js/app.3f9a1c.js"};
  const char *referrers[] = {"-", "http://workshop.example.org/", "https://search.example.com/find?q=how+to&hl=en"};
  const char *users[] = {"-", "-", "-", "ann", "b.jones"};
  numbers random{20250518};
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t second = i / 20, client = random.below(clients);
    const char *user = random.pick(users), *method = random.below(20) ? "GET" : "POST", *page = random.pick(pages);
    const int status = random.pick(statuses), version = random.below(30) ? 1 : 0;
    const uint64_t bytes = random.below(1 << 18);
    const char *referrer = random.pick(referrers), *browser = random.pick(browsers);
    printf(
      "10.%" PRIu64 ".%" PRIu64 ".%" PRIu64 " - %s [%02" PRIu64 "/May/2025:%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64
      " +0000] \"%s %s HTTP/1.%d\" %d %" PRIu64 " \"%s\" \"%s\"\n",
      client >> 16, client >> 8 & 255, client & 255, user, 1 + second / 86400 % 28, second / 3600 % 24,
      second / 60 % 60, second % 60, method, page, version, status, bytes, referrer, browser);
  }
}

void ints(uint64_t count) {
  numbers random{7};
  for (uint64_t i = 0; i < count; i++) printf("%" PRIu64 "\n", random.below(3));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: generate events|bids|access|ints COUNT\n");
    return 64;
  }
  const uint64_t count = strtoull(argv[2], nullptr, 10);
  if (strcmp(argv[1], "events") == 0) {
    events(count);
  } else if (strcmp(argv[1], "bids") == 0) {
    bids(count);
  } else if (strcmp(argv[1], "access") == 0) {
    access(count);
  } else {
    ints(count);
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
