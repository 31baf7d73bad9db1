#include "server.h"

#include "gzip.h"
#include "json.h"
#include "otlp.pb.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

namespace {
enum {
  READ_MOST = 64 << 10,      /* bytes per read */
  READS_MOST = 8,            /* reads of one connection before others get a turn */
  OUT_MOST = 256 << 10,      /* bytes buffered for sending */
  HEAD_MOST = 32 << 10,      /* bytes of a request's head */
  CHUNK_LINE_MOST = 1 << 10, /* bytes of a chunk-size line */
  STREAMS_MOST = 256,        /* concurrent streams per connection */
  WINDOW = 1 << 20,          /* HTTP/2 flow-control window */
  LINGER_MS = 2000,          /* time for a refused client to finish sending before the close */
  NO_DESCRIPTORS_MS = 100,
  FRAME_HEAD = 5,            /* gRPC message prefix */
  WAIT_MS = 1000,
};

struct Meaning {
  int http;
  const char *http_text;
  int grpc;
  const char *counter;
};

const Meaning &meaning_of(Reply::Kind kind) {
  static const Meaning meanings[] = {
    {200, "OK", GRPC_OK, "requests"},
    {400, "Bad Request", GRPC_INVALID_ARGUMENT, "malformed"},
    {413, "Content Too Large", GRPC_RESOURCE_EXHAUSTED, "tooLarge"},
    {503, "Service Unavailable", GRPC_UNAVAILABLE, "unavailable"},
    {401, "Unauthorized", GRPC_UNAUTHENTICATED, "unauthorized"},
    {404, "Not Found", GRPC_UNIMPLEMENTED, "malformed"},
    {405, "Method Not Allowed", GRPC_UNIMPLEMENTED, "malformed"},
    {415, "Unsupported Media Type", GRPC_INVALID_ARGUMENT, "malformed"},
    {415, "Unsupported Media Type", GRPC_UNIMPLEMENTED, "malformed"},
    {400, "Bad Request", GRPC_INVALID_ARGUMENT, "malformed"},
  };
  return meanings[kind];
}

bool begins_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

std::string lower(std::string_view text) {
  std::string made(text);
  for (char &c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

std::string base64(std::string_view bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string made;
  uint32_t bits = 0;
  int count = 0;
  for (char c : bytes) {
    bits = bits << 8 | static_cast<uint8_t>(c);
    for (count += 8; count >= 6;) made += digits[bits >> (count -= 6) & 63];
  }
  if (count > 0) made += digits[bits << (6 - count) & 63];
  return made;
}

std::string percent_encoded(std::string_view text) {
  static const char digits[] = "0123456789ABCDEF";
  std::string made;
  for (char c : text) {
    if (c >= ' ' && c < 127 && c != '%') made += c;
    else {
      made += '%';
      made += digits[static_cast<uint8_t>(c) >> 4];
      made += digits[c & 15];
    }
  }
  return made;
}

/* Constant-time comparison. */
bool is_equal_secret(const std::string &a, const std::string &b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string retry_info_bytes() {
  rxd_otlp::RetryInfo info;
  info.mutable_delay()->set_seconds(1);
  return info.SerializeAsString();
}

/* Encodes google.rpc.Status; for `unavailable` it asks the client to retry after a second. */
std::string status_bytes(const Reply &reply) {
  rxd_otlp::Failure failure;
  failure.set_code(meaning_of(reply.kind).grpc);
  failure.set_message(reply.message);
  if (reply.kind == Reply::unavailable) {
    auto *detail = failure.add_details();
    detail->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
    detail->set_value(retry_info_bytes());
  }
  return failure.SerializeAsString();
}

std::string response_bytes(const Reply &reply) {
  rxd_otlp::Response response;
  if (reply.rejected > 0) {
    response.mutable_partial_success()->set_rejected(static_cast<int64_t>(reply.rejected));
    response.mutable_partial_success()->set_message(reply.message);
  }
  return response.SerializeAsString();
}

std::string json_of(const Reply &reply, Signal signal) {
  if (reply.kind != Reply::done)
    return "{\"code\":" + std::to_string(meaning_of(reply.kind).grpc) + ",\"message\":" + json_text(reply.message) + "}";
  if (reply.rejected == 0) return "{}";
  return std::string("{\"partialSuccess\":{\"") + names_of(signal).rejected + "\":\"" + std::to_string(reply.rejected)
         + "\",\"errorMessage\":" + json_text(reply.message) + "}}";
}
} // namespace

/* ---- Exchanges: a request and its answer, over any protocol ---- */

struct Exchange {
  uint64_t number = 0;
  int64_t began = now_ms();
  std::string method, path, content_type, encoding, grpc_encoding, authorization;
  size_t header_bytes = 0;
  bool has_begun = false, is_grpc = false, is_json = false;
  Signal signal{};
  std::string body;
  bool is_early = false; /* the answer is known before the body has arrived; the body is dropped */
  Reply early;
  bool is_waiting = false; /* waits for the source's answer */
  /* HTTP/2: the answer being sent. */
  std::string out;
  size_t sent = 0;
  std::vector<std::pair<std::string, std::string>> trailers;
};

struct Connection {
  enum Mode { unknown, http1, http2, lingering };
  enum State { head, content, chunk_line, chunk, chunk_end, trailer, waiting };

  Server &server;
  uint64_t id = 0;
  int fd = -1;
  SSL *ssl = nullptr;
  bool is_shaking = false; /* the TLS handshake is not finished */
  bool is_dead = false, ends_after_sending = false, lingers_after_sending = false, has_more = false;
  Mode mode = unknown;
  uint32_t watched = 0; /* epoll events */
  int64_t last_used, end_at = 0;
  int64_t began = 0; /* HTTP/1.1: when the current request began */
  std::string in, out;
  size_t in_at = 0, out_at = 0;
  bool ssl_wants_write = false;
  /* HTTP/1.1 */
  State state = head;
  Exchange one;
  uint64_t left = 0; /* bytes left of the body or the chunk */
  bool keeps_alive = false, expects_continue = false;
  /* HTTP/2 */
  nghttp2_session *session = nullptr;
  std::unordered_map<int32_t, Exchange> streams;

  explicit Connection(Server &server) : server(server), last_used(now_ms()) {}
  ~Connection() {
    forget(one);
    for (auto &stream : streams) forget(stream.second);
    nghttp2_session_del(session);
    SSL_free(ssl);
    if (fd >= 0) close(fd);
  }
  Connection(const Connection &) = delete;

  bool is_busy() const {
    if (state != head || in_at < in.size()) return true;
    return !streams.empty();
  }

  /* ---- Requests ---- */

  void refuse(Exchange &exchange, Reply::Kind kind, const char *message) {
    forget(exchange);
    exchange.is_early = true;
    exchange.early = {kind, message, 0};
  }

  /* Releases the memory reserved for the body. */
  void forget(Exchange &exchange) {
    server.release(exchange.body.size());
    exchange.body = std::string();
  }

  /* Called when the head is complete. */
  void begin(Exchange &exchange, uint64_t length) {
    exchange.has_begun = true;
    exchange.number = ++server.last_number;
    std::string type = lower(exchange.content_type.substr(0, exchange.content_type.find(';')));
    while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
    exchange.is_grpc = session != nullptr && begins_with(type, "application/grpc");
    exchange.is_json = type == "application/json";
    exchange.path = exchange.path.substr(0, exchange.path.find('?'));
    if (exchange.is_grpc) exchange.encoding = exchange.grpc_encoding;
    bool is_known = false;
    for (int i = 0; i < SIGNALS; i++) {
      const SignalNames &names = names_of(static_cast<Signal>(i));
      std::string path = exchange.is_grpc ? std::string(names.service) : std::string("/v1/") + names.plural;
      if (exchange.path != path || !server.takes[i]) continue;
      is_known = true;
      exchange.signal = static_cast<Signal>(i);
    }
    if (!is_known) refuse(exchange, Reply::no_such_path, "there is no such path here, or its signal is not received");
    else if (exchange.method != "POST") refuse(exchange, Reply::no_such_method, "use POST");
    else if (!server.authorization.empty() && !is_equal_secret(exchange.authorization, server.authorization))
      refuse(exchange, Reply::unauthorized, "the header 'authorization' is not the one that is required");
    else if (exchange.is_grpc ? type != "application/grpc" && type != "application/grpc+proto"
                              : type != "application/x-protobuf" && !exchange.is_json)
      refuse(exchange, Reply::wrong_type, "the content type must be application/x-protobuf, application/json or application/grpc");
    else if (!exchange.encoding.empty() && exchange.encoding != "identity" && exchange.encoding != "gzip")
      refuse(exchange, Reply::wrong_encoding, "the encoding must be gzip or identity");
    else if (length > server.limits.body) refuse(exchange, Reply::too_large, "the body is larger than 'maxBody'");
    else if (server.is_closing) refuse(exchange, Reply::unavailable, "the pipeline is stopping");
    exchange.authorization.clear();
  }

  void add_body(Exchange &exchange, const char *bytes, size_t count) {
    if (exchange.is_early) return;
    if (exchange.body.size() + count > server.limits.body + (exchange.is_grpc ? static_cast<size_t>(FRAME_HEAD) : 0))
      refuse(exchange, Reply::too_large, "the body is larger than 'maxBody'");
    else if (!server.reserve(count)) refuse(exchange, Reply::unavailable, "too much is waiting for the pipeline ('maxPending')");
    else exchange.body.append(bytes, count);
  }

  /* Extracts the only message of a unary gRPC call. */
  void unframe(Exchange &exchange) {
    std::string &body = exchange.body;
    const auto *bytes = reinterpret_cast<const uint8_t *>(body.data());
    size_t length = body.size() < FRAME_HEAD ? SIZE_MAX
                                             : static_cast<size_t>(bytes[1]) << 24 | static_cast<size_t>(bytes[2]) << 16
                                                 | static_cast<size_t>(bytes[3]) << 8 | static_cast<size_t>(bytes[4]);
    if (length != body.size() - FRAME_HEAD || bytes[0] > 1)
      return refuse(exchange, Reply::malformed, "the call must have one message");
    if (bytes[0] == 0) exchange.encoding.clear();
    else if (exchange.encoding != "gzip")
      return refuse(exchange, Reply::wrong_encoding, "the message is compressed, and 'grpc-encoding' is not gzip");
    body.erase(0, FRAME_HEAD);
    server.release(FRAME_HEAD);
  }

  void unpack(Exchange &exchange) {
    std::string bytes;
    switch (gunzip(exchange.body, server.limits.body, bytes)) {
    case Unpacked::damaged: return refuse(exchange, Reply::malformed, "the body is no gzip stream, or is damaged");
    case Unpacked::too_large: return refuse(exchange, Reply::too_large, "the unpacked body is larger than 'maxBody'");
    case Unpacked::done: break;
    }
    if (!server.reserve(bytes.size()))
      return refuse(exchange, Reply::unavailable, "too much is waiting for the pipeline ('maxPending')");
    server.release(exchange.body.size());
    bytes.shrink_to_fit();
    exchange.body = std::move(bytes);
  }

  /* Called when the request is complete. */
  void finish(Exchange &exchange, int32_t stream) {
    if (!exchange.is_early && exchange.is_grpc) unframe(exchange);
    if (!exchange.is_early && exchange.encoding == "gzip") unpack(exchange);
    if (exchange.is_early) {
      send(exchange, exchange.early, stream);
      return;
    }
    exchange.is_waiting = true;
    server.hand_over({{id, stream, exchange.number}, exchange.signal, exchange.is_json, std::move(exchange.body)});
    exchange.body = std::string();
  }

  void send(Exchange &exchange, const Reply &reply, int32_t stream) {
    exchange.is_waiting = false;
    server.count(meaning_of(reply.kind).counter);
    if (session != nullptr) send2(exchange, reply, stream);
    else send1(exchange, reply);
  }

  std::string http_body(const Exchange &exchange, const Reply &reply) const {
    return exchange.is_json              ? json_of(reply, exchange.signal)
           : reply.kind == Reply::done   ? response_bytes(reply)
                                         : status_bytes(reply);
  }

  /* ---- HTTP/1.1 ---- */

  void send1(Exchange &exchange, const Reply &reply) {
    const Meaning &meaning = meaning_of(reply.kind);
    std::string body = http_body(exchange, reply);
    char date[40];
    time_t now = time(nullptr);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    if (server.is_closing) keeps_alive = false;
    out += "HTTP/1.1 " + std::to_string(meaning.http) + " " + meaning.http_text + "\r\nDate: " + date
           + "\r\nContent-Type: " + (exchange.is_json ? "application/json" : "application/x-protobuf")
           + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    if (reply.kind == Reply::unavailable) out += "Retry-After: 1\r\n";
    if (reply.kind == Reply::unauthorized) out += "WWW-Authenticate: Bearer\r\n";
    if (reply.kind == Reply::no_such_method) out += "Allow: POST\r\n";
    if (reply.kind == Reply::wrong_encoding) out += "Accept-Encoding: gzip\r\n";
    if (!keeps_alive) out += "Connection: close\r\n", ends_after_sending = true;
    out += "\r\n";
    if (exchange.method != "HEAD") out += body;
    one = Exchange();
    state = head;
  }

  /* Refuses the request without reading the rest of it. */
  void cut_off(Exchange &exchange, const Reply &reply) {
    forget(exchange);
    keeps_alive = false;
    lingers_after_sending = true;
    send(exchange, reply, 0);
  }

  void bad_request(const char *message) { cut_off(one, {Reply::wrong_request, message, 0}); }

  static bool is_token(std::string_view text) {
    for (char c : text)
      if (!isalnum(static_cast<unsigned char>(c)) && (c == 0 || strchr("!#$%&'*+-.^_`|~", c) == nullptr)) return false;
    return !text.empty();
  }

  static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
  }

  /* Parses the head of a request. Returns NULL, or the reason why it is malformed. */
  const char *read_head(std::string_view text) {
    size_t end = text.find("\r\n");
    std::string_view line = text.substr(0, end);
    size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first + 1 >= last || !is_token(line.substr(0, first))) return "the request line is malformed";
    std::string_view version = line.substr(last + 1), target = line.substr(first + 1, last - first - 1);
    if (version != "HTTP/1.1" && version != "HTTP/1.0") return "the version must be HTTP/1.1";
    keeps_alive = version == "HTTP/1.1";
    one.method = line.substr(0, first);
    if (begins_with(target, "http://") || begins_with(target, "https://")) {
      size_t path = target.find('/', target.find("//") + 2);
      target = path == std::string_view::npos ? "/" : target.substr(path);
    }
    one.path = target;
    bool has_length = false, is_chunked = false, has_host = false;
    expects_continue = false;
    left = 0;
    for (text.remove_prefix(end + 2); !text.empty(); text.remove_prefix(end + 2)) {
      end = text.find("\r\n");
      line = text.substr(0, end);
      size_t colon = line.find(':');
      if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return "a header is malformed";
      std::string name = lower(line.substr(0, colon));
      std::string_view value = trimmed(line.substr(colon + 1));
      for (char c : value)
        if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 127) return "a header is malformed";
      if (name == "content-type") one.content_type = value;
      else if (name == "content-encoding") one.encoding = lower(value);
      else if (name == "authorization") one.authorization = value;
      else if (name == "host") has_host = true;
      else if (name == "connection") {
        std::string all = lower(value);
        if (all.find("close") != std::string::npos) keeps_alive = false;
        else if (all.find("keep-alive") != std::string::npos) keeps_alive = true;
      } else if (name == "expect") {
        if (lower(value) != "100-continue") return "there is no such expectation";
        expects_continue = true;
      } else if (name == "transfer-encoding") {
        if (is_chunked || lower(value) != "chunked") return "the transfer encoding must be 'chunked'";
        is_chunked = true;
      } else if (name == "content-length") {
        uint64_t length = 0;
        if (value.empty() || value.size() > 18) return "the content length is not a number";
        for (char c : value) {
          if (c < '0' || c > '9') return "the content length is not a number";
          length = length * 10 + static_cast<uint64_t>(c - '0');
        }
        if (has_length && length != left) return "the content length is given twice";
        has_length = true;
        left = length;
      }
    }
    if (has_length && is_chunked) return "a content length and a transfer encoding are given";
    if (version == "HTTP/1.1" ? !has_host : is_chunked) return "the header 'host' is missing, or the version is too old";
    state = is_chunked ? chunk_line : content;
    return nullptr;
  }

