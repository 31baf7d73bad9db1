/* Finds credentials, in the order of AWS's own tools: parameters, the environment, a web identity, the shared file, a
 * container, the machine (IMDSv2). */
#include "client.h"
#include "xml.h"

#include <errno.h>

enum {
  EARLY_SECONDS = 300, /* time before the expiry at which temporary ones are renewed */
  FILE_SECONDS = 300,  /* time after which a file is read again */
  FILE_MOST = 1 << 20,
  ASK_MS = 5000,
};

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value != NULL && *value != 0 ? value : NULL;
}

static char *copy_of(const char *text) { return text != NULL ? need(strdup(text)) : NULL; }

static void drop(credentials *self) {
  free_secret(self->access);
  free_secret(self->secret);
  free_secret(self->token);
  self->access = self->secret = self->token = NULL;
  self->expires = 0;
}

/* Takes ownership of the three texts. */
static void use(credentials *self, char *access, char *secret, char *token, time_t expires) {
  drop(self);
  self->access = access;
  self->secret = secret;
  self->token = token;
  self->expires = expires;
}

/* The content of a file; NULL: it cannot be read. */
static char *file_content(const char *path) {
  FILE *file = fopen(path, "re");
  if (file == NULL) return NULL;
  buffer content = {0};
  char piece[4096];
  size_t count;
  while ((count = fread(piece, 1, sizeof piece, file)) > 0 && content.count < FILE_MOST) buffer_add(&content, piece, count);
  explicit_bzero(piece, sizeof piece);
  fclose(file);
  buffer_add(&content, "", 0);
  return content.bytes;
}

static char *trimmed(char *text) {
  while (isspace((unsigned char)*text)) text++;
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
  return text;
}

/* ---- The shared file ---- */

static char *shared_path(const credentials *self) {
  char *path;
  const char *given = self->file != NULL ? self->file : variable("AWS_SHARED_CREDENTIALS_FILE");
  if (given != NULL) return need(strdup(given));
  const char *home = variable("HOME");
  if (home == NULL) return NULL;
  if (asprintf(&path, "%s/.aws/credentials", home) < 0) abort();
  return path;
}

static const char *profile_of(const credentials *self) {
  const char *profile = self->profile != NULL ? self->profile : variable("AWS_PROFILE");
  return profile != NULL ? profile : "default";
}

static void read_profile(char *content, const char *profile, char *values[3]) {
  static const char *const names[3] = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"};
  bool is_here = false;
  char *rest = NULL;
  for (char *line = strtok_r(content, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    line = trimmed(line);
    size_t length = strlen(line);
    if (*line == '[' && line[length - 1] == ']') {
      line[length - 1] = 0;
      is_here = strcmp(trimmed(line + 1), profile) == 0;
      continue;
    }
    char *equals = strchr(line, '=');
    if (!is_here || equals == NULL || *line == '#' || *line == ';') continue;
    *equals = 0;
    for (size_t i = 0; i < 3; i++) {
      if (strcasecmp(trimmed(line), names[i]) != 0) continue;
      free_secret(values[i]);
      values[i] = need(strdup(trimmed(equals + 1)));
    }
  }
}

/* ABSENT: the file or the profile does not exist. */
static outcome from_file(client *client) {
  credentials *self = &client->credentials;
  bool is_wanted = self->file != NULL || self->profile != NULL;
  char *path = shared_path(self);
  char *content = path != NULL ? file_content(path) : NULL;
  char *values[3] = {NULL, NULL, NULL};
  outcome outcome = ABSENT;
  if (content == NULL && is_wanted) {
    client_trouble(client, "the credentials file '%.150s' cannot be read: %s", path != NULL ? path : "", strerror(errno));
    outcome = NEVER;
  }
  size_t count = content != NULL ? strlen(content) : 0;
  if (content != NULL) read_profile(content, profile_of(self), values);
  if (values[0] != NULL && values[1] != NULL) {
    use(self, values[0], values[1], values[2], time(NULL) + EARLY_SECONDS + FILE_SECONDS);
    outcome = DONE;
  } else {
    for (size_t i = 0; i < 3; i++) free_secret(values[i]);
    if (content != NULL && is_wanted) {
      client_trouble(client, "the credentials file '%.150s' has no access key in the profile '%.60s'", path, profile_of(self));
      outcome = NEVER;
    }
  }
  if (content != NULL) explicit_bzero(content, count);
  free(content);
  free(path);
  return outcome;
}

/* ---- Services that issue temporary credentials ---- */

/* The text of a member of a flat JSON object; NULL: the object has no such member. */
static char *json_text(const char *json, const char *name) {
  char quoted[80];
  snprintf(quoted, sizeof quoted, "\"%s\"", name);
  const char *at = strstr(json, quoted);
  if (at == NULL) return NULL;
  at += strlen(quoted);
  while (isspace((unsigned char)*at)) at++;
  if (*at++ != ':') return NULL;
  while (isspace((unsigned char)*at)) at++;
  if (*at++ != '"') return NULL;
  buffer text = {0};
  buffer_add(&text, "", 0);
  for (; *at != '"'; at++) {
    if (*at == '\\' && at[1] != 0) at++;
    if (*at == 0) {
      buffer_free(&text);
      return NULL;
    }
    buffer_add(&text, at, 1);
  }
  return text.bytes;
}

static time_t time_of(const char *text) {
  struct tm parts = {0};
  if (text == NULL || strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) == NULL) return time(NULL) + 2 * EARLY_SECONDS;
  return timegm(&parts);
}

