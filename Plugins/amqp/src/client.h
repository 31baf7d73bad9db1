/* The parameters that source and sink share, and a connection with one channel. A lost connection is closed, and the
 * component opens a new one. */
#ifndef CLIENT_H
#define CLIENT_H
#include "wire.h"

#include <broker_source.h>

extern const rxd_component amqp_source, amqp_sink;

typedef struct client {
  attempts attempts;
  address *servers;
  size_t server_count, next_server;
  SSL_CTX *tls; /* NULL: not encrypted */
  bool verifies;
  bool is_external; /* SASL EXTERNAL instead of PLAIN */
  char *user, *password, *vhost, *name;
  int64_t connect_timeout, heartbeat; /* milliseconds */
  wire wire;
  bool is_open;        /* the connection and the channel are usable */
  bool is_blocked;     /* the server accepts no messages for now */
  const atomic_bool *is_ending; /* set by another thread to abandon the wait for an answer; NULL: rxd's stop does */
  /* The code and text with which the server last closed the channel or the connection. */
  int code;            /* 0: none */
  char reason[240];
} client;

int client_open(const rxd_opening *opening, client *client);
void client_close(client *client);
/* Tries the next server. Connecting and logging in each take at most `connectTimeout`; resolving the name takes extra
 * time. */
outcome client_connect(client *client);
/* Closes without the closing handshake. */
void client_disconnect(client *client);
/* Closes after the server has handled everything that was sent, or at `until` (now_ms). */
void client_leave(client *client, int64_t until);
/* Opens a new channel in place of one that the server has closed. */
outcome client_reopen(client *client);
/* Sends a request and waits for its answer. DONE: `answer`, if not NULL, receives the arguments. Otherwise `code` is
 * the code of the server's refusal, or 0 if the connection is lost. */
outcome client_call(client *client, amqp_method_number_t request, void *arguments, amqp_method_number_t answer_id,
                    void **answer);
/* Handles a frame of the connection or the channel; returns false for other frames. After a refusal by the server,
 * `code` is set and the channel is closed. */
bool client_handle(client *client, const frame *frame);
/* Marks the connection as working. */
void client_works(client *client);
/* Sets the `problem` of the attempts to "server: text". */
__attribute__((format(printf, 3, 4))) void client_trouble(client *client, const char *at, const char *format, ...);
/* The reason why the wire is lost. */
void client_lost(client *client);

/* Reads a name of at most 255 bytes. */
int short_parameter(const rxd_opening *opening, const char *name, char **copy);
static inline amqp_bytes_t bytes_of(const char *string) {
  return string == NULL ? amqp_empty_bytes : (amqp_bytes_t){strlen(string), (void *)(uintptr_t)string};
}

#endif
