/* The source `otlp`. The server handles the connections on its own thread; `run` takes complete requests from it, adds
 * their events, and answers a request when rxd has acknowledged all its events. */
#include "events.h"
#include "json.h"
#include "server.h"

#include <map>
#include <openssl/err.h>
#include <poll.h>

namespace {
enum {
  BIND_MS = 15000,   /* the pipeline's previous version may still hold the address during a reload */
  BIND_PAUSE_MS = 100,
  POLL_MS = 100,
  ACKS_MS = 25000,   /* during a stop: wait for acknowledgements */
  STOP_MS = 2000,    /* during a stop: wait until the answers are sent */
};

/* A request whose events are not all acknowledged. */
struct Flight {
  Ticket ticket;
  uint64_t count = 0;  /* number of its consecutive tokens */
  uint64_t left = 0;   /* events without an acknowledgement */
  bool is_open = true; /* further events may be added */
  bool has_failed = false, is_answered = false;
  int64_t answer_by = 0; /* now_ms */
  Reply reply;
};

class Source {
public:
  rxd_instance *instance = nullptr;
  Server server;
  int64_t timeout_ms = 0;

  int run(rxd_scope *scope, rxd_source *running) {
    self_running = running;
    if (!bind_all(scope)) return host->is_stopping(running) != 0 ? RXD_OK : RXD_FAILED;
    if (!server.start()) return fail_at(scope, "", "no thread can be started");
    while (turn()) {}
    server.close_listeners();
    settle();
    server.stop(STOP_MS);
    return RXD_OK;
  }

private:
  rxd_source *self_running = nullptr;
  std::map<uint64_t, Flight> flights; /* by the first token */
  uint64_t next_token = 1;
  size_t unused = 0; /* bytes of requests without events since the last event; rxd frees their scope memory only with the next event */

  bool bind_all(rxd_scope *scope) {
    std::string problem;
    const char *at = "";
    bool is_in_use = false, is_told = false;
    for (int64_t end = now_ms() + BIND_MS; !server.listen(problem, at, is_in_use);) {
      if (host->is_stopping(self_running) != 0) return false;
      if (!is_in_use || now_ms() >= end) {
        fail_at(scope, at, "%s", problem.c_str());
        return false;
      }
      if (!is_told) report(instance, "warning", "%s; trying again for %d s", problem.c_str(), BIND_MS / 1000);
      is_told = true;
      pause_source(self_running, BIND_PAUSE_MS);
    }
    for (auto &listener : server.listeners) {
      char text[300];
      if (listener.is_used)
        report(instance, "info", "receiving OTLP on %s%s", address_text(&listener.where, text, sizeof text),
               server.tls != nullptr ? ", with TLS" : "");
    }
    return true;
  }

  /* False: rxd wants the source to stop. */
  bool turn() {
    Arrival arrival;
    if (server.next(arrival)) {
      if (!take(arrival)) return false;
      take_acks();
    } else if (take_acks() == 0) wait_for_work();
    expire();
    return host->is_stopping(self_running) == 0;
  }

  void wait_for_work() {
    struct pollfd both[2] = {{server.ready(), POLLIN, 0}, {host->wake_descriptor(self_running), POLLIN, 0}};
    poll(both, 2, POLL_MS);
  }

  /* ---- Requests ---- */

  /* Converts the request to protobuf. False: the body is not a valid request. */
  bool decode(Arrival &arrival, std::string &problem) {
    if (!arrival.is_json) return true;
    rxd_scope *scope = host->source_scope(self_running);
    rxd_value json;
    std::string request;
    if (host->parse_json(scope, text_of(std::string_view(arrival.body)), &json) != RXD_OK) {
      problem = "the body is no JSON document";
      return false;
    }
    if (!request_of_json(scope, json, arrival.signal, request, problem)) return false;
    arrival.body = std::move(request);
    return true;
  }

  bool take(Arrival &arrival) {
    std::string problem;
    size_t reserved = arrival.body.size();
    Taken taken;
    uint64_t first = next_token;
    Flight *flight = nullptr;
    if (!decode(arrival, problem)) {
      taken.is_malformed = true;
      taken.reason = problem;
    } else {
      auto begin = [&](size_t count) {
        if (count == 0) return first;
        flight = &flights[first];
        flight->ticket = arrival.ticket;
        flight->count = flight->left = count;
        flight->answer_by = now_ms() + timeout_ms;
        next_token += count;
        return first;
      };
      taken = add_events(self_running, arrival.body, arrival.signal, begin, [this] { take_acks(), expire(); });
    }
    server.release(reserved);
    unused = taken.added > 0 ? 0 : unused + reserved;
    if (unused > server.limits.body) note_unused(taken.reason);
    if (taken.rejected > 0) host->count_up(instance, RXD_TEXT_OF("rejected"), static_cast<int64_t>(taken.rejected));
    if (taken.is_malformed) {
      if (flight != nullptr) flights.erase(first);
      server.answer(arrival.ticket, {Reply::malformed, taken.reason, 0});
      return true;
    }
    Reply reply = {Reply::done, taken.reason, taken.rejected};
    if (flight == nullptr) {
      server.answer(arrival.ticket, reply);
      return true;
    }
    flight->is_open = false;
    flight->left -= flight->count - taken.added;
    flight->reply = std::move(reply);
    if (taken.is_stopped) flight->has_failed = true;
    finish_if_over(flights.find(first));
    return !taken.is_stopped;
  }

