#include "client.h"

enum {
  PING_MS = 10000,       /* a server that misses two pings counts as lost */
  PINGS_OUT = 2,
  WRITE_MS = 5000,       /* a server that accepts no data for so long counts as lost */
  SERVERS_MOST = 64,     /* maximum number of servers that a cluster advertises */
};

/* ---- Parameters ---- */

static void ignore_error(natsConnection *connection, natsSubscription *subscription, natsStatus error, void *closure) {
  (void)connection, (void)subscription, (void)error, (void)closure;
}

/* Reports why the library rejects a value, from its thread-local error; texts that may contain a secret are not
 * repeated. */
static int accepted(const rxd_opening *opening, const char *at, natsStatus status) {
  if (status == NATS_OK) return RXD_OK;
  return fail_at(opening->scope, at, "the NATS library refuses it: %s", natsStatus_GetText(status));
}

static void add_server(client *client, const char *url) {
  for (size_t i = 0; i < client->server_count; i++)
    if (strcmp(client->servers[i], url) == 0) return;
  client->servers = need(realloc(client->servers, (client->server_count + 1) * sizeof *client->servers));
  client->servers[client->server_count++] = need(strdup(url));
}

static int servers_parameter(const rxd_opening *opening, client *client) {
  static const address_form form = {"nats", "tls", 4222, 4222, false};
  rxd_value list = parameter(opening, "servers");
  size_t count = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  if (count == 0) return fail_at(opening->scope, "servers", "needs a server");
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    char *text = copy_text(host->text(opening->scope, &element)), at[32], problem[200], where[300], url[320];
    address address;
    const char *wrong = parse_address(text, &form, &address, problem, sizeof problem);
    free(text);
    snprintf(at, sizeof at, "servers.%zu", i);
    if (wrong != NULL) return fail_at(opening->scope, at, "%s", wrong);
    client->is_secure = client->is_secure || address.is_secure;
    snprintf(url, sizeof url, "nats://%s", address_text(&address, where, sizeof where));
    add_server(client, url);
  }
  client->given_count = client->server_count;
  return RXD_OK;
}

static int tls_parameters(const rxd_opening *opening, client *client) {
  static const char *const tls_only[] = {"ca", "certificate", "certificateKey", "dangerouslySkipVerification"};
  for (size_t i = 0; i < 4 && !client->is_secure; i++)
    if (i < 3 ? is_given(opening, tls_only[i]) : boolean_parameter(opening, tls_only[i]))
      return fail_at(opening->scope, tls_only[i], "has no effect without 'tls: true'");
  if (!client->is_secure) return RXD_OK;
  char *ca = NULL, *certificate = NULL, *key = NULL;
  int status = accepted(opening, "tls", natsOptions_SetSecure(client->options, true));
  if (status == RXD_OK) status = file_parameter(opening, "ca", &ca);
  if (status == RXD_OK) status = file_parameter(opening, "certificate", &certificate);
  if (status == RXD_OK) status = file_parameter(opening, "certificateKey", &key);
  if (status == RXD_OK && (certificate == NULL) != (key == NULL))
    status = fail_at(opening->scope, certificate != NULL ? "certificate" : "certificateKey",
                     "'certificate' and 'certificateKey' belong together");
  if (status == RXD_OK && ca != NULL)
    status = accepted(opening, "ca", natsOptions_LoadCATrustedCertificates(client->options, ca));
  if (status == RXD_OK && certificate != NULL)
    status = accepted(opening, "certificate", natsOptions_LoadCertificatesChain(client->options, certificate, key));
  if (status == RXD_OK && boolean_parameter(opening, "dangerouslySkipVerification"))
    status =
      accepted(opening, "dangerouslySkipVerification", natsOptions_SkipServerVerification(client->options, true));
  free(ca);
  free(certificate);
  free(key);
  return status;
}

