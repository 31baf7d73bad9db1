#include "client.h"

#include <errno.h>
#include <openssl/err.h>

enum {
  FRAME_WANTED = 128 << 10, /* maximum size of a sent frame, in bytes */
  CALL_MS = 10000,          /* time limit of a request */
  SLICE_MS = 100,           /* time between checks for a stop */
};

/* ---- Parameters ---- */

int short_parameter(const rxd_opening *opening, const char *name, char **copy) {
  int status = text_parameter(opening, name, copy);
  if (status == RXD_OK && *copy != NULL && strlen(*copy) > 255)
    return fail_at(opening->scope, name, "must have at most 255 bytes");
  return status;
}

static int servers_parameter(const rxd_opening *opening, client *client, bool *is_secure) {
  address_form form = {"amqp", "amqps", *is_secure ? 5671 : 5672, 5671, false};
  rxd_value list = parameter(opening, "servers");
  size_t count = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  if (count == 0) return fail_at(opening->scope, "servers", "needs a server");
  client->servers = need(calloc(count, sizeof *client->servers));
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    char *text = copy_text(host->text(opening->scope, &element)), at[32], problem[200];
    const char *wrong = parse_address(text, &form, &client->servers[i], problem, sizeof problem);
    bool is_plain = strncasecmp(text, "amqp://", 7) == 0;
    free(text);
    snprintf(at, sizeof at, "servers.%zu", i);
    if (wrong != NULL) return fail_at(opening->scope, at, "%s", wrong);
    if (is_plain && *is_secure) return fail_at(opening->scope, at, "amqp:// is not encrypted; use amqps://");
    if (i > 0 && client->servers[i].is_secure != client->servers[0].is_secure)
      return fail_at(opening->scope, at, "all servers must be amqps://, or none; use 'tls: true'");
    client->server_count++;
  }
  *is_secure = *is_secure || client->servers[0].is_secure;
  return RXD_OK;
}

static int refuse_file(const rxd_opening *opening, const char *name) {
  unsigned long error = ERR_peek_last_error();
  const char *reason = error != 0 ? ERR_reason_error_string(error) : NULL;
  ERR_clear_error();
  return fail_at(opening->scope, name, "the file is refused: %s", reason != NULL ? reason : "it is not such a PEM file");
}

static int certificate_parameters(const rxd_opening *opening, client *client, const char *certificate, const char *key) {
  if ((certificate == NULL) != (key == NULL))
    return fail_at(opening->scope, certificate != NULL ? "certificate" : "certificateKey",
                   "'certificate' and 'certificateKey' belong together");
  if (certificate == NULL) return RXD_OK;
  if (SSL_CTX_use_certificate_chain_file(client->tls, certificate) != 1) return refuse_file(opening, "certificate");
  if (SSL_CTX_use_PrivateKey_file(client->tls, key, SSL_FILETYPE_PEM) != 1)
    return refuse_file(opening, "certificateKey");
  return RXD_OK;
}

/* OpenSSL must not ask for a key's passphrase at a terminal. */
static int no_passphrase(char *text, int size, int writes, void *closure) {
  (void)text, (void)size, (void)writes, (void)closure;
  return -1;
}

