#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static const address_form form = {"redis", "rediss", 6379, 6379, true};

/* ---- Settings ---- */

static const char *tls_problem(char *text, size_t capacity) {
  unsigned long code = ERR_get_error();
  const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);
  if (code != 0 && ERR_GET_LIB(code) == ERR_LIB_SYS) reason = strerror(ERR_GET_REASON(code));
  ERR_clear_error();
  snprintf(text, capacity, "%s", reason == NULL ? "unknown error of TLS" : reason);
  return text;
}

static int tls_open(const rxd_opening *opening, settings *settings) {
  char *ca = NULL, *certificate = NULL, *key = NULL, problem[160];
  int status = text_parameter(opening, "ca", &ca);
  if (status == RXD_OK) status = text_parameter(opening, "certificate", &certificate);
  if (status == RXD_OK) status = text_parameter(opening, "certificateKey", &key);
  bool wanted = settings->server.is_secure || boolean_parameter(opening, "tls");
  if (status == RXD_OK && !wanted) {
    const char *given = ca != NULL ? "ca" : certificate != NULL ? "certificate" : key != NULL ? "certificateKey" : NULL;
    if (given != NULL)
      status = fail_at(opening->scope, given, "has no effect without 'tls: true' or a server with 'rediss://'");
  } else if (status == RXD_OK && settings->server.path[0] != 0) {
    status = fail_at(opening->scope, "tls", "a Unix socket has no TLS");
  } else if (status == RXD_OK && (certificate == NULL) != (key == NULL)) {
    status = fail_at(opening->scope, certificate == NULL ? "certificateKey" : "certificate",
                     "'certificate' and 'certificateKey' belong together");
  } else if (status == RXD_OK) {
    ERR_clear_error();
    settings->tls = need(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_min_proto_version(settings->tls, TLS1_2_VERSION);
    SSL_CTX_set_mode(settings->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(settings->tls,
                       boolean_parameter(opening, "dangerouslySkipVerification") ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       NULL);
    if (ca != NULL && SSL_CTX_load_verify_locations(settings->tls, ca, NULL) != 1)
      status = fail_at(opening->scope, "ca", "cannot read the certificates: %s", tls_problem(problem, sizeof problem));
    else if (ca == NULL && SSL_CTX_set_default_verify_paths(settings->tls) != 1)
      status = fail_at(opening->scope, "tls", "the system has no certificates to trust: %s",
                       tls_problem(problem, sizeof problem));
    else if (certificate != NULL && SSL_CTX_use_certificate_chain_file(settings->tls, certificate) != 1)
      status =
        fail_at(opening->scope, "certificate", "cannot read the certificate: %s", tls_problem(problem, sizeof problem));
    else if (key != NULL && SSL_CTX_use_PrivateKey_file(settings->tls, key, SSL_FILETYPE_PEM) != 1)
      status =
        fail_at(opening->scope, "certificateKey", "cannot read the key, or it does not belong to the certificate: %s",
                tls_problem(problem, sizeof problem));
  }
  free(ca);
  free(certificate);
  free(key);
  return status;
}

int settings_open(const rxd_opening *opening, settings *settings) {
  memset(settings, 0, sizeof *settings);
  char *server = NULL, problem[200];
  int status = text_parameter(opening, "server", &server);
  if (status == RXD_OK) {
    const char *wrong =
      parse_address(server == NULL ? "127.0.0.1" : server, &form, &settings->server, problem, sizeof problem);
    if (wrong != NULL) status = fail_at(opening->scope, "server", "%s", wrong);
    address_text(&settings->server, settings->server_text, sizeof settings->server_text);
  }
  free(server);
  if (status == RXD_OK) status = text_parameter(opening, "user", &settings->user);
  if (status == RXD_OK) status = text_parameter(opening, "password", &settings->password);
  if (status == RXD_OK && settings->user != NULL && settings->password == NULL)
    status = fail_at(opening->scope, "user", "needs 'password'");
  settings->database = (int)integer_parameter(opening, "database", 0);
  settings->connect_timeout = milliseconds_parameter(opening, "connectTimeout", 5000);
  settings->timeout = milliseconds_parameter(opening, "timeout", 10000);
  return status == RXD_OK ? tls_open(opening, settings) : status;
}

void settings_close(settings *settings) {
  free(settings->user);
  free_secret(settings->password);
  if (settings->tls != NULL) SSL_CTX_free(settings->tls);
  memset(settings, 0, sizeof *settings);
}

/* ---- Bytes ---- */

void connection_init(connection *c) {
  memset(c, 0, sizeof *c);
  c->descriptor = -1;
}

void connection_close(connection *c) {
  if (c->tls != NULL) SSL_free(c->tls);
  if (c->descriptor >= 0) close(c->descriptor);
  if (c->reader != NULL) redisReaderFree(c->reader);
  free(c->out);
  c->tls = NULL;
  c->descriptor = -1;
  c->reader = NULL;
  c->out = NULL;
  c->out_count = c->out_sent = c->out_capacity = 0;
}

__attribute__((format(printf, 3, 4)))
static enum outcome end(connection *c, enum outcome outcome, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->problem, sizeof c->problem, format, arguments);
  va_end(arguments);
  connection_close(c);
  return outcome;
}

static void append(connection *c, const char *bytes, size_t count) {
  if (count == 0) return;
  if (c->out_count + count > c->out_capacity) {
    size_t capacity = c->out_capacity == 0 ? 16384 : c->out_capacity;
    while (capacity < c->out_count + count) capacity *= 2;
    c->out = need(realloc(c->out, capacity));
    c->out_capacity = capacity;
  }
  memcpy(c->out + c->out_count, bytes, count);
  c->out_count += count;
}

void connection_command(connection *c, size_t count, const rxd_text *arguments) {
  char head[32];
  append(c, head, (size_t)snprintf(head, sizeof head, "*%zu\r\n", count));
  for (size_t i = 0; i < count; i++) {
    append(c, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", arguments[i].count));
    append(c, arguments[i].bytes, arguments[i].count);
    append(c, "\r\n", 2);
  }
}

/* The events to wait for; neither if the operation may be tried again immediately. */
typedef struct wants {
  bool read, write;
} wants;

/* Sends as much as possible without waiting. */
static enum outcome send_some(connection *c, wants *wants) {
  while (c->out_sent < c->out_count) {
    size_t left = c->out_count - c->out_sent;
    if (c->tls != NULL) {
      ERR_clear_error();
      int sent = SSL_write(c->tls, c->out + c->out_sent, left > 1 << 20 ? 1 << 20 : (int)left);
      if (sent <= 0) {
        int error = SSL_get_error(c->tls, sent);
        if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ) {
          *(error == SSL_ERROR_WANT_WRITE ? &wants->write : &wants->read) = true;
          return DONE;
        }
        return end(c, LOST, "the connection is broken");
      }
      c->out_sent += (size_t)sent;
    } else {
      ssize_t sent = send(c->descriptor, c->out + c->out_sent, left, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) {
        wants->write = true;
        return DONE;
      }
      if (sent < 0) return end(c, LOST, "%s", strerror(errno));
      c->out_sent += (size_t)sent;
    }
  }
  c->out_count = c->out_sent = 0;
  if (c->out_capacity > 1 << 20) {
    free(c->out);
    c->out = NULL;
    c->out_capacity = 0;
  }
  return DONE;
}

/* Reads available data without waiting. */
static enum outcome read_some(connection *c, wants *wants) {
  char buffer[65536];
  ssize_t count;
  if (c->tls != NULL) {
    ERR_clear_error();
    count = SSL_read(c->tls, buffer, sizeof buffer);
    if (count <= 0) {
      int error = SSL_get_error(c->tls, (int)count);
      if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        *(error == SSL_ERROR_WANT_WRITE ? &wants->write : &wants->read) = true;
        return DONE;
      }
      return end(c, LOST,
                 error == SSL_ERROR_ZERO_RETURN ? "the server has closed the connection" : "the connection is broken");
    }
  } else {
    count = recv(c->descriptor, buffer, sizeof buffer, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      wants->read = true;
      return DONE;
    }
    if (count < 0) return end(c, LOST, "%s", strerror(errno));
    if (count == 0) return end(c, LOST, "the server has closed the connection");
  }
  if (redisReaderFeed(c->reader, buffer, (size_t)count) != REDIS_OK)
    return end(c, LOST, "invalid reply: %s", c->reader->errstr);
  return DONE;
}

