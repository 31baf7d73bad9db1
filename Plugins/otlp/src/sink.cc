/* The sink `otlp`: sends the events of a batch in several concurrent requests, and reports the outcome of each event.
 * */
#include "client.h"
#include "records.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

namespace {
enum {
  SLICE_MS = 100,     /* interval of the checks for a stop */
  HOLD_MS = 30000,    /* failed requests are retried within the batch while later events are delivered, so that those are not repeated */
  REASON_MOST = 480,
};

enum class State : uint8_t { open, delivered, refused };

/* A request and its events. */
struct Piece {
  Call call;
  std::vector<uint32_t> events;
};

class Sink {
public:
  rxd_instance *instance = nullptr;
  Client client;
  RecordMaker maker;
  size_t events_most = 0, bytes_most = 0, calls_most = 0;
  bool accepts_partly = false;

  int write(rxd_scope *scope, const rxd_batch *given, rxd_verdicts *reports) {
    begin(scope, given, reports);
    try {
      if (pieces_of_batch()) send_all();
    } catch (...) {
      cancel_all();
      throw;
    }
    cancel_all();
    return end(scope);
  }

private:
  /* State of the current batch. */
  rxd_scope *scope = nullptr;
  const rxd_batch *batch = nullptr;
  rxd_verdicts *verdicts = nullptr;
  std::vector<State> states;
  std::unordered_map<size_t, std::string> reasons; /* reasons by the index of the refused event */
  std::deque<std::unique_ptr<Piece>> waiting, running;
  std::string trouble, at; /* why events are undelivered, and the wrong parameter */
  bool is_misplaced = false, may_send = true;
  int64_t hold_until = 0;
  /* Kept from batch to batch. */
  int64_t not_before = 0; /* now_ms */
  unsigned failures = 0;
  int64_t warned_at = 0;

  void begin(rxd_scope *given_scope, const rxd_batch *given, rxd_verdicts *reports) {
    scope = given_scope, batch = given, verdicts = reports;
    states.assign(batch->count, State::open);
    reasons.clear();
    trouble.clear(), at.clear();
    is_misplaced = false, may_send = true;
    hold_until = now_ms() + HOLD_MS;
    maker.begin(scope);
  }

  const rxd_value &event_at(size_t index) const {
    return reinterpret_cast<const rxd_input *>(reinterpret_cast<const char *>(batch->inputs) + index * batch->input_size)->event;
  }

  void refuse(size_t index, const std::string &reason) {
    states[index] = State::refused;
    reasons[index] = reason.substr(0, REASON_MOST);
  }

  /* ---- Requests ---- */

  void put(Request &request, bool in_front) {
    auto piece = std::make_unique<Piece>();
    piece->call.signal = request.signal;
    piece->call.records = request.events.size();
    piece->call.body = client.pack(request.body());
    piece->events = std::move(request.events);
    if (in_front) waiting.push_front(std::move(piece));
    else waiting.push_back(std::move(piece));
    Signal signal = request.signal;
    request = Request();
    request.signal = signal;
  }

  /* Builds requests of the given events of the batch. */
  template <typename Indices> std::vector<Request> requests_of(const Indices &indices) {
    std::vector<Request> made;
    Request open[SIGNALS];
    for (int i = 0; i < SIGNALS; i++) open[i].signal = static_cast<Signal>(i);
    for (uint32_t index : indices) {
      Record record;
      std::string problem;
      if (!maker.make(event_at(index), record, problem)) {
        refuse(index, problem);
        continue;
      }
      Request &request = open[static_cast<int>(record.signal)];
      if (!request.events.empty() && (request.events.size() >= events_most || request.bytes + record.size() > bytes_most)) {
        Signal signal = request.signal;
        made.push_back(std::move(request));
        request = Request();
        request.signal = signal;
      }
      add_record(request, index, std::move(record));
    }
    for (auto &request : open)
      if (!request.events.empty()) made.push_back(std::move(request));
    return made;
  }

