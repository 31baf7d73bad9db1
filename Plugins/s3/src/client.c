#include "client.h"

#include "xml.h"

#include <arpa/inet.h>

void request_query(request *request, const char *name, const char *value) {
  if (request->query_count >= REQUEST_PAIRS) abort();
  request->query[request->query_count++] = (pair){name, value};
}

void request_header(request *request, const char *name, const char *value) {
  if (request->header_count >= REQUEST_PAIRS) abort();
  request->headers[request->header_count++] = (pair){name, value};
}

void answer_free(answer *answer) {
  buffer_free(&answer->body);
  *answer = (struct answer){0};
}

void client_trouble(client *self, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(self->problem, sizeof self->problem, format, arguments);
  va_end(arguments);
}

/* ---- The exchange ---- */

typedef struct exchange {
  client *client;
  const request *request;
  answer *answer;
} exchange;

static bool header_is(const char *line, size_t count, const char *name, char *value, size_t capacity) {
  size_t length = strlen(name);
  if (count <= length || line[length] != ':' || strncasecmp(line, name, length) != 0) return false;
  const char *begin = line + length + 1, *end = line + count;
  while (begin < end && isspace((unsigned char)*begin)) begin++;
  while (end > begin && isspace((unsigned char)end[-1])) end--;
  size_t kept = (size_t)(end - begin) < capacity ? (size_t)(end - begin) : capacity - 1;
  memcpy(value, begin, kept);
  value[kept] = 0;
  return true;
}

static size_t on_header(char *line, size_t size, size_t count, void *opaque) {
  exchange *self = opaque;
  answer *answer = self->answer;
  char text[64];
  count *= size;
  answer->header_bytes += count;
  if (answer->header_bytes > HEADERS_BYTES_MOST) {
    answer->is_too_large = true;
    return 0;
  }
  if (header_is(line, count, "etag", answer->etag, sizeof answer->etag)
      || header_is(line, count, "content-encoding", answer->encoding, sizeof answer->encoding)
      || header_is(line, count, "x-amz-bucket-region", answer->region, sizeof answer->region)
      || header_is(line, count, "content-range", answer->range, sizeof answer->range)
      || header_is(line, count, "x-amz-meta-rxd-sha256", answer->hash, sizeof answer->hash)
      || header_is(line, count, "retry-after", answer->retry_after, sizeof answer->retry_after))
    return count;
  if (header_is(line, count, "date", text, sizeof text)) answer->date = curl_getdate(text, NULL);
  else if (header_is(line, count, "last-modified", text, sizeof text)) answer->last_modified = curl_getdate(text, NULL);
  else if (header_is(line, count, "content-length", text, sizeof text)) answer->length = strtoll(text, NULL, 10);
  return count;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *opaque) {
  exchange *self = opaque;
  answer *answer = self->answer;
  count *= size;
  curl_easy_getinfo(self->client->curl, CURLINFO_RESPONSE_CODE, &answer->status);
  if (self->request->take != NULL && answer->status >= 200 && answer->status < 300) {
    if (self->request->take(self->request->closure, bytes, count)) return count;
    answer->is_stopped = true;
    return 0;
  }
  if (answer->body.count + count > ANSWER_MOST) {
    answer->is_too_large = true;
    return 0;
  }
  buffer_add(&answer->body, bytes, count);
  return count;
}

typedef struct sent {
  const char *bytes;
  size_t count, at;
} sent;

static size_t on_send(char *bytes, size_t size, size_t count, void *opaque) {
  sent *self = opaque;
  count *= size;
  if (count > self->count - self->at) count = self->count - self->at;
  memcpy(bytes, self->bytes + self->at, count);
  self->at += count;
  return count;
}

static int on_seek(void *opaque, curl_off_t offset, int origin) {
  sent *self = opaque;
  if (origin != SEEK_SET || offset < 0 || (size_t)offset > self->count) return CURL_SEEKFUNC_FAIL;
  self->at = (size_t)offset;
  return CURL_SEEKFUNC_OK;
}