  /* False: the head is incomplete. */
  bool take_head() {
    while (in.size() - in_at >= 2 && in[in_at] == '\r' && in[in_at + 1] == '\n') in_at += 2;
    size_t end = in.find("\r\n\r\n", in_at);
    if (end == std::string::npos) {
      if (in.size() - in_at > HEAD_MOST) bad_request("the head of the request is too large");
      return false;
    }
    if (end - in_at > HEAD_MOST) {
      bad_request("the head of the request is too large");
      return false;
    }
    std::string text = in.substr(in_at, end + 2 - in_at);
    in_at = end + 4;
    one = Exchange();
    if (const char *problem = read_head(text)) {
      bad_request(problem);
      return false;
    }
    begin(one, left);
    /* After a refusal, a client that sent 'Expect: 100-continue' may or may not send its body. */
    if (one.is_early && (expects_continue || left > server.limits.body)) {
      cut_off(one, one.early);
      return false;
    }
    if (expects_continue) out += "HTTP/1.1 100 Continue\r\n\r\n";
    if (state == content && left == 0) finish1();
    return true;
  }

  void finish1() {
    state = waiting;
    finish(one, 0);
  }

  /* Takes a line from `in`; false: it is incomplete. */
  bool take_line(std::string_view &line) {
    size_t end = in.find("\r\n", in_at);
    if (end == std::string::npos) {
      if (in.size() - in_at > CHUNK_LINE_MOST) bad_request("a chunk is malformed");
      return false;
    }
    line = std::string_view(in).substr(in_at, end - in_at);
    in_at = end + 2;
    return true;
  }