static outcome use_json(client *client, const answer *answer) {
  const char *json = buffer_text(&answer->body);
  char *access = json_text(json, "AccessKeyId"), *secret = json_text(json, "SecretAccessKey");
  char *token = json_text(json, "Token"), *expires = json_text(json, "Expiration");
  outcome outcome = access != NULL && secret != NULL ? DONE : AGAIN;
  if (outcome == DONE) use(&client->credentials, access, secret, token, time_of(expires));
  else {
    client_trouble(client, "the service that gives credentials sent none");
    free_secret(access), free_secret(secret), free_secret(token);
  }
  free(expires);
  return outcome;
}

/* Sends an unsigned request. */
static outcome ask(client *client, const char *url, request *request, answer *answer) {
  origin origin = {0};
  bool is_secure;
  char problem[200];
  if (!origin_parse(url, &origin, &is_secure, problem, sizeof problem)) {
    client_trouble(client, "the address of the service that gives credentials: %.150s", problem);
    return NEVER;
  }
  request->origin = &origin;
  request->service = "";
  request->timeout_ms = ASK_MS;
  /* The certificates trusted for the store do not apply to other services. */
  char *ca = client->ca;
  bool skips = client->skips_verification;
  client->ca = NULL;
  client->skips_verification = false;
  outcome outcome = client_send(client, request, answer);
  client->ca = ca;
  client->skips_verification = skips;
  origin_free(&origin);
  return outcome;
}

/* A full URL with a query is refused. */
static outcome from_container(client *client) {
  const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (full == NULL && relative == NULL) return ABSENT;
  buffer url = {0};
  if (relative != NULL) buffer_print(&url, "http://169.254.170.2%s", relative);
  else buffer_put(&url, full);
  const char *path = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), *given = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  char *token = path != NULL ? file_content(path) : copy_of(given);
  request request = {.method = "GET"};
  if (token != NULL) request_header(&request, "authorization", trimmed(token));
  answer answer = {0};
  outcome outcome = ask(client, url.bytes, &request, &answer);
  if (outcome == DONE) outcome = use_json(client, &answer);
  else if (outcome == ABSENT) outcome = NEVER;
  answer_free(&answer);
  free_secret(token);
  buffer_free(&url);
  return outcome;
}