static int on_progress(void *opaque, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
  exchange *self = opaque;
  (void)a, (void)b, (void)c, (void)d;
  if (self->client->is_over == NULL || !self->client->is_over(self->client->is_over_closure)) return 0;
  self->answer->is_over = true;
  return 1;
}

static void set_options(client *self, exchange *exchange, const char *url, struct curl_slist *headers, sent *sent) {
  const request *request = exchange->request;
  CURL *curl = self->curl;
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXLIFETIME_CONN, 300L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)self->connect_ms);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 100L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)(self->idle_ms / 1000));
  if (request->timeout_ms > 0) curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
  curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
  if (self->skips_verification) {
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (self->ca != NULL) curl_easy_setopt(curl, CURLOPT_CAINFO, self->ca);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, exchange);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 128L << 10);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  if (strcmp(request->method, "HEAD") == 0) curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  else if (strcmp(request->method, "PUT") == 0) {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(curl, CURLOPT_READDATA, sent);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, sent);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->body_count);
  } else if (strcmp(request->method, "POST") == 0) {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body != NULL ? request->body : "");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_count);
  } else if (strcmp(request->method, "GET") != 0) curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static struct curl_slist *add_line(struct curl_slist *list, const char *name, const char *value) {
  buffer line = {0};
  /* libcurl omits headers without a value unless their name ends with a semicolon. */
  if (*value == 0) buffer_print(&line, "%s;", name);
  else buffer_print(&line, "%s: %s", name, value);
  list = need(curl_slist_append(list, line.bytes));
  explicit_bzero(line.bytes, line.count);
  buffer_free(&line);
  return list;
}

static void forget_lines(struct curl_slist *list) {
  for (struct curl_slist *line = list; line != NULL; line = line->next) explicit_bzero(line->data, strlen(line->data));
  curl_slist_free_all(list);
}

/* The request's headers, including the signature. */
static struct curl_slist *make_headers(client *self, const request *request, const origin *origin, const char *path,
                                       const char *query) {
  enum { OWN = 4 };
  pair headers[REQUEST_PAIRS + OWN];
  size_t count = request->header_count;
  if (count > 0) memcpy(headers, request->headers, count * sizeof *headers);
  const char *service = request->service != NULL ? request->service : "s3";
  char hash[HASH_TEXT], when[20];
  time_t now = time(NULL);
  sha256_text(request->body != NULL ? request->body : "", request->body != NULL ? request->body_count : 0, hash);
  sign_time_text(now, when);
  struct curl_slist *list = NULL;
  if (*service != 0) {
    headers[count++] = (pair){"host", origin->host};
    headers[count++] = (pair){"x-amz-date", when};
    if (strcmp(service, "s3") == 0) headers[count++] = (pair){"x-amz-content-sha256", hash};
    if (self->credentials.token != NULL) headers[count++] = (pair){"x-amz-security-token", self->credentials.token};
    signing signing = {.method = request->method, .path = path, .query = query, .service = service,
                       .region = self->region, .headers = headers, .header_count = count, .payload_hash = hash,
                       .time = now, .access_key = self->credentials.access, .secret_key = self->credentials.secret};
    buffer authorization = {0};
    sign(&signing, &authorization);
    list = add_line(list, "authorization", authorization.bytes);
    explicit_bzero(authorization.bytes, authorization.count);
    buffer_free(&authorization);
  }
  for (size_t i = 0; i < count; i++) list = add_line(list, headers[i].name, headers[i].value);
  list = need(curl_slist_append(list, "Expect:"));
  list = need(curl_slist_append(list, "Accept:"));
  list = need(curl_slist_append(list, "Accept-Encoding: identity"));
  bool has_type = false;
  for (size_t i = 0; i < request->header_count; i++) has_type = has_type || strcmp(request->headers[i].name, "content-type") == 0;
  if (!has_type) list = need(curl_slist_append(list, "Content-Type:"));
  return list;
}

