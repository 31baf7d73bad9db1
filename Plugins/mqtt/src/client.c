#include "client.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

static const address_form form = {"mqtt", "mqtts", 1883, 8883, false};

/* ---- Settings ---- */

static int tls_open(const rxd_opening *opening, settings *settings) {
  static const char *const names[] = {"ca", "certificate", "certificateKey"};
  settings->is_secure = settings->server.is_secure || boolean_parameter(opening, "tls");
  settings->skips_verification = boolean_parameter(opening, "dangerouslySkipVerification");
  for (size_t i = 0; i < 3 && !settings->is_secure; i++)
    if (is_given(opening, names[i]))
      return fail_at(opening->scope, names[i], "has no effect without 'tls: true' or a server with 'mqtts://'");
  if (is_given(opening, names[1]) != is_given(opening, names[2]))
    return fail_at(opening->scope, names[is_given(opening, names[1]) ? 1 : 2],
                   "'certificate' and 'certificateKey' belong together");
  int status = file_parameter(opening, "ca", &settings->ca);
  if (status == RXD_OK) status = file_parameter(opening, "certificate", &settings->certificate);
  return status == RXD_OK ? file_parameter(opening, "certificateKey", &settings->key) : status;
}

static int will_open(const rxd_opening *opening, settings *settings) {
  rxd_scope *scope = opening->scope;
  rxd_value will = parameter(opening, "will");
  int kind = host->kind(&will);
  if (kind == RXD_ABSENT || kind == RXD_NULL) return RXD_OK;
  if (kind != RXD_OBJECT) return fail_at(scope, "will", "must be a mapping with 'topic' and 'payload'");
  for (size_t i = 0; i < host->count(scope, &will); i++) {
    rxd_text name;
    rxd_value value = host->entry(scope, &will, i, &name);
    kind = host->kind(&value);
    if (text_is(name, text_of("topic"))) {
      rxd_text topic = host->text(scope, &value);
      if (kind != RXD_TEXT || topic.count == 0) return fail_at(scope, "will.topic", "must be a text that is not empty");
      settings->will.topic = copy_text(topic);
      if (strlen(settings->will.topic) != topic.count
          || mosquitto_pub_topic_check(settings->will.topic) != MOSQ_ERR_SUCCESS)
        return fail_at(scope, "will.topic", "is not a topic to publish to: it has a '+' or a '#', or is too long");
    } else if (text_is(name, text_of("payload"))) {
      rxd_text payload = bytes_of_value(scope, &value);
      if (payload.count > 65535) return fail_at(scope, "will.payload", "must have at most 65535 bytes");
      settings->will.payload = copy_text(payload);
      settings->will.payload_count = (int)payload.count;
    } else if (text_is(name, text_of("qos"))) {
      int64_t qos = host->integer(&value);
      if (kind != RXD_INT || qos < 0 || qos > 2) return fail_at(scope, "will.qos", "must be 0, 1 or 2");
      settings->will.qos = (int)qos;
    } else if (text_is(name, text_of("retain"))) {
      if (kind != RXD_BOOL) return fail_at(scope, "will.retain", "must be true or false");
      settings->will.retain = host->boolean(&value) != 0;
    } else {
      char at[96];
      snprintf(at, sizeof at, "will.%.*s", (int)(name.count > 80 ? 80 : name.count), name.bytes);
      return fail_at(scope, at, "'will' has 'topic', 'payload', 'qos' and 'retain'");
    }
  }
  return settings->will.topic != NULL ? RXD_OK : fail_at(scope, "will", "needs 'topic'");
}

