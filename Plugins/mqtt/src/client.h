/* A libmosquitto client that this plugin drives itself: non-blocking, on its own thread. */
#ifndef CLIENT_H
#define CLIENT_H
#include <broker_source.h>
#include <mosquitto.h>
#include <mqtt_protocol.h>

extern const rxd_component mqtt_source, mqtt_sink;

typedef struct settings {
  address server;
  char server_text[320]; /* the server's name in messages */
  char *user, *password, *client_id;
  bool is_v5, is_secure, skips_verification;
  char *ca, *certificate, *key;
  int keep_alive;                   /* seconds */
  int64_t connect_timeout, timeout; /* milliseconds */
  struct {
    char *topic, *payload;
    int payload_count, qos;
    bool retain;
  } will; /* topic NULL: none */
} settings;

/* RXD_OK, or RXD_FAILED with the reason reported. `settings` must be closed in both cases. */
int settings_open(const rxd_opening *opening, settings *settings);
void settings_close(settings *settings);

typedef struct client {
  struct mosquitto *mosquitto; /* NULL: none */
  bool is_connected;           /* the broker has accepted the connection */
  bool was_connected;          /* some broker has accepted these parameters */
  int refusal;                 /* reason code of its CONNACK */
  int keep_alive;              /* seconds; the broker may have set another value than the settings */
  char problem[256];
} client;

typedef struct stopping {
  int (*is_stopping)(void *);
  void *argument;
} stopping;

/* Creates a client. Callbacks receive `owner`, whose first member must be a `client`. A persistent session needs
 * `clean` false. `window`: the maximum number of unacknowledged QoS 1 messages in each direction. */
void client_make(client *client, const settings *settings, bool clean, int window, void *owner);
/* Connects, or returns a `problem`; a stop makes it UNREACHABLE. In version 5, a session that is not clean expires after `expiry` seconds. `stop` may be NULL. Messages that
 * the broker sends after its CONNACK may arrive during this call. */
outcome client_connect(client *client, const settings *settings, bool clean, uint32_t expiry,
                            const stopping *stop);
void client_destroy(client *client);
/* Waits until data can be read, buffered data can be written, or `wake` is readable (-1: none). Returns the poll(2)
 * events of the connection; 0: none, or only `wake`. */
int client_wait(client *client, int wake, int64_t milliseconds);
/* Waits at most so long for input; returns whether there is some. */
bool client_has_input(client *client, int milliseconds);
/* Reads a packet; false: the connection is lost. */
bool client_read(client *client);
/* Sends buffered data, for at most so long; false: the connection is lost. */
bool client_flush(client *client, int64_t milliseconds);
/* Sends a two-byte packet immediately, before all buffered data. Allowed only between packets: after `client_flush`. */
bool client_send_raw(client *client, unsigned char first);
enum { PINGREQ = 0xc0, DISCONNECT = 0xe0 };
/* Ends the connection with a DISCONNECT that overtakes buffered data, and destroys the client. Waits up to
 * 2 s until the broker has read everything that was sent. */
void client_leave(client *client);

#endif