/* ---- The meaning of answers ---- */

static void error_element(void *closure, const char *parent, const char *name, const char *text, size_t count) {
  answer *answer = closure;
  if (strcmp(parent, "Error") != 0) return;
  char *to = strcmp(name, "Code") == 0      ? answer->error
             : strcmp(name, "Message") == 0 ? answer->message
             : strcmp(name, "Region") == 0  ? answer->region
                                            : NULL;
  size_t most = to == answer->error ? sizeof answer->error : to == answer->message ? sizeof answer->message : sizeof answer->region;
  if (to == NULL || (to == answer->region && *to != 0)) return;
  if (count >= most) count = most - 1;
  for (size_t i = 0; i < count; i++) to[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
  to[count] = 0;
}

static bool error_is(const answer *answer, const char *names) {
  size_t length = strlen(answer->error);
  for (const char *at = names; length > 0 && (at = strstr(at, answer->error)) != NULL; at += length)
    if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  return false;
}

static outcome judge_transfer(client *self, const request *request, const answer *answer) {
  const char *host = request->origin != NULL ? request->origin->host : self->origin.host;
  if (answer->is_over) return OVER;
  if (answer->is_too_large) client_trouble(self, "%.120s: the answer is too large", host);
  else if (answer->code == CURLE_PEER_FAILED_VERIFICATION || answer->code == CURLE_SSL_CACERT_BADFILE) {
    client_trouble(self, "%.120s: TLS cannot be set up: %.120s; check the server's certificate, its name and 'ca'", host,
                   curl_easy_strerror(answer->code));
    return self->has_worked ? AGAIN : NEVER;
  } else client_trouble(self, "%.120s: %.160s", host, curl_easy_strerror(answer->code));
  return AGAIN;
}

/* Credentials or permissions: may be corrected while rxd runs, if they have worked before. */
static outcome judge_denial(client *self, const answer *answer, const char *host, const char *what) {
  if (error_is(answer, "RequestTimeTooSkewed")) {
    long long seconds = answer->date > 0 ? (long long)time(NULL) - answer->date : 0;
    client_trouble(self,
                   "%.100s: the clock of this machine differs from the server's by %lld s (RequestTimeTooSkewed); set it, "
                   "such as by NTP",
                   host, seconds);
    return AGAIN;
  }
  if (error_is(answer, "InvalidObjectState")) {
    client_trouble(self, "%.100s is archived (InvalidObjectState); restore it first", what);
    return REFUSED;
  }
  bool is_key = error_is(answer, "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken ExpiredToken ExpiredTokenException TokenRefreshRequired "
                                 "InvalidClientTokenId AuthFailure InvalidSecurity UnrecognizedClientException");
  bool is_new = is_key && credentials_forget(&self->credentials);
  if (is_key)
    client_trouble(self, "%.100s refuses the credentials: %.80s%s%.100s; check the access key, its secret and 'region'", host,
                   answer->error, answer->message[0] != 0 ? ", " : "", answer->message);
  else
    client_trouble(self, "%.100s: access to %.100s is denied (%.60s)%s", host, what,
                   answer->error[0] != 0 ? answer->error : "403", "; allow it to the user of the access key");
  return self->has_worked || is_new ? AGAIN : NEVER;
}

static outcome judge_status(client *self, const request *request, answer *answer) {
  const char *host = request->origin != NULL ? request->origin->host : self->origin.host;
  const char *what = request->key != NULL ? request->key : self->bucket != NULL ? self->bucket : "it";
  if (answer->body.count > 0) xml_read(answer->body.bytes, answer->body.count, error_element, answer);
  if (answer->status >= 200 && answer->status < 300 && answer->error[0] == 0) return DONE;
  bool is_bucket = request->service == NULL;
  if (is_bucket
      && (answer->status == 301 || answer->status == 307
          || (answer->status == 400 && answer->region[0] != 0 && error_is(answer, "AuthorizationHeaderMalformed")))) {
    if (answer->region[0] != 0)
      client_trouble(self, "the bucket '%.80s' is in the region '%s'; set 'region: %s'", self->bucket, answer->region, answer->region);
    else
      client_trouble(self, "the bucket '%.80s' is in another region than '%s', or has another endpoint; correct 'region' or 'endpoint'",
                     self->bucket, self->region);
    return answer->status == 307 ? AGAIN : NEVER;
  }
  if (error_is(answer, "NoSuchBucket")) {
    client_trouble(self, "there is no bucket '%.80s'; create it, or correct 'bucket'", self->bucket != NULL ? self->bucket : "");
    return self->has_worked ? AGAIN : NEVER;
  }
  if (error_is(answer, "AWS.SimpleQueueService.NonExistentQueue QueueDoesNotExist NonExistentQueue")) {
    client_trouble(self, "there is no such queue; create it, or correct 'queue'");
    return self->has_worked ? AGAIN : NEVER;
  }
  if (answer->status == 412 || error_is(answer, "PreconditionFailed")) return CHANGED;
  client_trouble(self, "%.100s answers %ld%s%.60s%s%.100s", host, answer->status, answer->error[0] != 0 ? " " : "", answer->error,
                 answer->message[0] != 0 ? ": " : "", answer->message);
  if (answer->status == 501 || error_is(answer, "NotImplemented")) return NEVER;
  if (answer->status == 429 || answer->status >= 500
      || error_is(answer, "RequestTimeout OperationAborted ConditionalRequestConflict SlowDown InternalError ServiceUnavailable "
                          "RequestThrottled ThrottlingException Throttling IncompleteBody BadDigest"))
    return AGAIN;
  if (answer->status == 401 || answer->status == 403
      || error_is(answer, "ExpiredToken ExpiredTokenException InvalidToken InvalidClientTokenId TokenRefreshRequired"))
    return judge_denial(self, answer, host, what);
  if (answer->status == 404) return ABSENT;
  if (error_is(answer, "KeyTooLongError EntityTooLarge InvalidTag")) return REFUSED;
  return answer->status >= 400 ? NEVER : AGAIN;
}

outcome client_send(client *self, request *request, answer *answer) {
  *answer = (struct answer){.length = -1};
  bool is_signed = request->service == NULL || *request->service != 0;
  if (is_signed) {
    outcome outcome = credentials_find(self);
    if (outcome != DONE) return outcome;
  }
  const origin *origin = request->origin != NULL ? request->origin : &self->origin;
  buffer path = {0}, query = {0}, url = {0};
  buffer_put(&path, origin->path);
  if (request->key != NULL || path.count == 0) buffer_put(&path, "/");
  if (request->key != NULL) add_encoded(&path, request->key, strlen(request->key), true);
  query_of(&query, request->query, request->query_count);
  buffer_print(&url, "%s%s%s%s", origin->scheme_host, path.bytes, query.count > 0 ? "?" : "", buffer_text(&query));
  struct curl_slist *headers = make_headers(self, request, origin, path.bytes, buffer_text(&query));
  exchange exchange = {self, request, answer};
  sent sent = {request->body, request->body != NULL ? request->body_count : 0, 0};
  set_options(self, &exchange, url.bytes, headers, &sent);
  answer->code = curl_easy_perform(self->curl);
  curl_easy_getinfo(self->curl, CURLINFO_RESPONSE_CODE, &answer->status);
  curl_easy_setopt(self->curl, CURLOPT_HTTPHEADER, NULL);
  forget_lines(headers);
  buffer_free(&path), buffer_free(&query), buffer_free(&url);
  /* If `take` has stopped the transfer, the result is not an error. */
  if (answer->is_stopped) return DONE;
  if (answer->code != CURLE_OK) return judge_transfer(self, request, answer);
  return judge_status(self, request, answer);
}

int64_t client_failed(client *self, const char *what) {
  if (!self->is_reported) report(self->instance, "warning", "%s; trying again", self->problem);
  self->is_reported = true;
  host->count_up(self->instance, text_of(what), 1);
  return backoff_ms(self->failures++);
}

void client_works(client *self) {
  if (self->is_reported) report(self->instance, "info", "%.200s works again", self->origin.host);
  self->is_reported = false;
  self->has_worked = true;
  self->failures = 0;
}

/* ---- Opening ---- */

void origin_free(origin *origin) {
  free(origin->scheme_host);
  free(origin->host);
  free(origin->path);
  *origin = (struct origin){0};
}

/* Parses "https://HOST[:PORT][/PATH]". */
bool origin_parse(const char *text, origin *origin, bool *is_secure, char *problem, size_t capacity) {
  static const address_form form = {"http", "https", 80, 443, false};
  const char *begin = strstr(text, "://");
  if (begin == NULL) {
    snprintf(problem, capacity, "must begin with https:// or http://");
    return false;
  }
  const char *slash = strchr(begin + 3, '/');
  char *server = slash != NULL ? need(strndup(text, (size_t)(slash - text))) : need(strdup(text));
  address address;
  bool is_right = parse_address(server, &form, &address, problem, capacity) == NULL;
  free(server);
  if (!is_right) return false;
  size_t length = slash != NULL ? strlen(slash) : 0;
  while (length > 0 && slash[length - 1] == '/') length--;
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)slash[i]) && strchr("/-._~", slash[i]) == NULL) {
      snprintf(problem, capacity, "the path may have letters, digits and - . _ ~ /");
      return false;
    }
  *is_secure = address.is_secure;
  bool is_usual = address.port == (address.is_secure ? 443 : 80);
  const char *form_of_host = strchr(address.name, ':') != NULL ? "[%s]" : "%s";
  char name[300], host_text[320];
  snprintf(name, sizeof name, form_of_host, address.name);
  if (is_usual) snprintf(host_text, sizeof host_text, "%s", name);
  else snprintf(host_text, sizeof host_text, "%s:%d", name, address.port);
  origin->host = need(strdup(host_text));
  origin->path = length > 0 ? need(strndup(slash, length)) : need(strdup(""));
  if (asprintf(&origin->scheme_host, "http%s://%s", address.is_secure ? "s" : "", host_text) < 0) abort();
  return true;
}