int settings_open(const rxd_opening *opening, settings *settings) {
  memset(settings, 0, sizeof *settings);
  char *server = NULL, problem[200];
  int status = text_parameter(opening, "server", &server);
  if (status == RXD_OK) {
    bool wants_tls = boolean_parameter(opening, "tls");
    address_form used = form;
    if (wants_tls) used.plain_port = used.secure_port;
    const char *wrong =
      parse_address(server == NULL ? "127.0.0.1" : server, &used, &settings->server, problem, sizeof problem);
    if (wrong != NULL) status = fail_at(opening->scope, "server", "%s", wrong);
    address_text(&settings->server, settings->server_text, sizeof settings->server_text);
  }
  free(server);
  if (status == RXD_OK) status = text_parameter(opening, "user", &settings->user);
  if (status == RXD_OK) status = text_parameter(opening, "password", &settings->password);
  if (status == RXD_OK) status = text_parameter(opening, "clientID", &settings->client_id);
  settings->is_v5 = !choice_is(opening, "version", "3.1.1");
  if (status == RXD_OK && settings->password != NULL && settings->user == NULL)
    status = fail_at(opening->scope, "password", "needs 'user'");
  if (status == RXD_OK && settings->client_id != NULL) {
    size_t count = strlen(settings->client_id);
    if (count == 0 || count > 65535 || mosquitto_validate_utf8(settings->client_id, (int)count) != MOSQ_ERR_SUCCESS)
      status = fail_at(opening->scope, "clientID", "must have 1 to 65535 bytes, and no control characters");
  }
  settings->keep_alive = (int)(milliseconds_parameter(opening, "keepAlive", 60000) / 1000);
  settings->connect_timeout = milliseconds_parameter(opening, "connectTimeout", 5000);
  settings->timeout = milliseconds_parameter(opening, "timeout", 10000);
  if (status == RXD_OK) status = tls_open(opening, settings);
  return status == RXD_OK ? will_open(opening, settings) : status;
}

void settings_close(settings *settings) {
  free(settings->user);
  free_secret(settings->password);
  free(settings->client_id);
  free(settings->ca);
  free(settings->certificate);
  free(settings->key);
  free(settings->will.topic);
  free(settings->will.payload);
  memset(settings, 0, sizeof *settings);
}

/* ---- The client ---- */

static void say(client *client, const char *text) { snprintf(client->problem, sizeof client->problem, "%s", text); }

/* Describes the result of a library function in a sentence. */
static void say_status(client *client, int status) {
  say(client, status == MOSQ_ERR_ERRNO       ? strerror(errno)
              : status == MOSQ_ERR_CONN_LOST ? "the connection is lost"
              : status == MOSQ_ERR_EAI       ? "the name of the host cannot be resolved"
                                             : mosquitto_strerror(status));
}

static void on_connect(struct mosquitto *mosquitto, void *owner, int code, int flags,
                       const mosquitto_property *properties) {
  (void)mosquitto;
  (void)flags;
  client *client = owner;
  client->refusal = code;
  client->is_connected = code == 0;
  client->was_connected = client->was_connected || code == 0;
  uint16_t seconds;
  if (mosquitto_property_read_int16(properties, MQTT_PROP_SERVER_KEEP_ALIVE, &seconds, false) != NULL)
    client->keep_alive = seconds;
}

static void on_disconnect(struct mosquitto *mosquitto, void *owner, int code, const mosquitto_property *properties) {
  (void)mosquitto;
  (void)properties;
  client *client = owner;
  client->is_connected = false;
  /* The code of the broker's DISCONNECT packet; lower codes are library errors, which the caller also receives. */
  if (code >= 128) say(client, mosquitto_reason_string(code));
}