  /* Reports requests without events to the errors output, which lets rxd free their memory. */
  void note_unused(const std::string &reason) {
    std::string message = "requests of " + std::to_string(unused) + " bytes had no events; of the last one, "
                          + (reason.empty() ? "there are no records" : reason);
    host->reject_input(self_running, RXD_TEXT_OF(""), text_of(std::string_view(message)), 0);
    host->flush(self_running);
    unused = 0;
  }

  /* ---- Acknowledgements ---- */

  void answer(Flight &flight, Reply reply) {
    if (!flight.is_answered) server.answer(flight.ticket, std::move(reply));
    flight.is_answered = true;
  }

  void finish_if_over(std::map<uint64_t, Flight>::iterator at) {
    Flight &flight = at->second;
    if (flight.is_open || flight.left > 0) return;
    if (flight.has_failed) answer(flight, {Reply::unavailable, "the pipeline has not taken all events", 0});
    else answer(flight, flight.reply);
    flights.erase(at);
  }

  size_t take_acks(int64_t wait_ms = 0) {
    rxd_ack acks[256];
    enum { MOST = sizeof acks / sizeof acks[0] };
    size_t count, all = 0;
    do {
      count = host->acks(self_running, acks, MOST, wait_ms * 1000000);
      for (size_t i = 0; i < count; i++) judge(acks[i]);
      all += count;
      wait_ms = 0;
    } while (count == MOST);
    return all;
  }

  void judge(const rxd_ack &ack) {
    auto at = flights.upper_bound(ack.token);
    if (at == flights.begin()) return;
    --at;
    Flight &flight = at->second;
    if (ack.token - at->first >= flight.count || flight.left == 0) return;
    flight.left--;
    if (ack.is_failed != 0) flight.has_failed = true;
    finish_if_over(at);
  }

  /* Answers requests whose events are not acknowledged within 'timeout', so that clients retry. */
  void expire() {
    if (flights.empty()) return;
    int64_t now = now_ms();
    for (auto &entry : flights) {
      Flight &flight = entry.second;
      if (now < flight.answer_by) break; /* flights are ordered by deadline */
      if (!flight.is_answered) host->count_up(instance, RXD_TEXT_OF("timeouts"), 1);
      answer(flight, {Reply::unavailable, "the pipeline has not acknowledged the events within 'timeout'", 0});
    }
  }

  void settle() {
    Arrival arrival;
    while (server.next(arrival)) {
      server.answer(arrival.ticket, {Reply::unavailable, "the pipeline is stopping", 0});
      server.release(arrival.body.size());
    }
    for (int64_t end = now_ms() + ACKS_MS; !flights.empty() && host->is_stopping(self_running) != 2 && now_ms() < end;) {
      take_acks(100);
      expire();
    }
    take_acks();
  }
};

/* ---- Opening ---- */

int listener_parameter(const rxd_opening *opening, const char *name, Listener &listener) {
  static const address_form form = {"http", "https", 4318, 4318, false};
  std::string text;
  if (string_parameter(opening, name, text) != RXD_OK) return RXD_FAILED;
  listener.parameter = name;
  if (text.empty()) return RXD_OK;
  char problem[200];
  if (text.find("://") != std::string::npos) return fail_at(opening->scope, name, "must be HOST:PORT, without a scheme");
  if (parse_address(text.c_str(), &form, &listener.where, problem, sizeof problem) != nullptr)
    return fail_at(opening->scope, name, "%s", problem);
  if (strcmp(name, "grpc") == 0 && text.find(':') == std::string::npos) listener.where.port = 4317;
  listener.is_used = true;
  return RXD_OK;
}

int signals_parameter(const rxd_opening *opening, bool *takes) {
  rxd_value list = parameter(opening, "signals");
  size_t count = host->count(opening->scope, &list);
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    std::string_view name = view_of(host->text(opening->scope, &element));
    bool is_known = false;
    for (int j = 0; j < SIGNALS; j++)
      if (name == names_of(static_cast<Signal>(j)).plural) is_known = takes[j] = true;
    if (!is_known)
      return fail_at(opening->scope, "signals", "'%.*s' is no signal; use logs, metrics, traces", static_cast<int>(name.size() < 40 ? name.size() : 40),
                     name.data());
  }
  return count > 0 ? RXD_OK : fail_at(opening->scope, "signals", "at least one must be there");
}

int tls_problem(const rxd_opening *opening, const char *at, const std::string &file) {
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  int status = fail_at(opening->scope, at, "%.200s cannot be used: %s", file.c_str(), reason != nullptr ? reason : "it has no such PEM block");
  ERR_clear_error();
  return status;
}