/* The library would report a malformed file as an error without a reason, at each attempt. */
static bool has_credentials(const char *path) {
  enum { LARGEST = 1 << 16 };
  char *text = need(calloc(1, LARGEST));
  FILE *file = fopen(path, "re");
  size_t count = file != NULL ? fread(text, 1, LARGEST - 1, file) : 0;
  if (file != NULL) fclose(file);
  bool has_both = strstr(text, "BEGIN NATS USER JWT") != NULL && strstr(text, "BEGIN USER NKEY SEED") != NULL;
  explicit_bzero(text, count);
  free(text);
  return has_both;
}

/* Reads user and password, token, or credentials; at most one of them may be given. */
static int login_parameters(const rxd_opening *opening, client *client) {
  bool has_user = is_given(opening, "user"), has_token = is_given(opening, "token");
  if (is_given(opening, "password") != has_user)
    return fail_at(opening->scope, has_user ? "user" : "password", "'user' and 'password' belong together");
  if (has_token && has_user) return fail_at(opening->scope, "token", "cannot be combined with 'user'");
  if (is_given(opening, "credentials") && (has_user || has_token))
    return fail_at(opening->scope, "credentials", "cannot be combined with '%s'", has_user ? "user" : "token");
  char *user = NULL, *password = NULL, *token = NULL, *credentials = NULL;
  int status = text_parameter(opening, "user", &user);
  if (status == RXD_OK) status = text_parameter(opening, "password", &password);
  if (status == RXD_OK) status = text_parameter(opening, "token", &token);
  if (status == RXD_OK) status = file_parameter(opening, "credentials", &credentials);
  if (status == RXD_OK && credentials != NULL && !has_credentials(credentials))
    status = fail_at(opening->scope, "credentials",
                     "the file must have a 'NATS USER JWT' and a 'USER NKEY SEED', each with its lines");
  if (status == RXD_OK && user != NULL)
    status = accepted(opening, "user", natsOptions_SetUserInfo(client->options, user, password));
  if (status == RXD_OK && token != NULL)
    status = accepted(opening, "token", natsOptions_SetToken(client->options, token));
  if (status == RXD_OK && credentials != NULL)
    status = accepted(opening, "credentials",
                      natsOptions_SetUserCredentialsFromFiles(client->options, credentials, NULL));
  free(user);
  free_secret(password);
  free_secret(token);
  free(credentials);
  return status;
}

static int names_parameters(const rxd_opening *opening, client *client) {
  int status = text_parameter(opening, "inboxPrefix", &client->inbox_prefix);
  if (status == RXD_OK && client->inbox_prefix == NULL) client->inbox_prefix = need(strdup("_INBOX"));
  if (status == RXD_OK && (!is_subject(text_of(client->inbox_prefix), false) || strlen(client->inbox_prefix) > 100))
    status = fail_at(opening->scope, "inboxPrefix", "must be a subject of at most 100 bytes, without wildcards");
  if (status == RXD_OK)
    status = accepted(opening, "inboxPrefix", natsOptions_SetCustomInboxPrefix(client->options, client->inbox_prefix));
  if (status == RXD_OK) status = name_parameter(opening, "domain", &client->domain);
  if (status != RXD_OK) return status;
  char name[160];
  snprintf(name, sizeof name, "rxd %.*s", (int)(opening->step.count < 140 ? opening->step.count : 140),
           opening->step.bytes);
  return accepted(opening, "", natsOptions_SetName(client->options, name));
}

static natsStatus fixed_options(natsOptions *options, int64_t timeout) {
  natsStatus status = natsOptions_SetAllowReconnect(options, false);
  if (status == NATS_OK) status = natsOptions_SetTimeout(options, timeout);
  if (status == NATS_OK) status = natsOptions_SetPingInterval(options, PING_MS);
  if (status == NATS_OK) status = natsOptions_SetMaxPingsOut(options, PINGS_OUT);
  if (status == NATS_OK) status = natsOptions_SetWriteDeadline(options, WRITE_MS);
  /* Without an error handler, the library writes to standard error. */
  if (status == NATS_OK) status = natsOptions_SetErrorHandler(options, ignore_error, NULL);
  return status;
}