void client_make(client *client, const settings *settings, bool clean, int window, void *owner) {
  client->is_connected = false;
  client->refusal = 0;
  client->keep_alive = settings->keep_alive;
  client->problem[0] = 0;
  struct mosquitto *mosquitto = client->mosquitto = need(mosquitto_new(settings->client_id, clean, owner));
  mosquitto_int_option(mosquitto, MOSQ_OPT_PROTOCOL_VERSION, settings->is_v5 ? MQTT_PROTOCOL_V5 : MQTT_PROTOCOL_V311);
  mosquitto_int_option(mosquitto, MOSQ_OPT_TCP_NODELAY, 1);
  mosquitto_int_option(mosquitto, MOSQ_OPT_RECEIVE_MAXIMUM, window);
  mosquitto_int_option(mosquitto, MOSQ_OPT_SEND_MAXIMUM, window);
  /* Makes the library queue packets and send them only in mosquitto_loop_write, so that no acknowledgement is sent
   * before rxd's. */
  mosquitto_threaded_set(mosquitto, true);
  if (settings->user != NULL) mosquitto_username_pw_set(mosquitto, settings->user, settings->password);
  if (settings->is_secure) {
    mosquitto_int_option(mosquitto, MOSQ_OPT_TLS_USE_OS_CERTS, settings->ca == NULL);
    mosquitto_tls_set(mosquitto, settings->ca, settings->ca == NULL ? "/etc/ssl/certs" : NULL, settings->certificate,
                      settings->key, NULL);
    if (settings->skips_verification) {
      mosquitto_tls_insecure_set(mosquitto, true);
      mosquitto_tls_opts_set(mosquitto, 0, NULL, NULL);
    }
  }
  if (settings->will.topic != NULL)
    mosquitto_will_set(mosquitto, settings->will.topic, settings->will.payload_count, settings->will.payload,
                       settings->will.qos, settings->will.retain);
  mosquitto_connect_v5_callback_set(mosquitto, on_connect);
  mosquitto_disconnect_v5_callback_set(mosquitto, on_disconnect);
}

void client_destroy(client *client) {
  if (client->mosquitto != NULL) mosquitto_destroy(client->mosquitto);
  client->mosquitto = NULL;
  client->is_connected = false;
}

int client_wait(client *client, int wake, int64_t milliseconds) {
  struct pollfd polled[2] = {
    {mosquitto_socket(client->mosquitto), (short)(POLLIN | (mosquitto_want_write(client->mosquitto) ? POLLOUT : 0)), 0},
    {wake, POLLIN, 0},
  };
  return poll(polled, 2, milliseconds > 60000 ? 60000 : (int)milliseconds) > 0 ? polled[0].revents : 0;
}

bool client_has_input(client *client, int milliseconds) {
  struct pollfd polled = {mosquitto_socket(client->mosquitto), POLLIN, 0};
  return poll(&polled, 1, milliseconds) > 0;
}

bool client_read(client *client) {
  int status = mosquitto_loop_read(client->mosquitto, 1);
  if (status == MOSQ_ERR_SUCCESS && mosquitto_socket(client->mosquitto) >= 0) return true;
  if (client->problem[0] == 0) say_status(client, status == MOSQ_ERR_SUCCESS ? MOSQ_ERR_CONN_LOST : status);
  return false;
}

static bool client_write(client *client) {
  int status = mosquitto_loop_write(client->mosquitto, 1);
  if (status == MOSQ_ERR_SUCCESS && mosquitto_socket(client->mosquitto) >= 0) return true;
  if (client->problem[0] == 0) say_status(client, status == MOSQ_ERR_SUCCESS ? MOSQ_ERR_CONN_LOST : status);
  return false;
}

bool client_flush(client *client, int64_t milliseconds) {
  int64_t deadline = now_ms() + milliseconds;
  while (mosquitto_want_write(client->mosquitto)) {
    if (!client_write(client)) return false;
    if (!mosquitto_want_write(client->mosquitto)) break;
    struct pollfd polled = {mosquitto_socket(client->mosquitto), POLLOUT, 0};
    poll(&polled, 1, 100);
    if (now_ms() >= deadline) {
      say(client, "the broker takes nothing");
      return false;
    }
  }
  return true;
}