int choose_protocol(SSL *, const unsigned char **out, unsigned char *count, const unsigned char *in, unsigned in_count, void *) {
  static const unsigned char ours[] = "\x02h2\x08http/1.1";
  if (SSL_select_next_proto(const_cast<unsigned char **>(out), count, ours, sizeof ours - 1, in, in_count) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  return SSL_TLSEXT_ERR_OK;
}

int tls_parameters(const rxd_opening *opening, Server &server) {
  std::string certificate, key, client_ca;
  if (string_parameter(opening, "certificate", certificate) != RXD_OK || string_parameter(opening, "certificateKey", key) != RXD_OK
      || string_parameter(opening, "clientCa", client_ca) != RXD_OK)
    return RXD_FAILED;
  if (certificate.empty() && key.empty() && client_ca.empty()) return RXD_OK;
  if (certificate.empty()) return fail_at(opening->scope, key.empty() ? "clientCa" : "certificateKey", "has no effect without 'certificate'");
  if (key.empty()) return fail_at(opening->scope, "certificate", "needs 'certificateKey'");
  ERR_clear_error();
  server.tls = SSL_CTX_new(TLS_server_method());
  if (server.tls == nullptr) return fail_at(opening->scope, "certificate", "TLS cannot be set up");
  SSL_CTX_set_min_proto_version(server.tls, TLS1_2_VERSION);
  SSL_CTX_set_mode(server.tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(server.tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_alpn_select_cb(server.tls, choose_protocol, nullptr);
  if (SSL_CTX_use_certificate_chain_file(server.tls, certificate.c_str()) != 1) return tls_problem(opening, "certificate", certificate);
  if (SSL_CTX_use_PrivateKey_file(server.tls, key.c_str(), SSL_FILETYPE_PEM) != 1) return tls_problem(opening, "certificateKey", key);
  if (client_ca.empty()) return RXD_OK;
  if (SSL_CTX_load_verify_locations(server.tls, client_ca.c_str(), nullptr) != 1) return tls_problem(opening, "clientCa", client_ca);
  SSL_CTX_set_verify(server.tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return RXD_OK;
}

int limit_parameter(const rxd_opening *opening, const char *name, int64_t least, int64_t most, size_t &limit) {
  int64_t value = integer_parameter(opening, name, least);
  if (value < least || value > most)
    return fail_at(opening->scope, name, "must be from %lld to %lld bytes", static_cast<long long>(least), static_cast<long long>(most));
  limit = static_cast<size_t>(value);
  return RXD_OK;
}

int source_parameters(const rxd_opening *opening, Source &self) {
  Server &server = self.server;
  self.instance = server.instance = opening->instance;
  if (listener_parameter(opening, "http", server.listeners[0]) != RXD_OK || listener_parameter(opening, "grpc", server.listeners[1]) != RXD_OK)
    return RXD_FAILED;
  Listener &http = server.listeners[0], &grpc = server.listeners[1];
  if (!http.is_used && !grpc.is_used) return fail_at(opening->scope, "http", "is empty, and so is 'grpc': nothing would be received");
  if (http.is_used && grpc.is_used && http.where.port == grpc.where.port && strcmp(http.where.name, grpc.where.name) == 0)
    return fail_at(opening->scope, "grpc", "is the address of 'http'; leave one of them empty: each address takes both protocols");
  if (signals_parameter(opening, server.takes) != RXD_OK || string_parameter(opening, "authorization", server.authorization) != RXD_OK)
    return RXD_FAILED;
  if (limit_parameter(opening, "maxBody", 1024, 1 << 30, server.limits.body) != RXD_OK
      || limit_parameter(opening, "maxPending", 1024, static_cast<int64_t>(16) << 30, server.limits.pending) != RXD_OK)
    return RXD_FAILED;
  if (server.limits.pending < server.limits.body)
    return fail_at(opening->scope, "maxPending", "must not be smaller than 'maxBody'");
  server.limits.connections = static_cast<size_t>(integer_parameter(opening, "maxConnections", 1000));
  server.limits.idle_ms = milliseconds_parameter(opening, "idleTimeout", 60000);
  self.timeout_ms = milliseconds_parameter(opening, "timeout", 10000);
  return tls_parameters(opening, server);
}

int source_open(const rxd_opening *opening, void **instance) {
  return guarded(opening->scope, [&] {
    auto self = std::make_unique<Source>();
    if (source_parameters(opening, *self) != RXD_OK) return static_cast<int>(RXD_FAILED);
    *instance = self.release();
    return static_cast<int>(RXD_OK);
  });
}

void source_close(void *opaque) { delete static_cast<Source *>(opaque); }

int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  return guarded(scope, [&] { return static_cast<Source *>(opaque)->run(scope, running); });
}

rxd_component component() {
  rxd_component made = {};
  made.size = sizeof made;
  made.name = RXD_TEXT_OF("otlp");
  made.kind = RXD_TEXT_OF("source");
  made.open = source_open;
  made.close = source_close;
  made.run = source_run;
  return made;
}
} // namespace

const rxd_component otlp_source = component();