  bool take_chunk_line() {
    std::string_view line;
    if (!take_line(line)) return false;
    std::string_view digits = trimmed(line.substr(0, line.find(';')));
    left = 0;
    bool is_sound = !digits.empty() && digits.size() <= 8;
    for (char c : digits) {
      int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      is_sound = is_sound && digit >= 0;
      left = left << 4 | static_cast<uint64_t>(digit & 15);
    }
    if (!is_sound) bad_request("a chunk is malformed");
    else state = left == 0 ? trailer : chunk;
    return is_sound;
  }

  bool take_trailer() {
    std::string_view line;
    if (!take_line(line)) return false;
    one.header_bytes += line.size();
    if (one.header_bytes > HEAD_MOST) {
      bad_request("the trailer is too large");
      return false;
    }
    if (line.empty()) finish1();
    return true;
  }

  bool take_content() {
    size_t count = std::min<uint64_t>(left, in.size() - in_at);
    if (count == 0) return false;
    add_body(one, in.data() + in_at, count);
    in_at += count;
    left -= count;
    if (one.is_early && one.early.kind == Reply::too_large) {
      cut_off(one, one.early);
      return false;
    }
    if (left > 0) return true;
    if (state == chunk) state = chunk_end;
    else finish1();
    return true;
  }

  bool step1() {
    switch (state) {
    case head: return in_at < in.size() && take_head();
    case content:
    case chunk: return take_content();
    case chunk_line: return take_chunk_line();
    case chunk_end: {
      if (in.size() - in_at < 2) return false;
      if (in[in_at] != '\r' || in[in_at + 1] != '\n') {
        bad_request("a chunk is malformed");
        return false;
      }
      in_at += 2;
      state = chunk_line;
      return true;
    }
    case trailer: return take_trailer();
    case waiting: return false;
    }
    return false;
  }