bool client_send_raw(client *client, unsigned char first) {
  unsigned char packet[2] = {first, 0};
  SSL *tls = mosquitto_ssl_get(client->mosquitto);
  if (tls != NULL) return SSL_write(tls, packet, sizeof packet) == sizeof packet;
  return send(mosquitto_socket(client->mosquitto), packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof packet;
}

void client_leave(client *client) {
  if (client->is_connected && client_send_raw(client, DISCONNECT)) {
    /* Closing a socket with unread data resets the connection, and the broker would lose this packet and everything
     * sent before. The broker closes the connection when it has read the packet; mosquitto_disconnect closes
     * immediately. */
    struct pollfd polled = {mosquitto_socket(client->mosquitto), POLLIN, 0};
    char unread[4096];
    int64_t end = now_ms() + 2000;
    shutdown(polled.fd, SHUT_WR);
    while (now_ms() < end && poll(&polled, 1, 100) >= 0) {
      ssize_t count = polled.revents == 0 ? 1 : recv(polled.fd, unread, sizeof unread, MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) break;
    }
  }
  client_destroy(client);
}

/* ---- Connecting ---- */

/* Classifies a refusal: parameters that have worked before may work again, because the broker's configuration may be
 * changing. */
static outcome lasting(const client *client) { return client->was_connected ? UNREACHABLE : REFUSED; }

/* Converts the broker's refusal to an outcome. */
static outcome refused(client *client, const settings *settings) {
  int code = client->refusal;
  if (code == 1 || code == MQTT_RC_UNSUPPORTED_PROTOCOL_VERSION) {
    snprintf(client->problem, sizeof client->problem, "the broker does not speak MQTT %s; set 'version: %s'",
             settings->is_v5 ? "5" : "3.1.1", settings->is_v5 ? "3.1.1" : "5");
    return lasting(client);
  }
  bool passes = code == 3 || code == MQTT_RC_SERVER_UNAVAILABLE || code == MQTT_RC_SERVER_BUSY
                || code == MQTT_RC_UNSPECIFIED || code == MQTT_RC_QUOTA_EXCEEDED
                || code == MQTT_RC_CONNECTION_RATE_EXCEEDED || code == MQTT_RC_IMPLEMENTATION_SPECIFIC;
  snprintf(client->problem, sizeof client->problem, "the broker refuses the connection: %s",
           code < 128 ? mosquitto_connack_string(code) : mosquitto_reason_string(code));
  size_t count = strlen(client->problem);
  if (count > 0 && client->problem[count - 1] == '.') client->problem[count - 1] = 0;
  return passes ? UNREACHABLE : lasting(client);
}

outcome client_connect(client *client, const settings *settings, bool clean, uint32_t expiry,
                            const stopping *stop) {
  int64_t deadline = now_ms() + settings->connect_timeout;
  if (settings->is_v5 && !clean) {
    /* Only the blocking connect functions accept properties, which they keep. So one of them is called with an
     * address at which nothing can listen, followed by the non-blocking one. */
    mosquitto_property *properties = NULL;
    mosquitto_property_add_int32(&properties, MQTT_PROP_SESSION_EXPIRY_INTERVAL, expiry);
    mosquitto_connect_bind_v5(client->mosquitto, "/", 0, settings->keep_alive, NULL, properties);
    mosquitto_property_free_all(&properties);
    client->problem[0] = 0;
  }
  errno = 0;
  int status =
    mosquitto_connect_async(client->mosquitto, settings->server.name, settings->server.port, settings->keep_alive);
  if (status != MOSQ_ERR_SUCCESS) {
    say_status(client, status);
    return UNREACHABLE;
  }
  while (!client->is_connected) {
    if (stop != NULL && stop->is_stopping(stop->argument)) return UNREACHABLE;
    int64_t left = deadline - now_ms();
    if (left <= 0) {
      say(client, "no answer in time");
      return UNREACHABLE;
    }
    int events = client_wait(client, -1, left > 100 ? 100 : left);
    if (events == 0) continue;
    /* Reading also advances the TLS handshake, whatever it waits for. */
    bool is_alive = (events & POLLOUT) == 0 || client_write(client);
    if (is_alive && ((events & ~POLLOUT) != 0 || (settings->is_secure && client->refusal == 0)))
      is_alive = client_read(client);
    if (client->refusal != 0) return refused(client, settings);
    if (is_alive) continue;
    SSL *tls = mosquitto_ssl_get(client->mosquitto);
    long verdict = tls == NULL ? X509_V_OK : SSL_get_verify_result(tls);
    if (verdict == X509_V_OK || settings->skips_verification) return UNREACHABLE;
    snprintf(client->problem, sizeof client->problem, "the certificate of the broker is not accepted: %s",
             X509_verify_cert_error_string(verdict));
    return lasting(client);
  }
  return DONE;
}
