/* A connection to a Redis server: non-blocking, pipelined, with or without TLS. hiredis parses the replies. */
#ifndef CONNECTION_H
#define CONNECTION_H
#include <hiredis/hiredis.h>
#include <plugin_util.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

typedef struct settings {
  address server;
  char server_text[320]; /* for messages */
  char *user, *password;
  int database;
  int64_t connect_timeout, timeout; /* milliseconds */
  SSL_CTX *tls;                     /* NULL: without */
} settings;

/* RXD_OK, or RXD_FAILED with the reason said. `settings` must be closed in both cases. */
int settings_open(const rxd_opening *opening, settings *settings);
void settings_close(settings *settings);

enum outcome {
  DONE,
  WOKEN,     /* the wake descriptor is readable, or the caller is to stop */
  TIMED_OUT, /* nothing came in time; the connection is as before */
  LOST,      /* closed; `problem` says why, and it may work later */
  REFUSED,   /* closed; `problem` says why, and it cannot work with these parameters */
};

typedef struct connection {
  int descriptor; /* -1: closed */
  SSL *tls;
  redisReader *reader;
  char *out; /* what is to be sent: out_count bytes, of which out_sent are sent */
  size_t out_count, out_sent, out_capacity;
  char problem[256];
} connection;

typedef struct stopping {
  int (*is_stopping)(void *);
  void *argument;
} stopping;

void connection_init(connection *connection);
/* Connects, authenticates and selects the database. Looks every 100 ms whether it is to stop; `stop` may be NULL. */
enum outcome connection_open(connection *connection, const settings *settings, const stopping *stop);
void connection_close(connection *connection);
static inline bool connection_is_open(const connection *connection) { return connection->descriptor >= 0; }
/* False if the server has closed an idle connection, or has sent what nobody asked for. Closes it then. */
bool connection_is_usable(connection *connection);

/* Puts a command behind those that are to be sent; `connection_reply` and `connection_send` send it. */
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

/* What an error reply means. */
enum fault {
  FAULT_OF_EVENT,   /* this command will never do: WRONGTYPE, ERR ... */
  FAULT_PASSING,    /* another time it may do: LOADING, READONLY, OOM ... */
  FAULT_OF_SETTING, /* authentication, rights, a cluster */
};
enum fault fault_of(const redisReply *reply);
/* A number as text in `buffer`. */
rxd_text number_text(char *buffer, size_t capacity, int64_t number);

#endif
