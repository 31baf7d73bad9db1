#include "client.h"

#include "gzip.h"
#include "otlp.pb.h"

#include <algorithm>
#include <charconv>

namespace {
enum {
  ANSWER_MOST = 1 << 20,
  HEADERS_MOST = 256 << 10,
  FRAME_HEAD = 5,
  REASON_MOST = 300,
  WAIT_MOST_MS = 300000, /* longest delay that a receiver may ask for */
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

size_t on_header(char *bytes, size_t size, size_t count, void *opaque) {
  auto *call = static_cast<Call *>(opaque);
  count *= size;
  std::string_view line(bytes, count);
  call->header_bytes += count;
  if (call->header_bytes > HEADERS_MOST) {
    call->is_too_large = true;
    return 0;
  }
  size_t colon = line.find(':');
  if (colon == std::string_view::npos) return count;
  std::string name(line.substr(0, colon));
  for (char &c : name) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
  std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "retry-after") call->retry_after = value;
  else if (name == "grpc-status") call->grpc_status = value;
  else if (name == "grpc-message") call->grpc_message = value;
  else if (name == "grpc-status-details-bin") call->grpc_details = value;
  return count;
}

size_t on_body(char *bytes, size_t size, size_t count, void *opaque) {
  auto *call = static_cast<Call *>(opaque);
  count *= size;
  if (call->answer.size() + count > ANSWER_MOST) {
    call->is_too_large = true;
    return 0;
  }
  call->answer.append(bytes, count);
  return count;
}

/* The text as messages show it: one line, printable, of limited length. */
std::string shown(std::string_view text) {
  std::string made(text.substr(0, REASON_MOST));
  for (char &c : made)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return is_utf8(made.data(), made.size()) ? made : "(no UTF-8)";
}

std::string percent_decoded(std::string_view text) {
  std::string made;
  for (size_t i = 0; i < text.size(); i++) {
    int value = 0;
    if (text[i] == '%' && i + 2 < text.size()
        && std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      made += static_cast<char>(value);
      i += 2;
    } else made += text[i];
  }
  return made;
}

std::string base64_decoded(std::string_view text) {
  static const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string made;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    size_t digit = digits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) < 8) continue;
    made += static_cast<char>(bits >> (count -= 8) & 255);
  }
  return made;
}

void wait_for(Call &call, int64_t milliseconds) {
  call.has_wait = true;
  call.wait_ms = std::clamp<int64_t>(milliseconds, 0, WAIT_MOST_MS);
}

/* Retry-After: seconds, or a date. */
void read_retry_after(Call &call) {
  const std::string &text = call.retry_after;
  if (text.empty()) return;
  int64_t seconds = 0;
  auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return wait_for(call, std::min<int64_t>(seconds, WAIT_MOST_MS) * 1000);
  time_t date = curl_getdate(text.c_str(), nullptr);
  if (date > 0) wait_for(call, (static_cast<int64_t>(date) - static_cast<int64_t>(time(nullptr))) * 1000);
}

