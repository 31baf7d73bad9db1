/* A connection to a Redis server: non-blocking, pipelined, with or without TLS. hiredis parses the replies. */
#ifndef CONNECTION_H
#define CONNECTION_H
#include <hiredis/hiredis.h>
#include <plugin_util.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

typedef struct settings {
  address server;
  char server_text[320]; /* the server's name in messages */
  char *user, *password;
  int database;
  int64_t connect_timeout, timeout; /* milliseconds */
  SSL_CTX *tls;                     /* NULL: no TLS */
} settings;

/* RXD_OK, or RXD_FAILED with the reason reported. `settings` must be closed in both cases. */
int settings_open(const rxd_opening *opening, settings *settings);
void settings_close(settings *settings);

enum outcome {
  DONE,
  WOKEN,     /* the wake descriptor is readable, or the caller must stop */
  TIMED_OUT, /* no reply in time; the connection is unchanged */
  LOST,      /* closed; a retry may help; `problem` has the reason */
  REFUSED,   /* closed; these parameters cannot work; `problem` has the reason */
};

typedef struct connection {
  int descriptor; /* -1: closed */
  SSL *tls;
  redisReader *reader;
  char *out; /* data to send: out_count bytes, out_sent of them already sent */
  size_t out_count, out_sent, out_capacity;
  char problem[256];
} connection;

typedef struct stopping {
  int (*is_stopping)(void *);
  void *argument;
} stopping;

void connection_init(connection *connection);
/* Connects, authenticates and selects the database. Checks for a stop every 100 ms; `stop` may be NULL. */
enum outcome connection_open(connection *connection, const settings *settings, const stopping *stop);
void connection_close(connection *connection);
static inline bool connection_is_open(const connection *connection) { return connection->descriptor >= 0; }
/* False, after closing the connection, if the server has closed it while idle or has sent unsolicited data. */
bool connection_is_usable(connection *connection);

/* Appends a command to the data to send; `connection_reply` and `connection_send` send it. */
void connection_command(connection *connection, size_t count, const rxd_text *arguments);
#define COMMAND(connection, ...)                                                                                       \
  do {                                                                                                                 \
    rxd_text arguments_[] = {__VA_ARGS__};                                                                             \
    connection_command(connection, sizeof arguments_ / sizeof arguments_[0], arguments_);                              \
  } while (0)
#define WORD(literal) RXD_TEXT_OF(literal)

/* The next reply, which the caller frees with freeReplyObject. `wake`: a descriptor, or -1. */
enum outcome connection_reply(connection *connection, redisReply **reply, int64_t timeout_ms, int wake);
/* A reply that has arrived, or NULL. */
redisReply *connection_next(connection *connection);

/* The meaning of an error reply. */
enum fault {
  FAULT_OF_EVENT,   /* the command can never succeed: WRONGTYPE, ERR ... */
  FAULT_PASSING,    /* the command may succeed later: LOADING, READONLY, OOM ... */
  FAULT_OF_SETTING, /* authentication, permissions, a cluster */
};
enum fault fault_of(const redisReply *reply);
/* Formats a number into `buffer`. */
rxd_text number_text(char *buffer, size_t capacity, int64_t number);

#endif