/* Version 2 of the machine's metadata service, which needs a token first. Returns ABSENT outside AWS. */
static outcome from_machine(client *client) {
  const char *disabled = variable("AWS_EC2_METADATA_DISABLED"), *given = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (disabled != NULL && strcasecmp(disabled, "true") == 0) return ABSENT;
  const char *base = given != NULL ? given : "http://169.254.169.254";
  buffer url = {0};
  answer answer = {0};
  int64_t connect_ms = client->connect_ms;
  client->connect_ms = 1000;
  buffer_print(&url, "%s/latest/api/token", base);
  request request = {.method = "PUT"};
  request_header(&request, "x-aws-ec2-metadata-token-ttl-seconds", "21600");
  outcome outcome = ask(client, url.bytes, &request, &answer);
  client->connect_ms = connect_ms;
  char *token = copy_of(buffer_text(&answer.body));
  if (outcome != DONE && outcome != OVER) outcome = ABSENT;
  for (int step = 0; step < 2 && outcome == DONE; step++) {
    char *role = step == 0 ? NULL : copy_of(trimmed(answer.body.bytes != NULL ? answer.body.bytes : (char[]){0}));
    buffer_clear(&url);
    buffer_print(&url, "%s/latest/meta-data/iam/security-credentials", base);
    request = (struct request){.method = "GET", .key = role != NULL ? role : ""};
    request_header(&request, "x-aws-ec2-metadata-token", token);
    answer_free(&answer);
    outcome = ask(client, url.bytes, &request, &answer);
    if (outcome == ABSENT && step == 1) outcome = NEVER;
    free(role);
  }
  if (outcome == DONE) outcome = use_json(client, &answer);
  free_secret(token);
  answer_free(&answer);
  buffer_free(&url);
  return outcome;
}

typedef struct assumed {
  char *access, *secret, *token, *expires;
} assumed;

static void assumed_element(void *closure, const char *parent, const char *name, const char *text, size_t count) {
  (void)count;
  assumed *self = closure;
  if (strcmp(parent, "Credentials") != 0) return;
  char **to = strcmp(name, "AccessKeyId") == 0       ? &self->access
              : strcmp(name, "SecretAccessKey") == 0 ? &self->secret
              : strcmp(name, "SessionToken") == 0    ? &self->token
              : strcmp(name, "Expiration") == 0      ? &self->expires
                                                     : NULL;
  if (to != NULL && *to == NULL) *to = need(strdup(text));
}

static void add_field(buffer *form, const char *name, const char *value) {
  buffer_print(form, "%s%s=", form->count > 0 ? "&" : "", name);
  add_encoded(form, value, strlen(value), false);
}