static bool is_bucket_name(const char *name) {
  size_t count = strlen(name);
  if (count < 3 || count > 255) return false;
  for (size_t i = 0; i < count; i++)
    if (!isalnum((unsigned char)name[i]) && strchr("-._", name[i]) == NULL) return false;
  return strcmp(name, "..") != 0;
}

static bool is_region_name(const char *name) {
  size_t count = strlen(name);
  for (size_t i = 0; i < count; i++)
    if (!isalnum((unsigned char)name[i]) && strchr("-_", name[i]) == NULL) return false;
  return count > 0 && count < 64;
}

static bool is_ip(const char *host) {
  unsigned char bytes[16];
  char name[256];
  snprintf(name, sizeof name, "%s", host);
  char *colon = strchr(name, ':');
  if (colon != NULL) *colon = 0;
  return host[0] == '[' || inet_pton(AF_INET, name, bytes) == 1;
}

/* Puts the name of the bucket into the path or into the host name. */
static void place_bucket(client *self, bool is_in_path) {
  origin *origin = &self->origin;
  char *longer;
  if (is_in_path) {
    if (asprintf(&longer, "%s/%s", origin->path, self->bucket) < 0) abort();
    free(origin->path);
    origin->path = longer;
    return;
  }
  if (asprintf(&longer, "%s.%s", self->bucket, origin->host) < 0) abort();
  free(origin->host);
  origin->host = longer;
  free(origin->scheme_host);
  if (asprintf(&origin->scheme_host, "http%s://%s", self->is_secure ? "s" : "", longer) < 0) abort();
}

