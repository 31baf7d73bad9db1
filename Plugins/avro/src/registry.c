/* Client of a Confluent schema registry. The schema of an id never changes, so answers are cached as long as the
 * decoder runs. */
#include <curl/curl.h>

#include "avro_format.h"

#define MOST_ANSWER (4 << 20)
#define MOST_REFUSALS 1024
/* The maximum number of failed requests within FAILURE_MS, so that invalid input does not flood the registry. */
#define MOST_FAILURES 10
#define FAILURE_MS 10000
#define MISSING_MS 60000

typedef struct {
  uint32_t id;
  avro_schema *schema; /* NULL: a cached failure, valid until `until` */
  const plan *plan;
  char *problem;
  int64_t until;
} known_schema;

struct registry {
  registry_settings settings;
  const avro_schema *reader;
  pthread_rwlock_t lock; /* protects the cache: the members up to `plans` */
  known_schema **known;  /* sorted by id; entries with a schema are never freed */
  size_t count, capacity, refusal_count;
  arena plans;
  pthread_mutex_t asking; /* held during a request */
  int64_t failures[MOST_FAILURES];
  size_t failure_index;
};

typedef struct {
  char *bytes;
  size_t count;
} answer;

static size_t keep(char *bytes, size_t size, size_t count, void *to) {
  answer *answer = to;
  if (answer->count + size * count > MOST_ANSWER) return 0;
  answer->bytes = need(realloc(answer->bytes, answer->count + size * count + 1));
  memcpy(answer->bytes + answer->count, bytes, size * count);
  answer->count += size * count;
  return size * count;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void start_curl(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

/* Gets the body of a response with status 200. False: `problem` has the reason; `*status` is 0 if there was no
 * response. */
static bool get(const registry_settings *settings, const char *path, answer *body, long *status, char *problem, size_t capacity) {
  pthread_once(&once, start_curl);
  *body = (answer){0};
  *status = 0;
  size_t length = strlen(settings->url) + strlen(path) + 1;
  char *url = need(malloc(length)), reason[CURL_ERROR_SIZE] = "";
  snprintf(url, length, "%s%s", settings->url, path);
  CURL *curl = need(curl_easy_init());
  struct curl_slist *headers = curl_slist_append(NULL, "Accept: application/vnd.schemaregistry.v1+json, application/json");
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)settings->timeout_ms);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "rxd");
  if (settings->ca_file != NULL) curl_easy_setopt(curl, CURLOPT_CAINFO, settings->ca_file);
  if (settings->user != NULL) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(curl, CURLOPT_USERNAME, settings->user);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, settings->password != NULL ? settings->password : "");
  }
  CURLcode result = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
  if (result == CURLE_WRITE_ERROR) snprintf(problem, capacity, "the answer of the registry has more than 4 MiB");
  else if (result != CURLE_OK) snprintf(problem, capacity, "the registry cannot be reached: %s", reason[0] != 0 ? reason : curl_easy_strerror(result));
  else if (*status != 200) snprintf(problem, capacity, "the registry answers with the status %ld", *status);
  if (result != CURLE_OK) *status = 0;
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
  free(url);
  if (result == CURLE_OK && *status == 200) return true;
  free(body->bytes);
  *body = (answer){0};
  return false;
}

/* Parses the member `schema` of a response. */
static bool schema_in(rxd_scope *scope, const answer *body, rxd_text *schema, char *problem, size_t capacity) {
  rxd_value json;
  if (body->count == 0 || !is_utf8(body->bytes, body->count) || host->parse_json(scope, (rxd_text){body->bytes, body->count}, &json) != RXD_OK) {
    snprintf(problem, capacity, "the answer of the registry is not JSON");
    return false;
  }
  rxd_value text = host->member(scope, &json, RXD_TEXT_OF("schema")), type = host->member(scope, &json, RXD_TEXT_OF("schemaType"));
  rxd_value references = host->member(scope, &json, RXD_TEXT_OF("references"));
  rxd_text kind = host->text(scope, &type);
  if (host->kind(&text) != RXD_TEXT) snprintf(problem, capacity, "the answer of the registry has no schema");
  else if (host->kind(&type) == RXD_TEXT && !text_is(kind, RXD_TEXT_OF("AVRO")))
    snprintf(problem, capacity, "the schema is of the type %.*s, and not of Avro", shown_count(kind), kind.bytes);
  else if (host->count(scope, &references) > 0) snprintf(problem, capacity, "the schema refers to others, which are not fetched");
  else {
    *schema = host->text(scope, &text);
    return true;
  }
  return false;
}

registry *open_registry(const registry_settings *settings, const avro_schema *reader_schema) {
  registry *made = need(calloc(1, sizeof *made));
  made->settings = *settings;
  made->reader = reader_schema;
  pthread_rwlock_init(&made->lock, NULL);
  pthread_mutex_init(&made->asking, NULL);
  for (size_t i = 0; i < MOST_FAILURES; i++) made->failures[i] = INT64_MIN / 2;
  return made;
}

void close_registry(registry *registry) {
  if (registry == NULL) return;
  for (size_t i = 0; i < registry->count; i++) {
    free_schema(registry->known[i]->schema);
    free(registry->known[i]->problem);
    free(registry->known[i]);
  }
  free(registry->known);
  arena_free(&registry->plans);
  pthread_rwlock_destroy(&registry->lock);
  pthread_mutex_destroy(&registry->asking);
  free(registry);
}

