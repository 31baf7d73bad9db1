/* Parameters that all components have in common, and a connection. The library's own reconnecting is off: a connection
 * that is lost is closed, and its component makes a new one. So there is one way to begin, and nothing that was sent
 * over an old connection is mistaken for the new one's. No callback of the library calls this plugin. */
#ifndef CLIENT_H
#define CLIENT_H
#include <nats/nats.h>
#include <plugin_util.h>

extern const rxd_component nats_source, nats_stream_source, nats_kv_source, nats_sink, nats_stream_sink, nats_kv_sink;

typedef struct client {
  rxd_instance *instance;
  natsOptions *options;
  natsConnection *connection; /* NULL: none */
  char **servers;             /* those of the parameters, then those that a cluster has named */
  size_t server_count, given_count, next_server;
  char *domain;               /* of JetStream, or NULL */
  char *inbox_prefix;         /* of subjects for answers */
  const char *bucket;         /* for messages, instead of its stream; NULL: none */
  bool is_secure;             /* TLS was asked for */
  bool was_connected;         /* the parameters have worked once */
  bool is_failing;            /* and that is in the log */
  unsigned failures;          /* in a row */
  char problem[300];          /* why the last attempt failed, with the server */
} client;

typedef enum outcome {
  CONNECTED,
  UNREACHABLE, /* trying again may help; `problem` says why */
  REFUSED,     /* trying again does not help */
} outcome;

int client_open(const rxd_opening *opening, client *client);
void client_close(client *client);
/* Tries the next server: at most as long as the parameter `connectTimeout`, and resolving its name. */
outcome client_connect(client *client);
/* Tries each server once. */
outcome client_connect_any(client *client);
void client_disconnect(client *client);
bool client_is_connected(const client *client);
/* Counts the failure and logs the first in a row. The pause before the next attempt, in milliseconds. */
int64_t client_failed(client *client);
/* The connection works. */
void client_works(client *client);
/* The last violation of permissions that the server has reported over this connection, or NULL. It is certain after a
 * round trip (natsConnection_FlushTimeout). The text lives as long as the connection. */
const char *client_violation(const client *client);
/* "server: text" into `problem`. */
__attribute__((format(printf, 2, 3))) void client_trouble(client *client, const char *format, ...);
/* A subject of JetStream's interface: "$JS.API." or the domain's prefix, and the format. The caller frees it. */
__attribute__((format(printf, 2, 3))) char *client_api(const client *client, const char *format, ...);
/* A new subject for answers, to which a name is added. The caller frees it. */
char *client_inbox(const client *client);
/* A context for the library's own requests to JetStream; `wait`: milliseconds for each. NULL: no connection. */
jsCtx *client_jetstream(client *client, int64_t wait);

/* A name of a stream, a consumer or a bucket. */
int name_parameter(const rxd_opening *opening, const char *name, char **copy);
int bucket_parameter(const rxd_opening *opening, char **copy);
int buffer_parameter(const rxd_opening *opening, size_t *bytes);
#define wildcards_help "* is any part, > at the end all further ones"
/* Whether it can be published to, or with `wildcards`, subscribed to. */
bool is_subject(rxd_text text, bool wildcards);

#endif