static int region_parameter(const rxd_opening *opening, client *self) {
  if (text_parameter(opening, "region", &self->region) != RXD_OK) return RXD_FAILED;
  const char *from = NULL;
  if (self->region == NULL) from = getenv("AWS_REGION");
  if (self->region == NULL && from == NULL) from = getenv("AWS_DEFAULT_REGION");
  if (self->region == NULL) self->region = need(strdup(from != NULL && *from != 0 ? from : "us-east-1"));
  if (is_region_name(self->region)) return RXD_OK;
  return fail_at(opening->scope, "region", "must be a name such as eu-central-1");
}

static int endpoint_parameter(const rxd_opening *opening, client *self) {
  char *endpoint = NULL, problem[200] = "";
  if (text_parameter(opening, "endpoint", &endpoint) != RXD_OK) return RXD_FAILED;
  bool is_given = endpoint != NULL;
  if (!is_given) {
    const char *suffix = strncmp(self->region, "cn-", 3) == 0 ? ".cn" : "";
    if (asprintf(&endpoint, "https://s3.%s.amazonaws.com%s", self->region, suffix) < 0) abort();
  }
  bool is_right = origin_parse(endpoint, &self->origin, &self->is_secure, problem, sizeof problem);
  free(endpoint);
  if (!is_right) return fail_at(opening->scope, "endpoint", "%s", problem);
  rxd_value style = parameter(opening, "pathStyle");
  bool has_style = host->kind(&style) == RXD_BOOL;
  /* A certificate for *.s3.amazonaws.com does not match a bucket name with further dots. */
  bool is_in_path = has_style ? host->boolean(&style) != 0 : is_given || strchr(self->bucket, '.') != NULL;
  if (!is_in_path && is_ip(self->origin.host))
    return fail_at(opening->scope, "pathStyle", "must be true, because 'endpoint' is an address without a name");
  place_bucket(self, is_in_path);
  return RXD_OK;
}