static outcome from_web_identity(client *client) {
  const char *path = variable("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = variable("AWS_ROLE_ARN");
  if (path == NULL || role == NULL || client->credentials.profile != NULL || client->credentials.file != NULL) return ABSENT;
  const char *session = variable("AWS_ROLE_SESSION_NAME"), *given = variable("AWS_ENDPOINT_URL_STS");
  char *token = file_content(path);
  if (token == NULL) {
    client_trouble(client, "the token file '%.150s' (AWS_WEB_IDENTITY_TOKEN_FILE) cannot be read: %s", path, strerror(errno));
    return NEVER;
  }
  buffer form = {0}, url = {0};
  add_field(&form, "Action", "AssumeRoleWithWebIdentity");
  add_field(&form, "Version", "2011-06-15");
  add_field(&form, "RoleArn", role);
  add_field(&form, "RoleSessionName", session != NULL ? session : "rxd");
  add_field(&form, "WebIdentityToken", trimmed(token));
  if (given != NULL) buffer_put(&url, given);
  else buffer_print(&url, "https://sts.%s.amazonaws.com", client->region);
  request request = {.method = "POST", .body = form.bytes, .body_count = form.count};
  request_header(&request, "content-type", "application/x-www-form-urlencoded");
  answer answer = {0};
  assumed found = {0};
  outcome outcome = ask(client, url.bytes, &request, &answer);
  if (outcome == DONE) xml_read(buffer_text(&answer.body), answer.body.count, assumed_element, &found);
  if (outcome == DONE && found.access != NULL && found.secret != NULL && found.token != NULL) {
    use(&client->credentials, found.access, found.secret, found.token, time_of(found.expires));
  } else {
    if (outcome == DONE) client_trouble(client, "STS has sent no credentials"), outcome = AGAIN;
    if (outcome == ABSENT || outcome == CHANGED) outcome = NEVER;
    free_secret(found.access), free_secret(found.secret), free_secret(found.token);
  }
  free(found.expires);
  free_secret(token);
  explicit_bzero(form.bytes, form.count);
  answer_free(&answer);
  buffer_free(&form), buffer_free(&url);
  return outcome;
}

/* ---- The chain ---- */

static outcome from_given(client *client) {
  credentials *self = &client->credentials;
  const char *access = self->access_key, *secret = self->secret_key, *token = self->session_token;
  if (access == NULL && self->profile == NULL && self->file == NULL) {
    access = variable("AWS_ACCESS_KEY_ID");
    secret = variable("AWS_SECRET_ACCESS_KEY");
    token = variable("AWS_SESSION_TOKEN");
  }
  if (access == NULL || secret == NULL) return ABSENT;
  use(self, copy_of(access), copy_of(secret), copy_of(token), 0);
  return DONE;
}

outcome credentials_find(client *client) {
  credentials *self = &client->credentials;
  if (self->access != NULL && (self->expires == 0 || time(NULL) < self->expires - EARLY_SECONDS)) return DONE;
  static outcome (*const sources[])(struct client *) = {from_given, from_web_identity, from_file, from_container, from_machine};
  outcome outcome = ABSENT;
  for (size_t i = 0; i < sizeof sources / sizeof sources[0] && outcome == ABSENT; i++) outcome = sources[i](client);
  if (outcome == ABSENT) {
    client_trouble(client, "no credentials are found: set 'accessKey' and 'secretKey', AWS_ACCESS_KEY_ID and "
                           "AWS_SECRET_ACCESS_KEY, or a profile of ~/.aws/credentials");
    outcome = NEVER;
  }
  /* The old credentials may still be valid. */
  if (outcome != DONE && outcome != OVER && self->access != NULL && time(NULL) < self->expires) outcome = DONE;
  return outcome == NEVER && client->has_worked ? AGAIN : outcome;
}

bool credentials_forget(credentials *self) {
  bool may_change = self->expires != 0;
  drop(self);
  return may_change;
}

int credentials_open(const rxd_opening *opening, credentials *self) {
  static const struct {
    const char *name;
    size_t offset;
  } texts[] = {
    {"accessKey", offsetof(credentials, access_key)},     {"secretKey", offsetof(credentials, secret_key)},
    {"sessionToken", offsetof(credentials, session_token)}, {"profile", offsetof(credentials, profile)},
    {"credentialsFile", offsetof(credentials, file)},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (text_parameter(opening, texts[i].name, (char **)(void *)((char *)self + texts[i].offset)) != RXD_OK) return RXD_FAILED;
  if ((self->access_key == NULL) != (self->secret_key == NULL))
    return fail_at(opening->scope, self->access_key == NULL ? "secretKey" : "accessKey", "'accessKey' and 'secretKey' belong together");
  if (self->session_token != NULL && self->access_key == NULL)
    return fail_at(opening->scope, "sessionToken", "has no effect without 'accessKey'");
  if (self->profile != NULL && self->access_key != NULL) return fail_at(opening->scope, "profile", "cannot be combined with 'accessKey'");
  const char *const parts[] = {self->access_key, self->session_token, self->secret_key};
  for (size_t i = 0; i < 3; i++)
    if (parts[i] != NULL && (strpbrk(parts[i], "\r\n") != NULL || *parts[i] == 0))
      return fail_at(opening->scope, i == 0 ? "accessKey" : i == 1 ? "sessionToken" : "secretKey", "must be a line that is not empty");
  return RXD_OK;
}

void credentials_copy(const credentials *from, credentials *to) {
  *to = (credentials){.access_key = copy_of(from->access_key), .secret_key = copy_of(from->secret_key),
                      .session_token = copy_of(from->session_token), .profile = copy_of(from->profile), .file = copy_of(from->file)};
}

void credentials_close(credentials *self) {
  drop(self);
  free_secret(self->access_key);
  free_secret(self->secret_key);
  free_secret(self->session_token);
  free(self->profile);
  free(self->file);
}