  /* ---- HTTP/2 ---- */

  static nghttp2_nv header(std::string_view name, std::string_view value) {
    return {reinterpret_cast<uint8_t *>(const_cast<char *>(name.data())), reinterpret_cast<uint8_t *>(const_cast<char *>(value.data())),
            name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
  }

  static std::vector<nghttp2_nv> headers_of(const std::vector<std::pair<std::string, std::string>> &pairs) {
    std::vector<nghttp2_nv> made;
    made.reserve(pairs.size());
    for (const auto &pair : pairs) made.push_back(header(pair.first, pair.second));
    return made;
  }

  static Exchange *exchange_of(Connection *self, int32_t stream) {
    auto found = self->streams.find(stream);
    return found == self->streams.end() ? nullptr : &found->second;
  }

  static int on_begin_headers(nghttp2_session *, const nghttp2_frame *frame, void *opaque) {
    auto *self = static_cast<Connection *>(opaque);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) self->streams[frame->hd.stream_id];
    return 0;
  }

  static int on_header(nghttp2_session *, const nghttp2_frame *frame, const uint8_t *name, size_t name_count, const uint8_t *value,
                       size_t value_count, uint8_t, void *opaque) {
    auto *self = static_cast<Connection *>(opaque);
    Exchange *exchange = exchange_of(self, frame->hd.stream_id);
    if (exchange == nullptr) return 0;
    exchange->header_bytes += name_count + value_count;
    if (exchange->header_bytes > HEAD_MOST) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (exchange->has_begun) return 0; /* a trailer */
    std::string_view key(reinterpret_cast<const char *>(name), name_count), text(reinterpret_cast<const char *>(value), value_count);
    if (key == ":method") exchange->method = text;
    else if (key == ":path") exchange->path = text;
    else if (key == "content-type") exchange->content_type = text;
    else if (key == "content-encoding") exchange->encoding = lower(text);
    else if (key == "grpc-encoding") exchange->grpc_encoding = lower(text);
    else if (key == "authorization") exchange->authorization = text;
    return 0;
  }

