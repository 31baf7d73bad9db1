/* The network side of the sink: requests over HTTP or gRPC by libcurl, several at once, and the interpretation of their
 * answers. */
#ifndef OTLP_CLIENT_H
#define OTLP_CLIENT_H
#include "common.h"

#include <curl/curl.h>
#include <functional>

enum class Verdict {
  delivered,
  partly,    /* `rejected` records of the request were not accepted; which ones is unknown */
  too_much,  /* a smaller request may be accepted */
  refused,   /* as `too_much`: smaller requests isolate the invalid record, which is then refused */
  denied,    /* all records are refused, whatever their content */
  again,     /* a retry may succeed, after `wait_ms` at the earliest */
  misplaced, /* the parameters are wrong, unless requests have succeeded before */
};

/* A request in flight. */
struct Call {
  Signal signal{};
  std::string body; /* packed, and framed for gRPC */
  size_t records = 0;
  /* The answer. */
  Verdict verdict{};
  std::string reason;
  const char *at = ""; /* for `misplaced`: the name of the parameter */
  size_t rejected = 0;
  int64_t wait_ms = 0;
  bool has_wait = false; /* the receiver has sent a delay */

  /* Set while the request is in flight. */
  CURL *curl = nullptr;
  curl_slist *headers = nullptr;
  std::string answer, grpc_status, grpc_message, grpc_details, retry_after;
  size_t header_bytes = 0;
  bool is_too_large = false, is_first = false;
  char problem[CURL_ERROR_SIZE] = "";
};

class Client {
public:
  bool is_grpc = false, is_secure = false, packs = false, skips_verification = false;
  bool has_worked[SIGNALS] = {};
  std::string endpoint, ca, certificate, key;
  std::vector<std::string> headers; /* "name: value" */
  int64_t timeout_ms = 0, connect_ms = 0;

  Client();
  /* Call after the parameters are set. */
  void prepare();
  ~Client();
  Client(const Client &) = delete;

  /* Packs and frames a request in protobuf. */
  std::string pack(std::string request) const;
  /* Whether another call can be sent now. */
  bool can_start() const { return !is_careful || is_connected || running == 0; }
  /* Sends the call, which must stay valid until `wait` returns it or `cancel` is called. */
  bool start(Call &call);
  /* Returns the next finished call; NULL after `wait_ms`. */
  Call *wait(int wait_ms);
  void cancel(Call &call);

private:
  CURLM *multi = nullptr;
  std::vector<CURL *> idle;
  size_t running = 0;
  /* libcurl before 8.0.0 cannot reuse an unencrypted HTTP/2 connection on which HTTP/2 is requested without negotiation (curl issue
   * 10634). So only the first call on a connection requests it. */
  bool is_careful = false, is_connected = false;

  bool must_repeat(Call &call, CURLcode code);
  void judge(Call &call, CURLcode code);
  void judge_http(Call &call, long status);
  void judge_grpc(Call &call, long status);
  void judge_answer(Call &call, std::string_view answer);
  void end(Call &call);
};

#endif
