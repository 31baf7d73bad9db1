/* A client of libmosquitto that this plugin drives itself: non-blocking, on a thread of its own. */
#ifndef CLIENT_H
#define CLIENT_H
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <plugin_util.h>

extern const rxd_component mqtt_source, mqtt_sink;

typedef struct settings {
  address server;
  char server_text[320]; /* for messages */
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

/* RXD_OK, or RXD_FAILED with the reason said. `settings` must be closed in both cases. */
int settings_open(const rxd_opening *opening, settings *settings);
void settings_close(settings *settings);

enum outcome {
  DONE,
  STOPPED, /* the caller is to stop */
  LOST,    /* `problem` says why, and it may work later */
  REFUSED, /* `problem` says why, and it cannot work with these parameters */
};

typedef struct client {
  struct mosquitto *mosquitto; /* NULL: there is none */
  bool is_connected;           /* the broker has accepted */
  int refusal;                 /* the code of its CONNACK */
  int keep_alive;              /* seconds; the broker may have asked for others than the settings */
  char problem[256];
} client;

typedef struct stopping {
  int (*is_stopping)(void *);
  void *argument;
} stopping;

/* Makes a client. `owner` is what callbacks get; its first member must be a `client`. A session that lasts needs
 * `clean` false. `window`: the most unacknowledged messages of QoS 1 in each direction. */
void client_make(client *client, const settings *settings, bool clean, int window, void *owner);
/* Connects. In version 5, a session that is not clean lasts `expiry` seconds. `stop` may be NULL. What the broker sends
 * behind its CONNACK may arrive during this call. */
enum outcome client_connect(client *client, const settings *settings, bool clean, uint32_t expiry,
                            const stopping *stop);
void client_destroy(client *client);
/* Waits until something can be read, or written if something waits, or `wake` is readable; -1: there is none. Returns
 * what can be done, as poll(2) says of the connection; 0: nothing, or `wake`. */
int client_wait(client *client, int wake, int64_t milliseconds);
/* Whether something can be read; waits for it, at most so long. */
bool client_has_input(client *client, int milliseconds);
/* Reads a packet; false: the connection is lost. */
bool client_read(client *client);
/* Sends what waits, at most so long; false: the connection is lost. */
bool client_flush(client *client, int64_t milliseconds);
/* Sends a packet of two bytes at once, before everything that waits. Only between packets: after `client_flush`. */
bool client_send_raw(client *client, unsigned char first);
enum { PINGREQ = 0xc0, DISCONNECT = 0xe0 };
/* Ends the connection in an orderly way, past everything that waits to be sent, and destroys the client. Waits up to
 * 2 s until the broker has read what was sent. */
void client_leave(client *client);

#endif