  static int on_frame(nghttp2_session *, const nghttp2_frame *frame, void *opaque) {
    auto *self = static_cast<Connection *>(opaque);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    Exchange *exchange = exchange_of(self, frame->hd.stream_id);
    if (exchange == nullptr) return 0;
    if (!exchange->has_begun) self->begin(*exchange, 0);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) self->finish(*exchange, frame->hd.stream_id);
    return 0;
  }

  static int on_data(nghttp2_session *, uint8_t, int32_t stream, const uint8_t *bytes, size_t count, void *opaque) {
    auto *self = static_cast<Connection *>(opaque);
    if (Exchange *exchange = exchange_of(self, stream)) self->add_body(*exchange, reinterpret_cast<const char *>(bytes), count);
    return 0;
  }

  static int on_close(nghttp2_session *, int32_t stream, uint32_t, void *opaque) {
    auto *self = static_cast<Connection *>(opaque);
    if (Exchange *exchange = exchange_of(self, stream)) {
      self->forget(*exchange);
      self->streams.erase(stream);
    }
    return 0;
  }

  static ssize_t on_read(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t length, uint32_t *flags, nghttp2_data_source *,
                         void *opaque) {
    auto *self = static_cast<Connection *>(opaque);
    Exchange *exchange = exchange_of(self, stream);
    if (exchange == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t count = std::min(length, exchange->out.size() - exchange->sent);
    memcpy(buffer, exchange->out.data() + exchange->sent, count);
    exchange->sent += count;
    if (exchange->sent < exchange->out.size()) return static_cast<ssize_t>(count);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!exchange->trailers.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      auto trailers = headers_of(exchange->trailers);
      nghttp2_submit_trailer(session, stream, trailers.data(), trailers.size());
    }
    return static_cast<ssize_t>(count);
  }

  bool begin2() {
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    int status = nghttp2_session_server_new(&session, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    if (status != 0) throw std::bad_alloc();
    const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MOST},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEAD_MOST},
    };
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof settings[0]);
    nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    return true;
  }

  void send2(Exchange &exchange, const Reply &reply, int32_t stream) {
    const Meaning &meaning = meaning_of(reply.kind);
    std::vector<std::pair<std::string, std::string>> pairs;
    bool is_grpc = exchange.is_grpc && reply.kind != Reply::wrong_type;
    pairs.emplace_back(":status", is_grpc ? "200" : std::to_string(meaning.http));
    if (is_grpc) {
      pairs.emplace_back("content-type", "application/grpc");
      auto &trailers = reply.kind == Reply::done ? exchange.trailers : pairs;
      trailers.emplace_back("grpc-status", std::to_string(meaning.grpc));
      if (reply.kind != Reply::done) trailers.emplace_back("grpc-message", percent_encoded(reply.message));
      if (reply.kind == Reply::unavailable) {
        trailers.emplace_back("grpc-status-details-bin", base64(status_bytes(reply)));
        trailers.emplace_back("google.rpc.retryinfo-bin", base64(retry_info_bytes())); /* Python's SDK reads this trailer */
      }
      if (reply.kind == Reply::wrong_encoding) trailers.emplace_back("grpc-accept-encoding", "identity,gzip");
      if (reply.kind == Reply::done) {
        std::string response = response_bytes(reply);
        size_t count = response.size();
        const char frame[FRAME_HEAD] = {0, static_cast<char>(count >> 24), static_cast<char>(count >> 16), static_cast<char>(count >> 8),
                                        static_cast<char>(count)};
        exchange.out = std::string(frame, sizeof frame) + response;
      }
    } else {
      pairs.emplace_back("content-type", exchange.is_json ? "application/json" : "application/x-protobuf");
      if (reply.kind == Reply::unavailable) pairs.emplace_back("retry-after", "1");
      exchange.out = http_body(exchange, reply);
    }
    auto headers = headers_of(pairs);
    nghttp2_data_provider data = {};
    data.read_callback = on_read;
    bool is_alone = is_grpc && reply.kind != Reply::done;
    nghttp2_submit_response(session, stream, headers.data(), headers.size(), is_alone ? nullptr : &data);
  }

  /* Appends pending HTTP/2 frames to `out`. */
  void pull2() {
    while (out.size() - out_at < OUT_MOST) {
      const uint8_t *bytes = nullptr;
      ssize_t count = nghttp2_session_mem_send(session, &bytes);
      if (count < 0) is_dead = true;
      if (count <= 0) return;
      out.append(reinterpret_cast<const char *>(bytes), static_cast<size_t>(count));
    }
  }

  bool step2() {
    if (in_at == in.size()) return false;
    ssize_t count =
      nghttp2_session_mem_recv(session, reinterpret_cast<const uint8_t *>(in.data()) + in_at, in.size() - in_at);
    in_at = in.size();
    if (count < 0) ends_after_sending = true; /* nghttp2 has queued a GOAWAY with the reason */
    return false;
  }

  /* ---- Bytes ---- */

  /* Detects HTTP/2 by the client's first bytes. */
  bool detect() {
    static const std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    std::string_view text = in;
    if (text.empty()) return false;
    bool may_be = begins_with(preface, text.substr(0, std::min(text.size(), preface.size())));
    if (may_be && text.size() < preface.size()) return false;
    mode = may_be ? http2 : http1;
    return mode == http1 || begin2();
  }

  bool step() {
    switch (mode) {
    case unknown: return detect();
    case http1: return step1();
    case http2: return step2();
    case lingering: in_at = in.size(); return false;
    }
    return false;
  }

  /* Whether more may be read: no answer must be sent first. */
  bool wants_input() const {
    if (is_dead || ends_after_sending || (mode == http1 && state == waiting)) return false;
    return out.size() - out_at < OUT_MOST;
  }

  /* False: nothing was received, or the connection has ended. */
  bool receive() {
    std::vector<char> &buffer = server.buffer;
    ssize_t count;
    if (ssl != nullptr) {
      ERR_clear_error();
      count = SSL_read(ssl, buffer.data(), READ_MOST);
      if (count <= 0) {
        int error = SSL_get_error(ssl, static_cast<int>(count));
        if (error == SSL_ERROR_WANT_WRITE) ssl_wants_write = true;
        else if (error != SSL_ERROR_WANT_READ) is_dead = true;
        return false;
      }
    } else {
      count = recv(fd, buffer.data(), READ_MOST, 0);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) is_dead = true;
      if (count <= 0) return false;
    }
    last_used = now_ms();
    if (!is_busy()) began = last_used;
    if (in_at == in.size()) in.clear(), in_at = 0;
    else if (in_at > READ_MOST) in.erase(0, in_at), in_at = 0;
    in.append(buffer.data(), static_cast<size_t>(count));
    return true;
  }

  void transmit() {
    while (out_at < out.size() && !is_dead) {
      ssize_t count;
      if (ssl != nullptr) {
        ERR_clear_error();
        count = SSL_write(ssl, out.data() + out_at, static_cast<int>(std::min<size_t>(out.size() - out_at, OUT_MOST)));
        if (count <= 0) {
          int error = SSL_get_error(ssl, static_cast<int>(count));
          if (error == SSL_ERROR_WANT_WRITE) ssl_wants_write = true;
          else if (error != SSL_ERROR_WANT_READ) is_dead = true;
          return;
        }
      } else {
        count = ::send(fd, out.data() + out_at, out.size() - out_at, MSG_NOSIGNAL);
        if (count < 0) {
          if (errno != EAGAIN && errno != EINTR) is_dead = true;
          return;
        }
      }
      last_used = now_ms();
      out_at += static_cast<size_t>(count);
      if (out_at == out.size()) out.clear(), out_at = 0;
      if (mode == http2) pull2();
    }
  }

  bool shake() {
    ERR_clear_error();
    int status = SSL_accept(ssl);
    if (status == 1) {
      is_shaking = false;
      return true;
    }
    int error = SSL_get_error(ssl, status);
    if (error == SSL_ERROR_WANT_WRITE) ssl_wants_write = true;
    else if (error != SSL_ERROR_WANT_READ) is_dead = true, server.count("tlsErrors");
    return false;
  }

  void linger() {
    if (ssl != nullptr) SSL_shutdown(ssl);
    shutdown(fd, SHUT_WR);
    mode = lingering;
    ends_after_sending = lingers_after_sending = false;
    end_at = now_ms() + LINGER_MS;
  }

  /* Reads, processes and sends as far as possible without blocking. */
  void work() {
    ssl_wants_write = has_more = false;
    if (is_shaking && !shake()) return;
    for (int reads = 0;; reads++) {
      while (wants_input() && step()) {}
      if (mode == http2) pull2();
      transmit();
      if (!wants_input()) break;
      /* Received data is processed before more is read. */
      if (reads == READS_MOST) {
        has_more = true;
        break;
      }
      if (!receive()) break;
    }
    if (mode == http2 && !nghttp2_session_want_read(session) && !nghttp2_session_want_write(session)) ends_after_sending = true;
    if (is_dead || out_at < out.size() || !ends_after_sending) return;
    if (lingers_after_sending) linger();
    else if (ssl != nullptr) SSL_shutdown(ssl), is_dead = true;
    else is_dead = true;
  }

  uint32_t wanted() const {
    uint32_t events = 0;
    if (is_shaking || mode == lingering || wants_input()) events |= EPOLLIN;
    if (ssl_wants_write || out_at < out.size()) events |= EPOLLOUT;
    return events;
  }
};