enum outcome connection_reply(connection *c, redisReply **reply, int64_t timeout_ms, int wake) {
  int64_t deadline = now_ms() + timeout_ms;
  *reply = NULL;
  for (;;) {
    if (c->descriptor < 0) return LOST;
    void *parsed = NULL;
    if (redisReaderGetReply(c->reader, &parsed) != REDIS_OK)
      return end(c, LOST, "invalid reply: %s", c->reader->errstr);
    if (parsed != NULL) {
      *reply = parsed;
      return DONE;
    }
    wants wants = {false, false};
    enum outcome outcome = send_some(c, &wants);
    if (outcome != DONE) return outcome;
    size_t before = c->reader->len;
    outcome = read_some(c, &wants);
    if (outcome != DONE) return outcome;
    if (c->reader->len != before && !wants.read) continue;
    int64_t left = deadline - now_ms();
    if (left <= 0) return TIMED_OUT;
    struct pollfd polled[2] = {
      {c->descriptor, (short)(POLLIN | (wants.write ? POLLOUT : 0)), 0},
      {wake, POLLIN, 0},
    };
    int ready = poll(polled, 2, left > 60000 ? 60000 : (int)left);
    if (ready < 0 && errno != EINTR) return end(c, LOST, "%s", strerror(errno));
    if (ready > 0 && polled[1].revents != 0 && polled[0].revents == 0) return WOKEN;
  }
}

