/* Parameters that source and sink have in common, and a connection with one channel. A connection that is lost is
 * closed, and its component makes a new one. */
#ifndef CLIENT_H
#define CLIENT_H
#include "wire.h"

#include <stdatomic.h>

extern const rxd_component amqp_source, amqp_sink;

typedef enum outcome {
  DONE,
  UNREACHABLE, /* trying again may help; `problem` says why */
  REFUSED,     /* trying again does not help; `problem` says why, `at` where */
} outcome;

typedef struct client {
  rxd_instance *instance;
  address *servers;
  size_t server_count, next_server;
  SSL_CTX *tls; /* NULL: not encrypted */
  bool verifies;
  bool is_external; /* SASL EXTERNAL instead of PLAIN */
  char *user, *password, *vhost, *name;
  int64_t connect_timeout, heartbeat; /* milliseconds */
  wire wire;
  bool is_open;        /* connection and channel may be used */
  bool was_connected;  /* the parameters have worked once */
  bool is_failing;     /* and that is in the log */
  bool is_blocked;     /* the server takes no messages for now */
  atomic_bool is_ending; /* no answer is waited for any more; may be set by another thread */
  unsigned failures;   /* in a row */
  char problem[400];   /* why the last attempt failed, with the server */
  char at[24];         /* the parameter that is to blame, or empty */
  /* What the server has last closed the channel or the connection with. */
  int code;            /* 0: nothing */
  char reason[240];
} client;

int client_open(const rxd_opening *opening, client *client);
void client_close(client *client);
/* Tries the next server: at most as long as `connectTimeout` for each of connecting and logging in, and resolving its
 * name. */
outcome client_connect(client *client);
/* Closes without a farewell. */
void client_disconnect(client *client);
/* Closes after the server has handled all that was sent, at the latest at `until` (now_ms). */
void client_leave(client *client, int64_t until);
/* A new channel in place of one that the server has closed. */
outcome client_reopen(client *client);
/* Sends a request and waits for its answer. DONE: `answer` has its arguments, if it is not NULL. Otherwise `code` has
 * the server's refusal, or is 0: the connection is lost. */
outcome client_call(client *client, amqp_method_number_t request, void *arguments, amqp_method_number_t answer_id,
                    void **answer);
/* Handles a frame that concerns the connection or the channel. False: it is another one. After a refusal by the server,
 * `code` is set and the channel is closed. */
bool client_handle(client *client, const frame *frame);
/* Counts the failure and logs the first in a row. The pause before the next attempt, in milliseconds. */
int64_t client_failed(client *client);
/* The connection works. */
void client_works(client *client);
/* "server: text" into `problem`. */
__attribute__((format(printf, 3, 4))) void client_trouble(client *client, const char *at, const char *format, ...);
/* The reason why the wire is lost. */
void client_lost(client *client);

/* A name of at most 255 bytes. */
int short_parameter(const rxd_opening *opening, const char *name, char **copy);
static inline amqp_bytes_t bytes_of(const char *string) {
  return string == NULL ? amqp_empty_bytes : (amqp_bytes_t){strlen(string), (void *)(uintptr_t)string};
}

#endif