static int tls_parameters(const rxd_opening *opening, client *client, bool is_secure) {
  static const char *const tls_only[] = {"ca", "certificate", "certificateKey", "dangerouslySkipVerification"};
  for (size_t i = 0; i < 4 && !is_secure; i++)
    if (i < 3 ? is_given(opening, tls_only[i]) : boolean_parameter(opening, tls_only[i]))
      return fail_at(opening->scope, tls_only[i], "has no effect without 'tls: true'");
  if (!is_secure) return RXD_OK;
  client->tls = need(SSL_CTX_new(TLS_client_method()));
  client->verifies = !boolean_parameter(opening, "dangerouslySkipVerification");
  SSL_CTX_set_min_proto_version(client->tls, TLS1_2_VERSION);
  SSL_CTX_set_mode(client->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(client->tls, client->verifies ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
  SSL_CTX_set_default_passwd_cb(client->tls, no_passphrase);
  char *ca = NULL, *certificate = NULL, *key = NULL;
  int status = file_parameter(opening, "ca", &ca);
  if (status == RXD_OK) status = file_parameter(opening, "certificate", &certificate);
  if (status == RXD_OK) status = file_parameter(opening, "certificateKey", &key);
  ERR_clear_error();
  if (status == RXD_OK && ca != NULL && SSL_CTX_load_verify_file(client->tls, ca) != 1)
    status = refuse_file(opening, "ca");
  if (status == RXD_OK && ca == NULL) SSL_CTX_set_default_verify_paths(client->tls);
  if (status == RXD_OK) status = certificate_parameters(opening, client, certificate, key);
  ERR_clear_error();
  free(ca);
  free(certificate);
  free(key);
  return status;
}

static int login_parameters(const rxd_opening *opening, client *client) {
  client->is_external = choice_is(opening, "mechanism", "EXTERNAL");
  bool has_user = is_given(opening, "user"), has_password = is_given(opening, "password");
  if (client->is_external && !is_given(opening, "certificate"))
    return fail_at(opening->scope, "mechanism", "EXTERNAL needs 'certificate', which names the user");
  if (client->is_external && (has_user || has_password))
    return fail_at(opening->scope, has_user ? "user" : "password", "cannot be combined with 'mechanism: EXTERNAL'");
  if (has_user != has_password)
    return fail_at(opening->scope, has_user ? "user" : "password", "'user' and 'password' belong together");
  int status = text_parameter(opening, "user", &client->user);
  if (status == RXD_OK) status = text_parameter(opening, "password", &client->password);
  if (status == RXD_OK) status = short_parameter(opening, "vhost", &client->vhost);
  if (status != RXD_OK) return status;
  if (client->user == NULL) client->user = need(strdup("guest"));
  if (client->password == NULL) client->password = need(strdup("guest"));
  if (client->vhost == NULL) client->vhost = need(strdup("/"));
  return RXD_OK;
}

int client_open(const rxd_opening *opening, client *client) {
  memset(client, 0, sizeof *client);
  client->attempts = (attempts){.instance = opening->instance, .counter = "connectionErrors", .again = "trying again",
                                .works = "connected"};
  client->wire.fd = -1;
  client->connect_timeout = milliseconds_parameter(opening, "connectTimeout", 5000);
  client->heartbeat = milliseconds_parameter(opening, "heartbeat", 30000);
  if (asprintf(&client->name, "rxd %.*s", (int)(opening->step.count < 140 ? opening->step.count : 140),
               opening->step.bytes)
      < 0)
    abort();
  bool is_secure = boolean_parameter(opening, "tls");
  int status = servers_parameter(opening, client, &is_secure);
  if (status == RXD_OK) status = tls_parameters(opening, client, is_secure);
  if (status == RXD_OK) status = login_parameters(opening, client);
  return status;
}

void client_close(client *client) {
  client_disconnect(client);
  SSL_CTX_free(client->tls);
  free(client->servers);
  free(client->user);
  free_secret(client->password);
  free(client->vhost);
  free(client->name);
}

/* ---- Reports ---- */

/* The server of the last attempt. */
static const char *server_text(const client *client, char *text, size_t capacity) {
  size_t last = (client->next_server + client->server_count - 1) % client->server_count;
  return address_text(&client->servers[last], text, capacity);
}

void client_trouble(client *client, const char *at, const char *format, ...) {
  char server[280];
  va_list arguments;
  va_start(arguments, format);
  attempt_trouble(&client->attempts, server_text(client, server, sizeof server), at, format, arguments);
  va_end(arguments);
}

void client_lost(client *client) {
  client_trouble(client, "", "%s", client->wire.is_lost ? client->wire.problem : "the connection is lost");
}

void client_works(client *client) {
  char server[280];
  attempt_works(&client->attempts, server_text(client, server, sizeof server));
}

/* ---- Frames of the connection and the channel ---- */

/* The server's text, reduced to printable ASCII because it is logged. */
static void keep_reason(client *client, int code, amqp_bytes_t text) {
  size_t count = 0;
  const unsigned char *bytes = text.bytes;
  client->code = code;
  for (size_t i = 0; i < text.len && count < sizeof client->reason - 1; i++)
    client->reason[count++] = bytes[i] >= ' ' && bytes[i] < 127 ? (char)bytes[i] : '?';
  client->reason[count] = 0;
}

static void handle_close(client *client, const frame *frame, bool is_channel) {
  amqp_channel_close_t *close = wire_decode(&client->wire, frame); /* both methods have the same members */
  if (close == NULL) return;
  keep_reason(client, close->reply_code, close->reply_text);
  client->is_open = false;
  if (is_channel) {
    amqp_channel_close_ok_t ok = {0};
    wire_put_method(&client->wire, CHANNEL, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    return;
  }
  amqp_connection_close_ok_t ok = {0};
  wire_put_method(&client->wire, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
  wire_pump(&client->wire, -1, 0);
  wire_fail(&client->wire, "the server has closed the connection: %s", client->reason);
}

static void handle_blocked(client *client, const frame *frame) {
  amqp_connection_blocked_t *blocked = wire_decode(&client->wire, frame);
  if (blocked == NULL || client->is_blocked) return;
  client->is_blocked = true;
  host->count_up(client->attempts.instance, RXD_TEXT_OF("blocked"), 1);
  report(client->attempts.instance, "warning", "the server takes no messages for now: %.*s",
         (int)(blocked->reason.len < 100 ? blocked->reason.len : 100), (const char *)blocked->reason.bytes);
}

bool client_handle(client *client, const frame *frame) {
  switch (frame_method(frame)) {
    case AMQP_CHANNEL_CLOSE_METHOD: handle_close(client, frame, true); return true;
    case AMQP_CONNECTION_CLOSE_METHOD: handle_close(client, frame, false); return true;
    case AMQP_CONNECTION_BLOCKED_METHOD: handle_blocked(client, frame); return true;
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
      if (client->is_blocked) report(client->attempts.instance, "info", "the server takes messages again");
      client->is_blocked = false;
      return true;
    case AMQP_CHANNEL_FLOW_METHOD: {
      amqp_channel_flow_t *flow = wire_decode(&client->wire, frame);
      if (flow == NULL) return true;
      client->is_blocked = !flow->active;
      amqp_channel_flow_ok_t ok = {flow->active};
      wire_put_method(&client->wire, CHANNEL, AMQP_CHANNEL_FLOW_OK_METHOD, &ok);
      return true;
    }
    default: return false;
  }
}

/* ---- Requests ---- */

static bool is_over(const void *closure) {
  const client *client = closure;
  return (client->is_ending != NULL && *client->is_ending) || host->is_closing(client->attempts.instance);
}

/* Waits for one of two methods and handles other frames of the connection. Returns 0 if the connection is lost or the
 * request refused. */
static amqp_method_number_t wait_for_method(client *client, amqp_method_number_t first, amqp_method_number_t second,
                                            frame *frame, int64_t until) {
  while (!client->wire.is_lost && client->code == 0) {
    while (wire_next(&client->wire, frame)) {
      amqp_method_number_t method = frame_method(frame);
      if (method != 0 && (method == first || method == second)) return method;
      if (client_handle(client, frame) && client->code != 0) return 0;
    }
    if (client->wire.is_lost) break;
    if (now_ms() >= until) {
      wire_fail(&client->wire, "the server does not answer");
      break;
    }
    if (is_over(client)) {
      wire_fail(&client->wire, "the pipeline has stopped");
      break;
    }
    wire_pump(&client->wire, -1, SLICE_MS);
  }
  return 0;
}

outcome client_call(client *client, amqp_method_number_t request, void *arguments, amqp_method_number_t answer_id,
                    void **answer) {
  frame frame;
  client->code = 0;
  wire_put_method(&client->wire, CHANNEL, request, arguments);
  if (wait_for_method(client, answer_id, 0, &frame, now_ms() + CALL_MS) == 0) {
    if (client->wire.is_lost) client_lost(client);
    return client->code != 0 && !client->wire.is_lost ? REFUSED : UNREACHABLE;
  }
  if (answer == NULL) return DONE;
  *answer = wire_decode(&client->wire, &frame);
  if (*answer != NULL) return DONE;
  client_lost(client);
  return UNREACHABLE;
}

/* ---- Connecting ---- */

/* Whether `word` is in the space-separated list. */
static bool has_word(const uint8_t *list, size_t count, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i + length <= count; i++)
    if ((i == 0 || list[i - 1] == ' ') && memcmp(list + i, word, length) == 0
        && (i + length == count || list[i + length] == ' '))
      return true;
  return false;
}

/* connection.start has two bytes, a table, and the mechanisms. The table is skipped. */
static bool offers_mechanism(const frame *frame, const char *mechanism) {
  const uint8_t *at = frame->bytes + 4, *end = frame->bytes + frame->count;
  for (int text = 0; text < 2; text++) {
    if (text == 0 && end - at >= 2) at += 2;
    if (end - at < 4) return false;
    size_t count = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
    at += 4;
    if ((size_t)(end - at) < count) return false;
    if (text == 1) return has_word(at, count, mechanism);
    at += count;
  }
  return false;
}

static amqp_table_entry_t text_entry(const char *name, const char *text) {
  amqp_table_entry_t entry = {.key = bytes_of(name)};
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = bytes_of(text);
  return entry;
}

static amqp_table_entry_t true_entry(const char *name) {
  amqp_table_entry_t entry = {.key = bytes_of(name)};
  entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
  entry.value.value.boolean = 1;
  return entry;
}

static void send_login(client *client) {
  amqp_table_entry_t able[] = {true_entry("publisher_confirms"), true_entry("basic.nack"),
                               true_entry("consumer_cancel_notify"), true_entry("connection.blocked"),
                               true_entry("authentication_failure_close")};
  amqp_table_entry_t properties[] = {text_entry("product", "rxd"), text_entry("connection_name", client->name),
                                     {.key = bytes_of("capabilities")}};
  properties[2].value.kind = AMQP_FIELD_KIND_TABLE;
  properties[2].value.value.table = (amqp_table_t){sizeof able / sizeof able[0], able};
  size_t user = strlen(client->user), password = strlen(client->password), count = 0;
  char *response = need(calloc(1, user + password + 3));
  if (!client->is_external) {
    memcpy(response + 1, client->user, user);
    memcpy(response + 2 + user, client->password, password);
    count = user + password + 2;
  }
  amqp_connection_start_ok_t ok = {
    .client_properties = {sizeof properties / sizeof properties[0], properties},
    .mechanism = bytes_of(client->is_external ? "EXTERNAL" : "PLAIN"),
    .response = {count, response},
    .locale = bytes_of("en_US"),
  };
  wire_put_method(&client->wire, 0, AMQP_CONNECTION_START_OK_METHOD, &ok);
  explicit_bzero(response, user + password + 3);
  free(response);
}

static outcome login_refused(client *client) {
  if (client->code == 0) {
    client_lost(client);
    return UNREACHABLE;
  }
  if (client->code == AMQP_ACCESS_REFUSED) {
    client_trouble(client, client->is_external ? "certificate" : "user", "the server refuses the login; check %s",
                   client->is_external ? "'certificate', and which user the server takes from it"
                                       : "'user' and 'password'");
    return attempt_refused(&client->attempts);
  }
  client_trouble(client, "", "the server refuses the connection: %s", client->reason);
  return UNREACHABLE;
}

/* Wipes the output buffer, which contained the password. */
static void wipe_out(wire *wire) {
  if (wire->out.bytes != NULL && wire_waiting(wire) == 0) explicit_bzero(wire->out.bytes, wire->out.capacity);
}

static outcome log_in(client *client, int64_t until) {
  frame frame;
  const char *mechanism = client->is_external ? "EXTERNAL" : "PLAIN";
  wire_put_raw(&client->wire, "AMQP\0\0\11\1", 8);
  if (wait_for_method(client, AMQP_CONNECTION_START_METHOD, 0, &frame, until) == 0) return login_refused(client);
  if (!offers_mechanism(&frame, mechanism)) {
    client_trouble(client, "mechanism", "the server does not offer the login %s", mechanism);
    return attempt_refused(&client->attempts);
  }
  send_login(client);
  amqp_method_number_t method =
    wait_for_method(client, AMQP_CONNECTION_TUNE_METHOD, AMQP_CONNECTION_SECURE_METHOD, &frame, until);
  wipe_out(&client->wire);
  if (method == AMQP_CONNECTION_SECURE_METHOD) {
    client_trouble(client, "mechanism", "the server asks for more than %s gives", mechanism);
    return attempt_refused(&client->attempts);
  }
  amqp_connection_tune_t *tune = method == 0 ? NULL : wire_decode(&client->wire, &frame);
  if (tune == NULL) return login_refused(client);
  uint16_t seconds = (uint16_t)((client->heartbeat + 999) / 1000);
  amqp_connection_tune_ok_t ok = {.channel_max = 1, .frame_max = FRAME_WANTED, .heartbeat = seconds};
  if (tune->frame_max >= 4096 && tune->frame_max < FRAME_WANTED) ok.frame_max = tune->frame_max;
  if (tune->heartbeat > 0 && tune->heartbeat < seconds) ok.heartbeat = tune->heartbeat;
  client->wire.frame_max = ok.frame_max;
  client->wire.heartbeat_ms = ok.heartbeat * 1000;
  wire_put_method(&client->wire, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &ok);
  return DONE;
}

static outcome open_vhost(client *client, int64_t until) {
  frame frame;
  amqp_connection_open_t open = {.virtual_host = bytes_of(client->vhost)};
  wire_put_method(&client->wire, 0, AMQP_CONNECTION_OPEN_METHOD, &open);
  if (wait_for_method(client, AMQP_CONNECTION_OPEN_OK_METHOD, 0, &frame, until) != 0) return DONE;
  if (client->code == AMQP_NOT_ALLOWED && strstr(client->reason, "limit") == NULL) {
    client_trouble(client, "vhost", "the server refuses the virtual host '%.80s': %s; correct 'vhost', or allow it to the user",
                   client->vhost, client->reason);
    return attempt_refused(&client->attempts);
  }
  return login_refused(client);
}

outcome client_reopen(client *client) {
  amqp_channel_open_t open = {0};
  outcome outcome = client_call(client, AMQP_CHANNEL_OPEN_METHOD, &open, AMQP_CHANNEL_OPEN_OK_METHOD, NULL);
  if (outcome == DONE) client->is_open = true;
  else if (outcome == REFUSED) client_trouble(client, "", "the server opens no channel: %s", client->reason);
  return outcome == DONE ? DONE : UNREACHABLE;
}

outcome client_connect(client *client) {
  client_disconnect(client);
  const address *server = &client->servers[client->next_server];
  client->next_server = (client->next_server + 1) % client->server_count;
  client->code = 0;
  client->is_blocked = false;
  bool is_tls_error;
  patience patience = {now_ms() + client->connect_timeout, is_over, client};
  if (!wire_open(&client->wire, server, client->tls, client->verifies, &patience, &is_tls_error)) {
    client_trouble(client, is_tls_error ? "tls" : "", "%s", client->wire.problem);
    return is_tls_error ? attempt_refused(&client->attempts) : UNREACHABLE;
  }
  int64_t until = now_ms() + client->connect_timeout;
  outcome outcome = log_in(client, until);
  if (outcome == DONE) outcome = open_vhost(client, until);
  if (outcome == DONE) outcome = client_reopen(client);
  return outcome;
}

void client_disconnect(client *client) {
  client->is_open = false;
  if (client->wire.fd >= 0 || client->wire.out.bytes != NULL) wire_close(&client->wire);
}

void client_leave(client *client, int64_t until) {
  frame frame;
  if (client->wire.fd >= 0 && !client->wire.is_lost) {
    amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = bytes_of("bye")};
    wire_put_method(&client->wire, 0, AMQP_CONNECTION_CLOSE_METHOD, &close);
    while (!client->wire.is_lost && now_ms() < until) {
      wire_pump(&client->wire, -1, SLICE_MS);
      bool is_over = false;
      while (!is_over && wire_next(&client->wire, &frame))
        is_over = frame_method(&frame) == AMQP_CONNECTION_CLOSE_OK_METHOD;
      if (is_over) break;
    }
  }
  client_disconnect(client);
}