/* google.rpc.Status: its message, and the delay that it asks for. */
std::string read_failure(Call &call, std::string_view bytes) {
  rxd_otlp::Failure failure;
  if (!failure.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
  for (const auto &detail : failure.details()) {
    rxd_otlp::RetryInfo info;
    if (detail.type_url().find("google.rpc.RetryInfo") == std::string::npos || !info.ParseFromString(detail.value())) continue;
    wait_for(call, std::clamp<int64_t>(info.delay().seconds(), 0, WAIT_MOST_MS) * 1000 + info.delay().nanoseconds() / 1000000);
  }
  return failure.message();
}

const char *grpc_name(int code) {
  static const char *const names[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
                                      "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
                                      "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code <= GRPC_UNAUTHENTICATED ? names[code] : "an unknown code";
}
} // namespace

Client::Client() : multi(curl_multi_init()) {
  if (multi == nullptr) throw std::bad_alloc();
  curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
}

void Client::prepare() { is_careful = is_grpc && !is_secure && curl_version_info(CURLVERSION_NOW)->version_num < 0x080000; }

Client::~Client() {
  for (CURL *curl : idle) curl_easy_cleanup(curl);
  curl_multi_cleanup(multi);
  for (auto &line : headers) explicit_bzero(&line[0], line.size());
}

std::string Client::pack(std::string request) const {
  if (packs) {
    std::string packed;
    gzip(request, packed);
    request = std::move(packed);
  }
  if (!is_grpc) return request;
  size_t count = request.size();
  const char head[FRAME_HEAD] = {static_cast<char>(packs), static_cast<char>(count >> 24), static_cast<char>(count >> 16),
                                 static_cast<char>(count >> 8), static_cast<char>(count)};
  return request.insert(0, head, sizeof head);
}

bool Client::start(Call &call) {
  if (idle.empty()) call.curl = curl_easy_init();
  else {
    call.curl = idle.back();
    idle.pop_back();
    curl_easy_reset(call.curl);
  }
  if (call.curl == nullptr) return false;
  call.answer.clear(), call.grpc_status.clear(), call.grpc_message.clear(), call.grpc_details.clear(), call.retry_after.clear();
  call.header_bytes = 0;
  call.is_too_large = call.has_wait = false;
  call.wait_ms = 0;
  call.problem[0] = 0;
  CURL *curl = call.curl;
  auto add = [&](const std::string &line) { call.headers = static_cast<curl_slist *>(need(curl_slist_append(call.headers, line.c_str()))); };
  call.headers = nullptr;
  add("Expect:");
  add("Accept:");
  add(std::string("Content-Type: ") + (is_grpc ? "application/grpc" : "application/x-protobuf"));
  if (is_grpc) add("te: trailers");
  if (packs) add(is_grpc ? "grpc-encoding: gzip" : "Content-Encoding: gzip");
  if (is_grpc) add("grpc-accept-encoding: identity");
  for (const auto &line : headers) add(line);
  const SignalNames &names = names_of(call.signal);
  std::string url = endpoint + (is_grpc ? std::string(names.service) : std::string("/v1/") + names.plural);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  call.is_first = is_careful && !is_connected;
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(!is_grpc                                   ? CURL_HTTP_VERSION_1_1
                                                                 : is_secure || (is_careful && !call.is_first) ? CURL_HTTP_VERSION_2TLS
                                                                                                            : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE));
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, call.is_first ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_PIPEWAIT, is_grpc ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXLIFETIME_CONN, 300L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect_ms));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_ms));
  curl_easy_setopt(curl, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (skips_verification) {
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!ca.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, ca.c_str());
  if (!certificate.empty()) curl_easy_setopt(curl, CURLOPT_SSLCERT, certificate.c_str());
  if (!key.empty()) curl_easy_setopt(curl, CURLOPT_SSLKEY, key.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, call.headers);
  curl_easy_setopt(curl, CURLOPT_POST, 1L);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call.body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &call);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &call);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, call.problem);
  curl_easy_setopt(curl, CURLOPT_PRIVATE, &call);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  running++;
  if (curl_multi_add_handle(multi, curl) == CURLM_OK) return true;
  end(call);
  return false;
}

Call *Client::wait(int wait_ms) {
  int running = 0, left = 0;
  curl_multi_perform(multi, &running);
  CURLMsg *message = curl_multi_info_read(multi, &left);
  if (message == nullptr) {
    curl_multi_poll(multi, nullptr, 0, wait_ms, nullptr);
    curl_multi_perform(multi, &running);
    message = curl_multi_info_read(multi, &left);
  }
  if (message == nullptr || message->msg != CURLMSG_DONE) return nullptr;
  Call *call = nullptr;
  CURLcode code = message->data.result;
  curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
  bool repeats = is_careful && must_repeat(*call, code);
  if (!repeats) judge(*call, code);
  curl_multi_remove_handle(multi, call->curl);
  end(*call);
  if (!repeats) return call;
  if (!start(*call)) throw std::bad_alloc();
  return nullptr;
}

void Client::cancel(Call &call) {
  if (call.curl == nullptr) return;
  curl_multi_remove_handle(multi, call.curl);
  end(call);
}

/* Whether the call opened a new connection although it expected to reuse one. */
bool Client::must_repeat(Call &call, CURLcode code) {
  long connects = 0;
  curl_easy_getinfo(call.curl, CURLINFO_NUM_CONNECTS, &connects);
  if (call.is_first) is_connected = code == CURLE_OK;
  else if (code != CURLE_OK || connects > 0) is_connected = false;
  return !call.is_first && connects > 0;
}

void Client::end(Call &call) {
  running--;
  curl_easy_setopt(call.curl, CURLOPT_ERRORBUFFER, nullptr);
  curl_easy_setopt(call.curl, CURLOPT_HTTPHEADER, nullptr);
  idle.push_back(call.curl);
  call.curl = nullptr;
  for (curl_slist *line = call.headers; line != nullptr; line = line->next) explicit_bzero(line->data, strlen(line->data));
  curl_slist_free_all(call.headers);
  call.headers = nullptr;
}

/* ---- What answers mean ---- */