int client_open(const rxd_opening *opening, client *self) {
  self->instance = opening->instance;
  self->connect_ms = milliseconds_parameter(opening, "connectTimeout", 10000);
  self->idle_ms = milliseconds_parameter(opening, "idleTimeout", 30000);
  self->skips_verification = boolean_parameter(opening, "dangerouslySkipVerification");
  if (text_parameter(opening, "bucket", &self->bucket) != RXD_OK || text_parameter(opening, "ca", &self->ca) != RXD_OK) return RXD_FAILED;
  if (self->bucket == NULL || !is_bucket_name(self->bucket))
    return fail_at(opening->scope, "bucket", "must be 3 to 255 letters, digits, dots, hyphens or underscores");
  if (region_parameter(opening, self) != RXD_OK || endpoint_parameter(opening, self) != RXD_OK) return RXD_FAILED;
  if (self->ca != NULL && access(self->ca, R_OK) != 0) return fail_at(opening->scope, "ca", "cannot read the file: %m");
  if (self->ca != NULL && !self->is_secure) return fail_at(opening->scope, "ca", "has no effect without an endpoint of https://");
  if (credentials_open(opening, &self->credentials) != RXD_OK) return RXD_FAILED;
  curl_global_init(CURL_GLOBAL_DEFAULT);
  self->curl = need(curl_easy_init());
  return RXD_OK;
}

void client_close(client *self) {
  if (self->curl != NULL) curl_easy_cleanup(self->curl);
  free(self->bucket);
  free(self->region);
  free(self->ca);
  origin_free(&self->origin);
  credentials_close(&self->credentials);
}

/* The copy shares the texts of the original, which must outlive it. */
void client_copy(const client *from, client *to) {
  *to = *from;
  credentials_copy(&from->credentials, &to->credentials);
  to->curl = need(curl_easy_init());
  to->is_reported = false;
  to->failures = 0;
}

void client_fork_close(client *self) {
  curl_easy_cleanup(self->curl);
  credentials_close(&self->credentials);
}