redisReply *connection_next(connection *c) {
  void *parsed = NULL;
  if (c->descriptor < 0 || redisReaderGetReply(c->reader, &parsed) != REDIS_OK) return NULL;
  return parsed;
}

bool connection_is_usable(connection *c) {
  if (c->descriptor < 0) return false;
  struct pollfd polled = {c->descriptor, POLLIN, 0};
  if (poll(&polled, 1, 0) == 0) return true;
  wants wants = {false, false};
  if (read_some(c, &wants) != DONE) return false;
  redisReply *reply = connection_next(c);
  if (reply == NULL) return true; /* TLS records without data */
  freeReplyObject(reply);
  end(c, LOST, "a reply that nobody asked for");
  return false;
}

/* ---- Opening ---- */

/* Waits for `events`, at most until `deadline`. */
static enum outcome wait_for(connection *c, short events, int64_t deadline, const stopping *stop) {
  for (;;) {
    if (stop != NULL && stop->is_stopping(stop->argument)) return end(c, WOKEN, "stopping");
    int64_t left = deadline - now_ms();
    if (left <= 0) return end(c, LOST, "no answer in time");
    struct pollfd polled = {c->descriptor, events, 0};
    int ready = poll(&polled, 1, left > 100 ? 100 : (int)left);
    if (ready > 0) return DONE;
    if (ready < 0 && errno != EINTR) return end(c, LOST, "%s", strerror(errno));
  }
}

static enum outcome connect_to(connection *c, int family, const struct sockaddr *target, socklen_t size,
                               int64_t deadline, const stopping *stop) {
  c->descriptor = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (c->descriptor < 0) return end(c, LOST, "%s", strerror(errno));
  if (connect(c->descriptor, target, size) != 0) {
    if (errno != EINPROGRESS) return end(c, LOST, "%s", strerror(errno));
    enum outcome outcome = wait_for(c, POLLOUT, deadline, stop);
    if (outcome != DONE) return outcome;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(c->descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return end(c, LOST, "%s", strerror(error));
  }
  if (family != AF_UNIX) {
    int on = 1, idle = 30, interval = 10, count = 3;
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  }
  return DONE;
}

static enum outcome secure(connection *c, const settings *settings, int64_t deadline, const stopping *stop) {
  const char *name = settings->server.name;
  struct in6_addr binary;
  bool is_address = inet_pton(AF_INET, name, &binary) == 1 || inet_pton(AF_INET6, name, &binary) == 1;
  ERR_clear_error();
  c->tls = need(SSL_new(settings->tls));
  SSL_set_fd(c->tls, c->descriptor);
  if (is_address) X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->tls), name);
  else {
    SSL_set_tlsext_host_name(c->tls, name);
    SSL_set1_host(c->tls, name);
  }
  for (;;) {
    ERR_clear_error();
    int status = SSL_connect(c->tls);
    if (status == 1) return DONE;
    int error = SSL_get_error(c->tls, status);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      long verdict = SSL_get_verify_result(c->tls);
      char problem[160];
      if (verdict != X509_V_OK)
        return end(c, REFUSED, "the certificate of the server is not accepted: %s",
                   X509_verify_cert_error_string(verdict));
      return end(c, LOST, "TLS: %s",
                 error == SSL_ERROR_SYSCALL ? "the server has closed the connection"
                                            : tls_problem(problem, sizeof problem));
    }
    enum outcome outcome = wait_for(c, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline, stop);
    if (outcome != DONE) return outcome;
  }
}

/* The length of an error reply's first word: the rest may repeat a sent text, such as a password. */
static int first_word(const redisReply *reply) {
  size_t count = 0;
  while (count < reply->len && isupper((unsigned char)reply->str[count])) count++;
  return (int)count;
}