/* ---- The server, on its thread ---- */

Server::Server() {
  epoll = epoll_create1(EPOLL_CLOEXEC);
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  buffer.resize(READ_MOST);
}

Server::~Server() {
  stop(0);
  connections.clear();
  close_listeners();
  for (auto &listener : listeners)
    if (listener.fd >= 0) close(listener.fd);
  SSL_CTX_free(tls);
  for (int fd : {epoll, wake_fd, ready_fd})
    if (fd >= 0) close(fd);
}

static void signal_event(int descriptor) {
  uint64_t one = 1;
  if (write(descriptor, &one, sizeof one) < 0) return; /* the eventfd is already readable */
}

static void clear_event(int descriptor) {
  uint64_t ignored;
  if (read(descriptor, &ignored, sizeof ignored) < 0) return;
}

static int bind_listener(const address &where, std::string &problem, bool &is_in_use) {
  char text[300];
  address_text(&where, text, sizeof text);
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  int status = getaddrinfo(where.name, std::to_string(where.port).c_str(), &hints, &found);
  if (status != 0) {
    problem = std::string(text) + ": " + gai_strerror(status);
    return -1;
  }
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (fd >= 0 && (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0)) {
    is_in_use = errno == EADDRINUSE;
    problem = std::string(text) + ": " + strerror(errno);
    close(fd);
    fd = -1;
  } else if (fd < 0) problem = std::string(text) + ": " + strerror(errno);
  freeaddrinfo(found);
  return fd;
}

