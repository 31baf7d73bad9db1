/* The parameters that all components share, and a connection. The library's own reconnecting is disabled: a lost
 * connection is closed, and its component opens a new one. So there is one start-up path, and nothing sent over an old
 * connection is attributed to the new one. No callback of the library calls this plugin. */
#ifndef CLIENT_H
#define CLIENT_H
#include <nats/nats.h>
#include <broker_source.h>

extern const rxd_component nats_source, nats_stream_source, nats_kv_source, nats_sink, nats_stream_sink, nats_kv_sink;

typedef struct client {
  natsOptions *options;
  natsConnection *connection; /* NULL: none */
  char **servers;             /* those of the parameters, then those that a cluster advertises */
  size_t server_count, given_count, next_server;
  char *domain;               /* JetStream domain, or NULL */
  char *inbox_prefix;         /* prefix of reply subjects */
  const char *bucket;         /* named in messages in place of its stream; NULL: none */
  bool is_secure;             /* TLS is requested */
  attempts attempts;
} client;

int client_open(const rxd_opening *opening, client *client);
void client_close(client *client);
/* Tries the next server, for at most `connectTimeout`; resolving its name takes extra time. */
outcome client_connect(client *client);
/* Tries each server once. */
outcome client_connect_any(client *client);
/* Ends the connection, but keeps it until `client_disconnect`: the library's thread that receives must have ended before
 * subscriptions are destroyed. */
void client_hang_up(client *client);
void client_disconnect(client *client);
bool client_is_connected(const client *client);
/* Marks the connection as working. */
void client_works(client *client);
/* The last permission violation that the server has reported on this connection, or NULL. Reliable only after a round
 * trip (natsConnection_FlushTimeout). The text lives as long as the connection. */
const char *client_violation(const client *client);
/* Sets the `problem` of the attempts to "server: text". */
__attribute__((format(printf, 2, 3))) void client_trouble(client *client, const char *format, ...);
/* A subject of the JetStream API: "$JS.API." or the domain's prefix, followed by the formatted text. The caller frees
 * it. */
__attribute__((format(printf, 2, 3))) char *client_api(const client *client, const char *format, ...);
/* A new prefix of reply subjects; a token is appended to it. The caller frees it. */
char *client_inbox(const client *client);
/* A context for the library's own JetStream requests; `wait`: time limit of each in milliseconds. NULL: no
 * connection. */
jsCtx *client_jetstream(client *client, int64_t wait);

/* Reads the name of a stream, a consumer or a bucket. */
int name_parameter(const rxd_opening *opening, const char *name, char **copy);
int bucket_parameter(const rxd_opening *opening, char **copy);
int buffer_parameter(const rxd_opening *opening, size_t *bytes);
#define wildcards_help "* is any part, > at the end all further ones"
/* Whether the text is a valid subject to publish to or, with `wildcards`, to subscribe to. */
bool is_subject(rxd_text text, bool wildcards);

#endif