int client_open(const rxd_opening *opening, client *client) {
  memset(client, 0, sizeof *client);
  client->attempts = (attempts){.instance = opening->instance, .counter = "connectionErrors", .again = "trying again",
                                .works = "connected"};
  client->is_secure = boolean_parameter(opening, "tls");
  if (natsOptions_Create(&client->options) != NATS_OK)
    return fail_at(opening->scope, "", "the NATS library cannot be started");
  int status = accepted(opening, "connectTimeout",
                        fixed_options(client->options, milliseconds_parameter(opening, "connectTimeout", 2000)));
  if (status == RXD_OK) status = servers_parameter(opening, client);
  if (status == RXD_OK) status = tls_parameters(opening, client);
  if (status == RXD_OK) status = login_parameters(opening, client);
  if (status == RXD_OK) status = names_parameters(opening, client);
  return status;
}

void client_close(client *client) {
  client_disconnect(client);
  natsOptions_Destroy(client->options);
  for (size_t i = 0; i < client->server_count; i++) free(client->servers[i]);
  free(client->servers);
  free(client->domain);
  free(client->inbox_prefix);
}

bool is_subject(rxd_text text, bool wildcards) {
  enum { LONGEST = 3800 }; /* servers accept lines of 4096 bytes */
  if (text.count == 0 || text.count > LONGEST) return false;
  size_t token = 0;
  for (size_t i = 0; i <= text.count; i++) {
    if (i == text.count || text.bytes[i] == '.') {
      size_t count = i - token;
      bool is_wild = count == 1 && (text.bytes[token] == '*' || text.bytes[token] == '>');
      if (count == 0 || (is_wild && !wildcards)) return false;
      if (count == 1 && text.bytes[token] == '>' && i < text.count) return false;
      token = i + 1;
    } else if ((unsigned char)text.bytes[i] <= ' ' || text.bytes[i] == 127) return false;
  }
  return true;
}

int name_parameter(const rxd_opening *opening, const char *name, char **copy) {
  int status = text_parameter(opening, name, copy);
  if (status != RXD_OK || *copy == NULL) return status;
  bool is_name = **copy != 0 && strlen(*copy) <= 255;
  for (const char *at = *copy; *at != 0; at++)
    is_name = is_name && (unsigned char)*at > ' ' && *at != 127 && strchr(".*>/\\", *at) == NULL;
  return is_name ? RXD_OK
                 : fail_at(opening->scope, name, "must have 1 to 255 bytes, without spaces and any of . * > / \\");
}

int bucket_parameter(const rxd_opening *opening, char **copy) {
  int status = text_parameter(opening, "bucket", copy);
  if (status != RXD_OK) return status;
  bool is_name = *copy != NULL && **copy != 0 && strlen(*copy) <= 200;
  for (const char *at = *copy; is_name && *at != 0; at++)
    is_name = isalnum((unsigned char)*at) || *at == '-' || *at == '_';
  return is_name ? RXD_OK : fail_at(opening->scope, "bucket", "must be 1 to 200 letters, digits, hyphens or underscores");
}

int buffer_parameter(const rxd_opening *opening, size_t *bytes) {
  enum { LEAST = 1 << 20, MOST = 1 << 30 };
  int64_t given = integer_parameter(opening, "buffer", 32 << 20);
  *bytes = (size_t)given;
  return given >= LEAST && given <= MOST ? RXD_OK : fail_at(opening->scope, "buffer", "must be 1MiB to 1GiB");
}

/* ---- Connecting ---- */

/* The last server that was tried, without the scheme. */
static const char *server_text(const client *client) {
  size_t last = (client->next_server + client->server_count - 1) % client->server_count;
  return client->servers[last] + strlen("nats://");
}

void client_trouble(client *client, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  attempt_trouble(&client->attempts, server_text(client), "", format, arguments);
  va_end(arguments);
}

/* Adds the other members that a cluster advertises, so that one can be used when all servers of the parameters are
 * down. */
static void learn_servers(client *client) {
  char **found = NULL;
  int count = 0;
  if (natsConnection_GetDiscoveredServers(client->connection, &found, &count) != NATS_OK) return;
  for (int i = 0; i < count; i++) {
    if (client->server_count < client->given_count + SERVERS_MOST && strncmp(found[i], "nats://", 7) == 0)
      add_server(client, found[i]);
    free(found[i]);
  }
  free(found);
}

