#include "upload.h"

#include "xml.h"

enum { PARTS_MOST = 10000, PART_TEXT = 12, ABORTS = 3, ABORT_MS = 5000 };

static bool is_closing(const client *client) { return client->is_over(client->is_over_closure); }

/* Pauses before the next attempt. False: no time is left for one. */
static bool rest(const upload *upload, int64_t milliseconds) {
  int64_t until = now_ms() + milliseconds;
  if (until >= upload->until) return false;
  while (now_ms() < until && !is_closing(upload->client)) {
    struct timespec pause = {0, 10000000};
    nanosleep(&pause, NULL);
  }
  return !is_closing(upload->client);
}

/* Sends the request until an answer decides the outcome. */
static outcome persist(const upload *upload, request *request, answer *answer) {
  client *client = upload->client;
  for (;;) {
    /* No time limit while bytes are sent. */
    outcome outcome = client_send(client, request, answer);
    if (outcome != AGAIN) return outcome;
    int64_t pause = client_failed(client, "requestErrors"), asked = strtoll(answer->retry_after, NULL, 10) * 1000;
    if (asked > pause && asked <= 60000) pause = asked;
    if (!rest(upload, pause)) return AGAIN;
    answer_free(answer);
  }
}

/* The headers that describe the object, not its parts. */
static void describe(const upload *upload, request *request) {
  const upload_settings *settings = upload->settings;
  if (settings->type != NULL) request_header(request, "content-type", settings->type);
  if (settings->storage_class != NULL) request_header(request, "x-amz-storage-class", settings->storage_class);
  if (settings->encryption != NULL) request_header(request, "x-amz-server-side-encryption", settings->encryption);
  if (settings->encryption_key != NULL)
    request_header(request, "x-amz-server-side-encryption-aws-kms-key-id", settings->encryption_key);
  request_header(request, "x-amz-meta-rxd-sha256", upload->hash);
}

/* Whether the stored object is this one: an earlier attempt may have stored it and lost the answer. */
static outcome look(const upload *upload) {
  request request = {.method = "HEAD", .key = upload->key};
  answer answer;
  outcome outcome = persist(upload, &request, &answer);
  if (outcome == DONE && strcmp(answer.hash, upload->hash) != 0) outcome = CHANGED;
  answer_free(&answer);
  return outcome;
}

static outcome upload_whole(const upload *upload) {
  request request = {.method = "PUT", .key = upload->key, .body = upload->bytes, .body_count = upload->count};
  describe(upload, &request);
  if (upload->settings->keeps_others) request_header(&request, "if-none-match", "*");
  answer answer;
  outcome outcome = persist(upload, &request, &answer);
  answer_free(&answer);
  return outcome;
}

/* ---- In parts ---- */

typedef struct started {
  char *id;
} started;

static void started_element(void *closure, const char *parent, const char *name, const char *text, size_t count) {
  started *self = closure;
  (void)count;
  if (strcmp(parent, "InitiateMultipartUploadResult") == 0 && strcmp(name, "UploadId") == 0 && self->id == NULL)
    self->id = need(strdup(text));
}

static outcome begin(const upload *upload, char **id) {
  request request = {.method = "POST", .key = upload->key};
  request_query(&request, "uploads", "");
  describe(upload, &request);
  answer answer;
  started started = {0};
  outcome outcome = persist(upload, &request, &answer);
  if (outcome == DONE) xml_read(buffer_text(&answer.body), answer.body.count, started_element, &started);
  if (outcome == DONE && started.id == NULL) {
    client_trouble(upload->client, "%.100s has begun no upload", upload->client->origin.host);
    outcome = AGAIN;
  }
  answer_free(&answer);
  *id = started.id;
  return outcome;
}

static outcome send_part(const upload *upload, const char *id, int number, size_t begin, size_t count, buffer *list) {
  char text[PART_TEXT];
  snprintf(text, sizeof text, "%d", number);
  request request = {.method = "PUT", .key = upload->key, .body = upload->bytes + begin, .body_count = count};
  request_query(&request, "partNumber", text);
  request_query(&request, "uploadId", id);
  answer answer;
  outcome outcome = persist(upload, &request, &answer);
  if (outcome == DONE) {
    buffer_print(list, "<Part><PartNumber>%d</PartNumber><ETag>", number);
    for (const char *at = answer.etag; *at != 0; at++) {
      if (*at == '"') buffer_put(list, "&quot;");
      else if (*at != '<' && *at != '>' && *at != '&') buffer_add(list, at, 1);
    }
    buffer_put(list, "</ETag></Part>");
  }
  answer_free(&answer);
  return outcome;
}

static outcome complete(const upload *upload, const char *id, const buffer *list) {
  request request = {.method = "POST", .key = upload->key, .body = list->bytes, .body_count = list->count};
  request_query(&request, "uploadId", id);
  request_header(&request, "content-type", "application/xml");
  if (upload->settings->keeps_others) request_header(&request, "if-none-match", "*");
  answer answer;
  outcome outcome = persist(upload, &request, &answer);
  answer_free(&answer);
  return outcome;
}

/* Parts of an abandoned upload cost money until they are removed. */
static void give_up(const upload *upload, const char *id) {
  for (int attempt = 0; attempt < ABORTS; attempt++) {
    request request = {.method = "DELETE", .key = upload->key, .timeout_ms = ABORT_MS};
    request_query(&request, "uploadId", id);
    answer answer;
    outcome outcome = client_send(upload->client, &request, &answer);
    answer_free(&answer);
    if (outcome != AGAIN) break;
  }
}

static outcome upload_parts(const upload *upload) {
  size_t part = upload->settings->part_bytes;
  while ((upload->count + part - 1) / part > PARTS_MOST) part *= 2;
  char *id = NULL;
  outcome outcome = begin(upload, &id);
  if (outcome != DONE) return outcome;
  buffer list = {0};
  buffer_put(&list, "<CompleteMultipartUpload>");
  int number = 1;
  for (size_t at = 0; at < upload->count && outcome == DONE; at += part)
    outcome = send_part(upload, id, number++, at, upload->count - at < part ? upload->count - at : part, &list);
  buffer_put(&list, "</CompleteMultipartUpload>");
  if (outcome == DONE) {
    outcome = complete(upload, id, &list);
    /* An attempt whose answer was lost has completed the upload, or another client has removed it. */
    if (outcome == ABSENT) outcome = look(upload);
  }
  if (outcome == ABSENT) {
    client_trouble(upload->client, "%.200s: the upload has gone", upload->key);
    outcome = AGAIN;
  }
  if (outcome != DONE) {
    /* The original reason must not be replaced by that of the removal. */
    char problem[PROBLEM_MOST];
    memcpy(problem, upload->client->problem, sizeof problem);
    give_up(upload, id);
    memcpy(upload->client->problem, problem, sizeof problem);
  }
  free(id);
  buffer_free(&list);
  return outcome;
}

outcome upload_object(const upload *upload) {
  outcome outcome = upload->count > upload->settings->part_bytes ? upload_parts(upload) : upload_whole(upload);
  if (outcome == CHANGED && (outcome = look(upload)) == ABSENT) {
    client_trouble(upload->client, "%.200s was there and has gone", upload->key);
    outcome = AGAIN;
  }
  if (outcome == DONE) client_works(upload->client);
  return outcome;
}
