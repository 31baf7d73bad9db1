/* The network side of the sink: requests over HTTP or gRPC by libcurl, several at once, and what their answers mean. */
#ifndef OTLP_CLIENT_H
#define OTLP_CLIENT_H
#include "common.h"

#include <curl/curl.h>
#include <functional>

enum class Verdict {
  delivered,
  partly,    /* `rejected` of the request's records were not taken, and it is not known which */
  too_much,  /* fewer at once may be accepted, */
  refused,   /* or fewer may show which ones are at fault; one alone is refused */
  denied,    /* all of them are refused, whatever they are */
  again,     /* may work later; not before `wait_ms` */
  misplaced, /* nothing will be accepted with these parameters, unless it was before */
};

/* A request on its way. */
struct Call {
  Signal signal{};
  std::string body; /* packed, and framed for gRPC */
  size_t records = 0;
  /* The answer. */
  Verdict verdict{};
  std::string reason;
  const char *at = ""; /* of `misplaced`: the parameter */
  size_t rejected = 0;
  int64_t wait_ms = 0;
  bool has_wait = false; /* the receiver has said how long */

  /* While it is under way. */
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
  /* After the parameters are set. */
  void prepare();
  ~Client();
  Client(const Client &) = delete;

  /* Packs and frames a request in protobuf. */
  std::string pack(std::string request) const;
  /* Whether another call can be sent now. */
  bool can_start() const { return !is_careful || is_connected || running == 0; }
  /* Sends; the call must live until `wait` has returned it, or `cancel`. */
  bool start(Call &call);
  /* The next call that has its verdict, or NULL after a while. */
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