bool Server::listen(std::string &problem, const char *&at, bool &is_in_use) {
  is_in_use = false;
  if (epoll < 0 || wake_fd < 0 || ready_fd < 0) {
    problem = "no descriptors are left";
    return false;
  }
  for (auto &listener : listeners) {
    if (!listener.is_used || listener.fd >= 0) continue;
    at = listener.parameter;
    listener.fd = bind_listener(listener.where, problem, is_in_use);
    if (listener.fd < 0) return false;
  }
  return true;
}

bool Server::start() {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  epoll_ctl(epoll, EPOLL_CTL_ADD, wake_fd, &event);
  is_running = pthread_create(&thread, nullptr, run, this) == 0;
  return is_running;
}

void Server::close_listeners() {
  std::lock_guard<std::mutex> lock(mutex);
  is_closing = true;
  signal_event(wake_fd);
}

void Server::stop(int64_t wait_ms) {
  if (!is_running) return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    is_closing = is_ending = true;
    end_at = now_ms() + wait_ms;
  }
  signal_event(wake_fd);
  pthread_join(thread, nullptr);
  is_running = false;
}

bool Server::next(Arrival &arrival) {
  std::lock_guard<std::mutex> lock(mutex);
  if (arrivals.empty()) {
    clear_event(ready_fd);
    return false;
  }
  arrival = std::move(arrivals.front());
  arrivals.pop_front();
  return true;
}

void Server::answer(const Ticket &ticket, Reply reply) {
  bool was_empty;
  {
    std::lock_guard<std::mutex> lock(mutex);
    was_empty = answers.empty();
    answers.push_back({ticket, std::move(reply)});
  }
  if (was_empty) signal_event(wake_fd);
}

bool Server::reserve(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (pending + bytes > limits.pending) return false;
  pending += bytes;
  return true;
}

void Server::release(size_t bytes) {
  if (bytes == 0) return;
  std::lock_guard<std::mutex> lock(mutex);
  pending -= bytes;
}

void Server::hand_over(Arrival arrival) {
  bool was_empty;
  {
    std::lock_guard<std::mutex> lock(mutex);
    was_empty = arrivals.empty();
    arrivals.push_back(std::move(arrival));
  }
  if (was_empty) signal_event(ready_fd);
}

void Server::count(const char *name) { host->count_up(instance, text_of(name), 1); }

/* The connection that has been idle for longest; it is closed to make room for a new one. */
Connection *Server::longest_idle() {
  Connection *idle = nullptr;
  for (auto &entry : connections) {
    Connection *one = entry.second.get();
    bool is_idle = !one->is_busy() && one->out.empty();
    if (is_idle && (idle == nullptr || one->last_used < idle->last_used || (one->last_used == idle->last_used && one->id < idle->id)))
      idle = one;
  }
  return idle;
}

void Server::accept_all(Listener &listener) {
  for (;;) {
    bool is_full = connections.size() >= limits.connections;
    Connection *idle = is_full ? longest_idle() : nullptr;
    if (is_full && idle == nullptr) return watch_listeners();
    int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      accept_at = now_ms() + NO_DESCRIPTORS_MS;
      return watch_listeners();
    }
    if (idle != nullptr) drop(idle);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    auto connection = std::make_unique<Connection>(*this);
    connection->fd = fd;
    connection->id = ++last_connection;
    if (tls != nullptr) {
      connection->ssl = SSL_new(tls);
      if (connection->ssl == nullptr || SSL_set_fd(connection->ssl, fd) != 1) continue;
      connection->is_shaking = true;
    }
    epoll_event event = {};
    event.events = connection->watched = EPOLLIN;
    event.data.u64 = connection->id + 2;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) continue;
    connections[connection->id] = std::move(connection);
  }
}

/* Polls the listeners only while a connection could be accepted. */
void Server::watch_listeners() {
  bool has_room = connections.size() < limits.connections || longest_idle() != nullptr;
  bool wants = !is_closing && has_room && now_ms() >= accept_at;
  if (wants == is_accepting) return;
  is_accepting = wants;
  for (size_t i = 0; i < 2; i++) {
    if (listeners[i].fd < 0) continue;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = UINT64_MAX - i;
    epoll_ctl(epoll, wants ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listeners[i].fd, &event);
  }
}