static outcome judge_connect(client *client, natsStatus status) {
  static const char needs_tls[] = "the server requires TLS; set 'tls: true'";
  switch (status) {
    case NATS_CONNECTION_AUTH_FAILED:
      client_trouble(client, "the server refuses the login; check 'user' and 'password', 'token' or 'credentials'");
      break;
    case NATS_SECURE_CONNECTION_REQUIRED: client_trouble(client, needs_tls); break;
    case NATS_SECURE_CONNECTION_WANTED:
      client_trouble(client, "the server has no TLS; remove 'tls', or configure the server");
      break;
    case NATS_SSL_ERROR:
      /* The library starts TLS on its own if the server requires it. */
      if (!client->is_secure) client_trouble(client, needs_tls);
      else client_trouble(client, "TLS cannot be set up; check the server's certificate, its name and 'ca'");
      break;
    case NATS_NO_SERVER:
    case NATS_TIMEOUT:
      client_trouble(client, "the server cannot be reached");
      return UNREACHABLE;
    case NATS_PROTOCOL_ERROR:
    case NATS_LINE_TOO_LONG:
      client_trouble(client, "what answers there is no NATS server");
      return UNREACHABLE;
    default:
      client_trouble(client, "no connection: %s", natsStatus_GetText(status));
      return UNREACHABLE;
  }
  return attempt_refused(&client->attempts);
}

outcome client_connect(client *client) {
  client_disconnect(client);
  const char *url = client->servers[client->next_server];
  client->next_server = (client->next_server + 1) % client->server_count;
  natsStatus status = natsOptions_SetURL(client->options, url);
  if (status == NATS_OK) status = natsConnection_Connect(&client->connection, client->options);
  if (status != NATS_OK) {
    client->connection = NULL;
    return judge_connect(client, status);
  }
  client->attempts.was_connected = true;
  learn_servers(client);
  return DONE;
}

outcome client_connect_any(client *client) {
  outcome outcome = UNREACHABLE;
  for (size_t tried = 0; tried < client->server_count && outcome == UNREACHABLE; tried++) {
    if (tried > 0 && host->is_closing(client->attempts.instance)) break;
    outcome = client_connect(client);
  }
  return outcome;
}

void client_hang_up(client *client) {
  if (client->connection != NULL) natsConnection_Close(client->connection);
}

void client_disconnect(client *client) {
  if (client->connection != NULL) natsConnection_Destroy(client->connection);
  client->connection = NULL;
}

bool client_is_connected(const client *client) {
  return client->connection != NULL && natsConnection_Status(client->connection) == NATS_CONN_STATUS_CONNECTED;
}

void client_works(client *client) { attempt_works(&client->attempts, server_text(client)); }

const char *client_violation(const client *client) {
  const char *text = NULL;
  if (client->connection == NULL) return NULL;
  return natsConnection_GetLastError(client->connection, &text) == NATS_NOT_PERMITTED ? text : NULL;
}

/* ---- JetStream ---- */

char *client_api(const client *client, const char *format, ...) {
  char *rest, *all;
  va_list arguments;
  va_start(arguments, format);
  int count = vasprintf(&rest, format, arguments);
  va_end(arguments);
  if (count < 0) abort();
  if (client->domain == NULL) count = asprintf(&all, "$JS.API.%s", rest);
  else count = asprintf(&all, "$JS.%s.API.%s", client->domain, rest);
  if (count < 0) abort();
  free(rest);
  return all;
}

char *client_inbox(const client *client) {
  natsInbox *random = NULL;
  char *inbox;
  if (natsInbox_Create(&random) != NATS_OK) abort();
  const char *last = strrchr(random, '.');
  if (asprintf(&inbox, "%s%s", client->inbox_prefix, last) < 0) abort();
  natsInbox_Destroy(random);
  return inbox;
}

jsCtx *client_jetstream(client *client, int64_t wait) {
  jsCtx *context = NULL;
  jsOptions options;
  jsOptions_Init(&options);
  options.Wait = wait;
  options.Domain = client->domain;
  return natsConnection_JetStream(&context, client->connection, &options) == NATS_OK ? context : NULL;
}