  bool pieces_of_batch() {
    std::vector<uint32_t> all(batch->count);
    for (uint32_t i = 0; i < batch->count; i++) all[i] = i;
    auto requests = requests_of(all);
    /* Requests are sent in the order of their first events. */
    std::sort(requests.begin(), requests.end(), [](auto &a, auto &b) { return a.events[0] < b.events[0]; });
    for (auto &request : requests) put(request, false);
    return !waiting.empty();
  }

  /* Replaces a request by its two halves. */
  void divide(Piece &piece) {
    auto middle = piece.events.begin() + static_cast<std::ptrdiff_t>(piece.events.size() / 2);
    std::vector<uint32_t> first(piece.events.begin(), middle), second(middle, piece.events.end());
    for (auto *half : {&second, &first}) {
      auto requests = requests_of(*half);
      for (size_t i = requests.size(); i-- > 0;) put(requests[i], true);
    }
  }

  /* ---- Sending ---- */

  bool is_closing() const { return host->is_closing(instance) != 0; }

  void start_some() {
    while (may_send && !waiting.empty() && running.size() < calls_most && client.can_start()) {
      auto piece = std::move(waiting.front());
      waiting.pop_front();
      if (!client.start(piece->call)) throw std::bad_alloc();
      running.push_back(std::move(piece));
    }
  }

  /* After a temporary failure: queues the request again and pauses sending, beyond the batch if it ends first. */
  void pause(std::unique_ptr<Piece> piece) {
    Call &call = piece->call;
    host->count_up(instance, RXD_TEXT_OF("retries"), 1);
    trouble = call.reason;
    int64_t wait = call.has_wait ? call.wait_ms : backoff_ms(failures);
    failures++;
    not_before = std::max(not_before, now_ms() + wait);
    may_send = false;
    /* Inserted in the order of events, which one request at a time then keeps. */
    auto behind = waiting.begin();
    while (behind != waiting.end() && (*behind)->events[0] < piece->events[0]) ++behind;
    waiting.insert(behind, std::move(piece));
  }

  void deliver(const Piece &piece) {
    failures = 0;
    for (uint32_t index : piece.events) states[index] = State::delivered;
  }

  void refuse_all(const Piece &piece) {
    failures = 0;
    for (uint32_t index : piece.events) refuse(index, piece.call.reason);
  }

  void warn(const std::string &text) {
    enum { EACH_MS = 60000 };
    if (warned_at != 0 && now_ms() - warned_at < EACH_MS) return;
    warned_at = now_ms();
    report(instance, "warning", "%.400s", text.c_str());
  }

  void settle(std::unique_ptr<Piece> piece) {
    Call &call = piece->call;
    switch (call.verdict) {
    case Verdict::delivered:
      deliver(*piece);
      if (!call.reason.empty()) warn("the receiver has accepted a request with a warning: " + call.reason);
      return;
    case Verdict::partly:
      host->count_up(instance, RXD_TEXT_OF("rejected"), static_cast<int64_t>(call.rejected));
      if (!accepts_partly) return refuse_all(*piece);
      deliver(*piece);
      return warn(call.reason);
    case Verdict::denied:
      host->count_up(instance, RXD_TEXT_OF("rejected"), static_cast<int64_t>(piece->events.size()));
      return refuse_all(*piece);
    case Verdict::too_much:
    case Verdict::refused:
      failures = 0;
      if (piece->events.size() > 1) return divide(*piece);
      host->count_up(instance, RXD_TEXT_OF("rejected"), 1);
      return refuse_all(*piece);
    case Verdict::again: return pause(std::move(piece));
    case Verdict::misplaced:
      is_misplaced = true;
      trouble = call.reason;
      at = call.at;
      may_send = false;
      return;
    }
  }

  /* Whether an event was delivered before an earlier one. */
  bool has_gap() const {
    bool is_open = false;
    for (State state : states) {
      if (state == State::open) is_open = true;
      if (state == State::delivered && is_open) return true;
    }
    return false;
  }

  /* Waits until requests may be sent again. False: the batch must end. */
  bool wait_for_turn() {
    while (now_ms() < not_before) {
      if (is_closing()) return false;
      struct timespec slice = {0, SLICE_MS * 1000000};
      nanosleep(&slice, nullptr);
    }
    return !is_closing();
  }