static enum outcome greet(connection *c, const settings *settings, int64_t deadline, const stopping *stop) {
  enum { AUTHENTICATE, SELECT, OTHER } sent[4];
  int count = 0;
  char number[24];
  if (settings->password != NULL) {
    if (settings->user != NULL) COMMAND(c, WORD("AUTH"), text_of(settings->user), text_of(settings->password));
    else COMMAND(c, WORD("AUTH"), text_of(settings->password));
    sent[count++] = AUTHENTICATE;
  }
  if (settings->database != 0) {
    COMMAND(c, WORD("SELECT"), number_text(number, sizeof number, settings->database));
    sent[count++] = SELECT;
  }
  COMMAND(c, WORD("CLIENT"), WORD("SETNAME"), WORD("rxd"));
  sent[count++] = OTHER;
  COMMAND(c, WORD("PING")); /* a server that is loading its data answers with an error */
  sent[count++] = OTHER;
  for (int i = 0; i < count; i++) {
    redisReply *reply;
    enum outcome outcome;
    do {
      if (stop != NULL && stop->is_stopping(stop->argument)) return end(c, WOKEN, "stopping");
      int64_t left = deadline - now_ms();
      outcome =
        left <= 0 ? end(c, LOST, "no answer in time") : connection_reply(c, &reply, left > 100 ? 100 : left, -1);
    } while (outcome == TIMED_OUT);
    if (i == 0 && c->out != NULL && c->out_count == 0) explicit_bzero(c->out, c->out_capacity);
    if (outcome != DONE) return outcome;
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    bool passes = is_error && fault_of(reply) == FAULT_PASSING;
    int word = is_error ? first_word(reply) : 0;
    char first[24];
    snprintf(first, sizeof first, "%.*s", word > 20 ? 20 : word, is_error ? reply->str : "");
    freeReplyObject(reply);
    if (!is_error) continue;
    if (passes) return end(c, LOST, "the server is not ready (%s)", first);
    if (sent[i] == AUTHENTICATE) return end(c, REFUSED, "the server refuses the user or the password (%s)", first);
    if (strcmp(first, "NOAUTH") == 0) return end(c, REFUSED, "the server asks for a password");
    if (sent[i] == SELECT) return end(c, REFUSED, "the server refuses database %d (%s)", settings->database, first);
  }
  return DONE;
}

enum outcome connection_open(connection *c, const settings *settings, const stopping *stop) {
  connection_close(c);
  int64_t deadline = now_ms() + settings->connect_timeout;
  enum outcome outcome = LOST;
  if (settings->server.path[0] != 0) {
    struct sockaddr_un target = {.sun_family = AF_UNIX};
    memcpy(target.sun_path, settings->server.path, sizeof target.sun_path);
    outcome = connect_to(c, AF_UNIX, (const struct sockaddr *)&target, sizeof target, deadline, stop);
  } else {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV}, *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%d", settings->server.port);
    int error = getaddrinfo(settings->server.name, port, &hints, &found);
    if (error != 0) {
      hints.ai_flags = AI_NUMERICSERV;
      error = getaddrinfo(settings->server.name, port, &hints, &found);
    }
    if (error != 0) return end(c, LOST, "%s", gai_strerror(error));
    for (struct addrinfo *each = found; each != NULL; each = each->ai_next) {
      outcome = connect_to(c, each->ai_family, each->ai_addr, each->ai_addrlen, deadline, stop);
      if (outcome != LOST || now_ms() >= deadline) break;
    }
    freeaddrinfo(found);
  }
  if (outcome != DONE) return outcome;
  if (settings->tls != NULL) outcome = secure(c, settings, deadline, stop);
  if (outcome != DONE) return outcome;
  c->reader = need(redisReaderCreate());
  return greet(c, settings, deadline, stop);
}

/* ---- Errors ---- */

enum fault fault_of(const redisReply *reply) {
  static const char *const passing[] = {"LOADING", "BUSY",    "MASTERDOWN", "READONLY",  "CLUSTERDOWN", "TRYAGAIN",
                                        "OOM",     "MISCONF", "NOREPLICAS", "UNBLOCKED", "UNKILLABLE",  "NOGOODSLAVE"};
  static const char *const setting[] = {"NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "ASK", "CROSSSLOT", "DENIED"};
  int count = first_word(reply);
  for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
    if ((size_t)count == strlen(passing[i]) && memcmp(reply->str, passing[i], (size_t)count) == 0) return FAULT_PASSING;
  for (size_t i = 0; i < sizeof setting / sizeof setting[0]; i++)
    if ((size_t)count == strlen(setting[i]) && memcmp(reply->str, setting[i], (size_t)count) == 0)
      return FAULT_OF_SETTING;
  if (strncmp(reply->str, "ERR max number of clients", 25) == 0) return FAULT_PASSING;
  return FAULT_OF_EVENT;
}

rxd_text number_text(char *buffer, size_t capacity, int64_t number) {
  int count = snprintf(buffer, capacity, "%lld", (long long)number);
  return (rxd_text){buffer, (size_t)count};
}
