/* The network side of the source: HTTP/1.1, HTTP/2 and gRPC, with or without TLS, on a thread of its own. It passes
 * complete requests to the source and sends the source's answers. Limits bound the connections, the streams, each body,
 * and all bodies together. */
#ifndef OTLP_SERVER_H
#define OTLP_SERVER_H
#include "common.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <openssl/ssl.h>
#include <unordered_map>

/* Identifies the request that an answer belongs to. */
struct Ticket {
  uint64_t connection = 0;
  int32_t stream = 0; /* HTTP/2 only */
  uint64_t number = 0;
};

/* A request with its decompressed body. */
struct Arrival {
  Ticket ticket;
  Signal signal{};
  bool is_json = false;
  std::string body;
};

struct Reply {
  enum Kind { done, malformed, too_large, unavailable, unauthorized, no_such_path, no_such_method, wrong_type, wrong_encoding, wrong_request };
  Kind kind = done;
  std::string message; /* the reason; for `done`: why records were rejected */
  size_t rejected = 0;
};

struct Listener {
  const char *parameter = ""; /* the parameter's name */
  address where{};
  bool is_used = false;
  int fd = -1;
};

struct Limits {
  size_t body, pending, connections;
  int64_t idle_ms;
};

struct Connection;

class Server {
public:
  Server();
  ~Server();
  Server(const Server &) = delete;

  /* Set before `start`. */
  rxd_instance *instance = nullptr;
  Listener listeners[2];
  Limits limits{};
  bool takes[SIGNALS] = {};
  std::string authorization; /* the required 'authorization' header; empty: none */
  SSL_CTX *tls = nullptr;

  /* Binds the listeners. False: `problem` has the reason; if `is_in_use`, a retry may succeed. */
  bool listen(std::string &problem, const char *&at, bool &is_in_use);
  bool start();
  /* Accepts no more requests; pending ones can still be answered. */
  void close_listeners();
  /* Answers the remaining requests and ends the thread. */
  void stop(int64_t wait_ms);

  /* Takes a request. May be called on any thread. */
  bool next(Arrival &arrival);
  int ready() const { return ready_fd; } /* readable while there are arrivals */
  void answer(const Ticket &ticket, Reply reply);
  /* Releases the memory reserved for a request's body. */
  void release(size_t bytes);

private:
  friend struct Connection;
  struct Answer {
    Ticket ticket;
    Reply reply;
  };

  pthread_t thread{};
  bool is_running = false;
  int epoll = -1, wake_fd = -1, ready_fd = -1;
  std::mutex mutex;
  std::deque<Arrival> arrivals;
  std::vector<Answer> answers;
  size_t pending = 0; /* bytes of all bodies */
  std::atomic<bool> is_closing{false}, is_ending{false};
  std::atomic<int64_t> end_at{0}; /* now_ms */

  /* Used only by the server's thread. */
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections;
  uint64_t last_connection = 0, last_number = 0;
  bool is_accepting = false;
  int64_t accept_at = 0; /* now_ms; accepts nothing before, because descriptors ran out */
  std::vector<char> buffer;

  static void *run(void *opaque);
  void serve();
  void turn(int64_t wait_ms);
  void accept_all(Listener &listener);
  Connection *longest_idle();
  void watch_listeners();
  void take_answers();
  void look_at_time(int64_t now);
  void drop(Connection *connection);
  bool reserve(size_t bytes);
  void hand_over(Arrival arrival);
  void count(const char *name);
};

#endif