  void send_all() {
    /* A delay that the receiver asked for in an earlier batch still applies. */
    if (!wait_for_turn()) {
      trouble = "the pipeline is stopping";
      return;
    }
    while (!waiting.empty() || !running.empty()) {
      start_some();
      if (running.empty()) {
        /* All remaining requests have failed temporarily. */
        if (is_misplaced || !has_gap() || now_ms() >= hold_until || !wait_for_turn()) return;
        may_send = true;
        continue;
      }
      if (is_closing()) {
        trouble = "the pipeline is stopping";
        return;
      }
      Call *done = client.wait(SLICE_MS);
      if (done == nullptr) continue;
      for (auto at_piece = running.begin(); at_piece != running.end(); ++at_piece) {
        if (&(*at_piece)->call != done) continue;
        auto piece = std::move(*at_piece);
        running.erase(at_piece);
        settle(std::move(piece));
        break;
      }
    }
  }

  void cancel_all() {
    for (auto &piece : running) client.cancel(piece->call);
    running.clear();
    waiting.clear();
  }

  int end(rxd_scope *given) {
    size_t through = 0;
    while (through < states.size() && states[through] != State::open) through++;
    batch = nullptr;
    /* rxd repeats all events after the first undelivered one, so only earlier refusals are reported. */
    for (size_t i = 0; i < through; i++)
      if (states[i] == State::refused) host->refuse(verdicts, i, text_of(std::string_view(reasons[i])));
    if (through == states.size()) return RXD_OK;
    host->delivered(verdicts, through);
    fail_at(given, at.c_str(), "%s", trouble.empty() ? "not everything was sent" : trouble.c_str());
    return is_misplaced ? RXD_FAILED : RXD_RETRY;
  }
};

/* ---- Opening ---- */

int endpoint_parameter(const rxd_opening *opening, Client &client) {
  static const address_form form = {"http", "https", 80, 443, false};
  std::string &text = client.endpoint;
  if (string_parameter(opening, "endpoint", text) != RXD_OK) return RXD_FAILED;
  size_t begin = text.find("://");
  if (begin == std::string::npos) return fail_at(opening->scope, "endpoint", "must begin with https:// or http://");
  size_t slash = text.find('/', begin + 3);
  std::string path = slash == std::string::npos ? "" : text.substr(slash), server = text.substr(0, slash);
  while (!path.empty() && path.back() == '/') path.pop_back();
  address where;
  char problem[200];
  if (parse_address(server.c_str(), &form, &where, problem, sizeof problem) != nullptr) return fail_at(opening->scope, "endpoint", "%s", problem);
  for (char c : path)
    if (!isalnum(static_cast<unsigned char>(c)) && strchr("/-._~", c) == nullptr)
      return fail_at(opening->scope, "endpoint", "the path may have letters, digits and - . _ ~ /");
  for (int i = 0; i < SIGNALS; i++) {
    std::string own = std::string("/v1/") + names_of(static_cast<Signal>(i)).plural;
    if (path.size() >= own.size() && path.compare(path.size() - own.size(), own.size(), own) == 0)
      return fail_at(opening->scope, "endpoint", "must not end with '%s', which is added for each signal", own.c_str());
  }
  if (client.is_grpc && !path.empty()) return fail_at(opening->scope, "endpoint", "must have no path with 'protocol: grpc'");
  client.is_secure = where.is_secure;
  text = server + path;
  return RXD_OK;
}

/* Reads a parameter that maps names to texts. */
template <typename Take> int table_parameter(const rxd_opening *opening, const char *name, Take take) {
  rxd_value table = parameter(opening, name);
  size_t count = host->count(opening->scope, &table);
  for (size_t i = 0; i < count; i++) {
    rxd_text key = {"", 0};
    rxd_value value = host->entry(opening->scope, &table, i, &key);
    if (take(std::string(view_of(key)), std::string(view_of(host->text(opening->scope, &value)))) != RXD_OK) return RXD_FAILED;
  }
  return RXD_OK;
}

int headers_parameter(const rxd_opening *opening, Client &client) {
  static const char *const ours[] = {"content-type", "content-length", "content-encoding", "transfer-encoding", "host", "te", "connection",
                                     "grpc-encoding", "grpc-accept-encoding", "expect"};
  return table_parameter(opening, "headers", [&](std::string name, std::string value) -> int {
    bool is_name = !name.empty() && name.size() <= 100;
    for (char &c : name) {
      is_name = is_name && (isalnum(static_cast<unsigned char>(c)) || strchr("!#$%&'*+-.^_`|~", c) != nullptr) && c != 0;
      c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
    }
    if (!is_name) return fail_at(opening->scope, "headers", "a name has a character that headers cannot have");
    for (const char *own : ours)
      if (name == own) return fail_at(opening->scope, "headers", "'%s' is set by the sink", own);
    for (char c : value)
      if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 127)
        return fail_at(opening->scope, "headers", "the value of '%s' has a character that headers cannot have", name.c_str());
    client.headers.push_back(value.empty() ? name + ";" : name + ": " + value);
    return RXD_OK;
  });
}