void Server::drop(Connection *connection) { connections.erase(connection->id); }

void Server::take_answers() {
  std::vector<Answer> taken;
  clear_event(wake_fd);
  {
    std::lock_guard<std::mutex> lock(mutex);
    taken.swap(answers);
  }
  for (auto &one : taken) {
    auto found = connections.find(one.ticket.connection);
    if (found == connections.end()) continue;
    Connection *connection = found->second.get();
    Exchange *exchange = one.ticket.stream == 0 ? &connection->one : Connection::exchange_of(connection, one.ticket.stream);
    if (exchange == nullptr || !exchange->is_waiting || exchange->number != one.ticket.number) continue;
    connection->send(*exchange, one.reply, one.ticket.stream);
    connection->has_more = true;
  }
}

void Server::look_at_time(int64_t now) {
  std::vector<Connection *> over;
  for (auto &entry : connections) {
    Connection *one = entry.second.get();
    bool is_waiting = one->one.is_waiting;
    /* A request must be complete within twice the idle time, even if its bytes keep arriving. */
    bool is_slow = !is_waiting && one->mode != Connection::http2 && one->is_busy() && now - one->began >= 2 * limits.idle_ms;
    for (auto &stream : one->streams) {
      is_waiting = is_waiting || stream.second.is_waiting;
      is_slow = is_slow || (!stream.second.is_waiting && now - stream.second.began >= 2 * limits.idle_ms);
    }
    bool is_idle = !is_waiting && now - one->last_used >= limits.idle_ms;
    if (one->mode == Connection::lingering ? now >= one->end_at : is_idle || is_slow) over.push_back(one);
  }
  for (auto *one : over) drop(one);
}

void Server::turn(int64_t wait_ms) {
  enum { EVENTS = 64 };
  epoll_event events[EVENTS];
  watch_listeners();
  int count = epoll_wait(epoll, events, EVENTS, static_cast<int>(wait_ms));
  for (int i = 0; i < count; i++) {
    uint64_t what = events[i].data.u64;
    if (what >= UINT64_MAX - 1) accept_all(listeners[UINT64_MAX - what]);
    else if (what >= 2) {
      auto found = connections.find(what - 2);
      if (found == connections.end()) continue;
      Connection *connection = found->second.get();
      bool was_waiting = !connection->wants_input() && !connection->is_shaking;
      if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0 && was_waiting) connection->is_dead = true;
      if (connection->mode == Connection::lingering)
        while (!connection->is_dead && connection->receive()) connection->in_at = connection->in.size();
      connection->has_more = true;
    }
  }
  take_answers();
  std::vector<Connection *> over;
  for (auto &entry : connections) {
    Connection *connection = entry.second.get();
    if (!connection->has_more) continue;
    if (!connection->is_dead && connection->mode != Connection::lingering) connection->work();
    else connection->has_more = false;
    if (connection->is_dead) {
      over.push_back(connection);
      continue;
    }
    uint32_t wanted = connection->wanted();
    if (wanted == connection->watched) continue;
    epoll_event event = {};
    event.events = connection->watched = wanted;
    event.data.u64 = connection->id + 2;
    epoll_ctl(epoll, EPOLL_CTL_MOD, connection->fd, &event);
  }
  for (auto *connection : over) drop(connection);
}

void Server::serve() {
  int64_t looked = now_ms();
  for (bool was_closing = false;;) {
    bool has_more = false;
    for (auto &entry : connections) has_more = has_more || entry.second->has_more;
    turn(has_more ? 0 : is_ending ? 10 : WAIT_MS);
    int64_t now = now_ms();
    if (now - looked >= WAIT_MS) {
      looked = now;
      look_at_time(now);
    }
    if (is_closing && !was_closing) {
      was_closing = true;
      watch_listeners();
      for (auto &listener : listeners)
        if (listener.fd >= 0) close(listener.fd), listener.fd = -1;
    }
    if (!is_ending) continue;
    /* Clients of unanswered requests are told to retry. */
    bool is_sending = false;
    for (auto &entry : connections) {
      Connection *one = entry.second.get();
      std::vector<std::pair<Exchange *, int32_t>> waiting;
      if (one->one.is_waiting) waiting.emplace_back(&one->one, 0);
      for (auto &stream : one->streams)
        if (stream.second.is_waiting) waiting.emplace_back(&stream.second, stream.first);
      for (auto &exchange : waiting)
        one->send(*exchange.first, {Reply::unavailable, "the pipeline is stopping", 0}, exchange.second);
      if (one->session != nullptr) nghttp2_session_terminate_session(one->session, NGHTTP2_NO_ERROR);
      one->has_more = true;
      is_sending = is_sending || one->out_at < one->out.size() || !waiting.empty()
                   || (one->session != nullptr && nghttp2_session_want_write(one->session));
    }
    if (!is_sending || now >= end_at.load()) return;
  }
}

void *Server::run(void *opaque) {
  auto *self = static_cast<Server *>(opaque);
  try {
    self->serve();
  } catch (const std::exception &problem) {
    report(self->instance, "error", "the server has ended: %.200s", problem.what());
  }
  return nullptr;
}