/* The index of the id, or where to insert it. */
static size_t index_of(const registry *registry, uint32_t id) {
  size_t low = 0, high = registry->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (registry->known[middle]->id < id) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Looks the id up in the cache. NULL with an empty `problem`: not cached. */
static const plan *find(registry *registry, uint32_t id, char *problem, size_t capacity) {
  const plan *found = NULL;
  pthread_rwlock_rdlock(&registry->lock);
  size_t index = index_of(registry, id);
  if (index < registry->count && registry->known[index]->id == id) {
    const known_schema *known = registry->known[index];
    found = known->plan;
    if (found == NULL && now_ms() < known->until) snprintf(problem, capacity, "%s", known->problem);
  }
  pthread_rwlock_unlock(&registry->lock);
  return found;
}

/* Drops all cached failures, which bounds their number. */
static void forget_refusals(registry *registry) {
  size_t kept = 0;
  for (size_t i = 0; i < registry->count; i++) {
    if (registry->known[i]->schema != NULL) {
      registry->known[kept++] = registry->known[i];
      continue;
    }
    free(registry->known[i]->problem);
    free(registry->known[i]);
  }
  registry->count = kept;
  registry->refusal_count = 0;
}

static void remember(registry *registry, uint32_t id, avro_schema *schema, const plan *plan, const char *problem, int64_t pause_ms) {
  pthread_rwlock_wrlock(&registry->lock);
  if (schema == NULL && registry->refusal_count >= MOST_REFUSALS) forget_refusals(registry);
  size_t index = index_of(registry, id);
  known_schema *known;
  if (index < registry->count && registry->known[index]->id == id) {
    known = registry->known[index];
    if (known->schema == NULL) registry->refusal_count--;
  } else {
    if (registry->count == registry->capacity) {
      registry->capacity = registry->capacity * 2 + 16;
      registry->known = need(realloc(registry->known, registry->capacity * sizeof *registry->known));
    }
    memmove(registry->known + index + 1, registry->known + index, (registry->count - index) * sizeof *registry->known);
    registry->count++;
    known = registry->known[index] = need(calloc(1, sizeof *known));
  }
  free(known->problem);
  *known = (known_schema){.id = id, .schema = schema, .plan = plan, .problem = problem == NULL ? NULL : copy_text(text_of(problem)), .until = now_ms() + pause_ms};
  if (schema == NULL) registry->refusal_count++;
  pthread_rwlock_unlock(&registry->lock);
}

const plan *registry_plan(registry *registry, rxd_scope *scope, uint32_t id) {
  char problem[400] = "", path[40];
  const plan *found = find(registry, id, problem, sizeof problem);
  if (found == NULL && problem[0] == 0) {
    pthread_mutex_lock(&registry->asking);
    found = find(registry, id, problem, sizeof problem); /* another thread may have asked */
    int64_t now = now_ms();
    if (found == NULL && problem[0] == 0 && now - registry->failures[registry->failure_index] < FAILURE_MS) {
      snprintf(problem, sizeof problem, "the registry was asked %d times in vain within %d s, and is not asked now", MOST_FAILURES, FAILURE_MS / 1000);
    } else if (found == NULL && problem[0] == 0) {
      answer body;
      rxd_text text;
      long status;
      avro_schema *schema = NULL;
      snprintf(path, sizeof path, "/schemas/ids/%u", id);
      if (get(&registry->settings, path, &body, &status, problem, sizeof problem) && schema_in(scope, &body, &text, problem, sizeof problem)) {
        rxd_value json;
        if (host->parse_json(scope, text, &json) != RXD_OK) snprintf(problem, sizeof problem, "the schema is not JSON");
        else if ((schema = parse_schema(scope, &json, "")) == NULL) snprintf(problem, sizeof problem, "the schema of the registry is not valid");
      }
      free(body.bytes);
      if (schema != NULL) {
        found = make_plan(&registry->plans, schema->root, registry->reader != NULL ? registry->reader->root : schema->root);
        remember(registry, id, schema, found, NULL, 0);
      } else {
        registry->failures[registry->failure_index] = now_ms();
        registry->failure_index = (registry->failure_index + 1) % MOST_FAILURES;
        remember(registry, id, NULL, NULL, problem, status >= 400 && status < 500 ? MISSING_MS : FAILURE_MS);
      }
    }
    pthread_mutex_unlock(&registry->asking);
  }
  if (found == NULL) fail_at(scope, "", "the schema %u: %s", id, problem);
  return found;
}

char *newest_schema(const registry_settings *settings, const char *subject, char *problem, size_t capacity) {
  pthread_once(&once, start_curl);
  char *escaped = curl_easy_escape(NULL, subject, (int)strlen(subject)), *found = NULL;
  size_t length = strlen(escaped) + 40;
  char *path = need(malloc(length));
  snprintf(path, length, "/subjects/%s/versions/latest", escaped);
  answer body;
  long status;
  if (get(settings, path, &body, &status, problem, capacity)) {
    found = copy_text((rxd_text){body.bytes, body.count});
    free(body.bytes);
  }
  curl_free(escaped);
  free(path);
  return found;
}