int tls_parameters(const rxd_opening *opening, Client &client) {
  client.skips_verification = boolean_parameter(opening, "dangerouslySkipVerification");
  const std::pair<const char *, std::string *> files[] = {{"ca", &client.ca}, {"certificate", &client.certificate}, {"certificateKey", &client.key}};
  for (auto &file : files) {
    if (string_parameter(opening, file.first, *file.second) != RXD_OK) return RXD_FAILED;
    if (file.second->empty()) continue;
    if (!client.is_secure) return fail_at(opening->scope, file.first, "has no effect without https:// in 'endpoint'");
    if (access(file.second->c_str(), R_OK) != 0)
      return fail_at(opening->scope, file.first, "%.200s: %s", file.second->c_str(), strerror(errno));
  }
  if (client.certificate.empty() && !client.key.empty()) return fail_at(opening->scope, "certificateKey", "has no effect without 'certificate'");
  return RXD_OK;
}

int sink_parameters(const rxd_opening *opening, Sink &self) {
  Client &client = self.client;
  self.instance = opening->instance;
  client.is_grpc = choice_is(opening, "protocol", "grpc");
  client.packs = choice_is(opening, "compression", "gzip");
  self.accepts_partly = choice_is(opening, "partial", "accept");
  self.events_most = static_cast<size_t>(integer_parameter(opening, "maxEvents", 1000));
  self.calls_most = static_cast<size_t>(integer_parameter(opening, "concurrency", 4));
  int64_t bytes = integer_parameter(opening, "maxBytes", 1 << 20);
  if (bytes < 1024 || bytes > 64 << 20) return fail_at(opening->scope, "maxBytes", "must be from 1KiB to 64MiB");
  self.bytes_most = static_cast<size_t>(bytes);
  client.timeout_ms = milliseconds_parameter(opening, "timeout", 10000);
  client.connect_ms = milliseconds_parameter(opening, "connectTimeout", 5000);
  if (endpoint_parameter(opening, client) != RXD_OK || headers_parameter(opening, client) != RXD_OK || tls_parameters(opening, client) != RXD_OK)
    return RXD_FAILED;
  client.prepare();
  return table_parameter(opening, "resource", [&](std::string name, std::string value) -> int {
    self.maker.resource.emplace_back(std::move(name), std::move(value));
    return RXD_OK;
  });
}

int sink_open(const rxd_opening *opening, void **instance) {
  return guarded(opening->scope, [&] {
    auto self = std::make_unique<Sink>();
    if (sink_parameters(opening, *self) != RXD_OK) return static_cast<int>(RXD_FAILED);
    *instance = self.release();
    return static_cast<int>(RXD_OK);
  });
}

void sink_close(void *opaque) { delete static_cast<Sink *>(opaque); }

int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  try {
    return static_cast<Sink *>(opaque)->write(scope, batch, verdicts);
  } catch (const std::exception &problem) {
    fail_at(scope, "", "%s", problem.what());
    return RXD_RETRY;
  }
}

rxd_component component() {
  rxd_component made = {};
  made.size = sizeof made;
  made.name = RXD_TEXT_OF("otlp");
  made.kind = RXD_TEXT_OF("sink");
  made.open = sink_open;
  made.close = sink_close;
  made.write = sink_write;
  return made;
}
} // namespace

const rxd_component otlp_sink = component();