void Client::judge(Call &call, CURLcode code) {
  long status = 0;
  bool &worked = has_worked[static_cast<int>(call.signal)];
  curl_easy_getinfo(call.curl, CURLINFO_RESPONSE_CODE, &status);
  if (code != CURLE_OK) {
    call.verdict = Verdict::again;
    call.reason = endpoint + ": "
                  + (call.is_too_large       ? "the answer is too large"
                     : call.problem[0] != 0 ? shown(call.problem)
                                            : curl_easy_strerror(code));
    bool is_certificate = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM;
    if (!is_certificate) return;
    call.reason += "; check the certificates, the name of the server and 'ca'";
    call.at = code == CURLE_SSL_CERTPROBLEM ? "certificate" : code == CURLE_SSL_CACERT_BADFILE ? "ca" : "endpoint";
    if (!worked) call.verdict = Verdict::misplaced;
    return;
  }
  if (is_grpc) judge_grpc(call, status);
  else judge_http(call, status);
  if (call.verdict == Verdict::misplaced && worked) call.verdict = Verdict::again;
  if (call.verdict == Verdict::delivered || call.verdict == Verdict::partly) worked = true;
}

/* Reads from a successful answer whether records were rejected. */
void Client::judge_answer(Call &call, std::string_view answer) {
  rxd_otlp::Response response;
  call.verdict = Verdict::delivered;
  if (!response.ParseFromArray(answer.data(), static_cast<int>(answer.size()))) return; /* the request was accepted nevertheless */
  const auto &partial = response.partial_success();
  call.rejected = partial.rejected() > 0 ? static_cast<size_t>(partial.rejected()) : 0;
  call.reason = shown(partial.message());
  if (call.rejected == 0) return;
  call.verdict = call.rejected >= call.records ? Verdict::denied : Verdict::partly;
  std::string said = call.reason.empty() ? "" : ": " + call.reason;
  if (call.verdict == Verdict::denied) call.reason = "the receiver has rejected it" + said;
  else
    call.reason = "the receiver has rejected " + std::to_string(call.rejected) + " of the " + std::to_string(call.records) + " "
                  + names_of(call.signal).record + " of the request, and does not say which" + said;
}

void Client::judge_http(Call &call, long status) {
  if (status >= 200 && status < 300) return judge_answer(call, call.answer);
  read_retry_after(call);
  std::string message = read_failure(call, call.answer);
  call.reason = endpoint + " answers " + std::to_string(status) + (message.empty() ? "" : ": " + shown(message));
  switch (status) {
  case 429: case 502: case 503: case 504: call.verdict = Verdict::again; break;
  case 413: call.verdict = Verdict::too_much; break;
  case 400: case 422: call.verdict = Verdict::refused; break;
  case 401: case 403:
    call.verdict = Verdict::misplaced;
    call.reason += "; check 'headers'";
    call.at = "headers";
    break;
  case 404: case 405:
    call.verdict = Verdict::misplaced;
    call.reason += std::string("; it takes no ") + names_of(call.signal).plural + " here: correct 'endpoint'";
    call.at = "endpoint";
    break;
  default:
    call.verdict = status >= 300 && status < 400 ? Verdict::misplaced : Verdict::denied;
    call.at = "endpoint";
  }
}

void Client::judge_grpc(Call &call, long status) {
  if (status != 200) {
    judge_http(call, status);
    /* For gRPC, an HTTP status says nothing about the records. */
    if (call.verdict == Verdict::refused || call.verdict == Verdict::too_much) call.verdict = Verdict::denied;
    return;
  }
  int code = -1;
  std::from_chars(call.grpc_status.data(), call.grpc_status.data() + call.grpc_status.size(), code);
  if (call.grpc_status.empty()) {
    call.verdict = Verdict::again;
    call.reason = endpoint + ": the answer has no grpc-status; it may be no server of gRPC";
    return;
  }
  if (code == GRPC_OK) {
    std::string_view answer = call.answer;
    return judge_answer(call, answer.size() > FRAME_HEAD && answer[0] == 0 ? answer.substr(FRAME_HEAD) : std::string_view());
  }
  read_failure(call, base64_decoded(call.grpc_details));
  call.reason = endpoint + " answers " + grpc_name(code);
  std::string message = shown(percent_decoded(call.grpc_message));
  if (!message.empty()) call.reason += ": " + message;
  switch (code) {
  case GRPC_CANCELLED: case GRPC_DEADLINE_EXCEEDED: case GRPC_ABORTED: case GRPC_OUT_OF_RANGE: case GRPC_UNAVAILABLE: case GRPC_DATA_LOSS:
    call.verdict = Verdict::again;
    break;
  case GRPC_RESOURCE_EXHAUSTED: call.verdict = call.has_wait ? Verdict::again : Verdict::too_much; break;
  case GRPC_INVALID_ARGUMENT: call.verdict = Verdict::refused; break;
  case GRPC_UNAUTHENTICATED: case GRPC_PERMISSION_DENIED:
    call.verdict = Verdict::misplaced;
    call.reason += "; check 'headers'";
    call.at = "headers";
    break;
  case GRPC_UNIMPLEMENTED:
    call.verdict = Verdict::misplaced;
    call.reason += std::string("; it takes no ") + names_of(call.signal).plural + " here: correct 'endpoint'";
    call.at = "endpoint";
    break;
  default: call.verdict = Verdict::denied;
  }
}
