#include "listing.h"

#include "xml.h"

/* ---- A page of a listing ---- */

enum { LIST_MS = 60000 };

void object_free(object *object) {
  free(object->key);
  free(object->etag);
}

void page_free(page *page) {
  for (size_t i = 0; i < page->count; i++) object_free(&page->objects[i]);
  free(page->objects);
  *page = (struct page){0};
}

typedef struct listing {
  page *page;
  object next;
  bool is_encoded, is_truncated, has_truncated, is_full, is_listing;
} listing;

static int64_t time_of(const char *text) {
  struct tm parts = {0};
  const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == NULL) return 0;
  int64_t milliseconds = *rest == '.' ? (int64_t)(strtod(rest, NULL) * 1000) : 0;
  return (int64_t)timegm(&parts) * 1000 + milliseconds;
}

static int digit_of(char c) { return isdigit((unsigned char)c) ? c - '0' : (tolower(c) - 'a') + 10; }

/* Keys in a listing are form-encoded, because XML cannot represent all characters. */
static void decode_url(char *text) {
  char *to = text;
  for (const char *from = text; *from != 0; from++) {
    if (*from == '%' && isxdigit((unsigned char)from[1]) && isxdigit((unsigned char)from[2])) {
      *to++ = (char)(digit_of(from[1]) * 16 + digit_of(from[2]));
      from += 2;
    } else *to++ = *from == '+' ? ' ' : *from;
  }
  *to = 0;
}

static void element(void *closure, const char *parent, const char *name, const char *text, size_t count) {
  listing *self = closure;
  (void)count;
  if (strcmp(name, "ListBucketResult") == 0) self->is_listing = true;
  if (strcmp(parent, "ListBucketResult") == 0) {
    if (strcmp(name, "IsTruncated") == 0) self->is_truncated = strcmp(text, "true") == 0, self->has_truncated = true;
    if (strcmp(name, "EncodingType") == 0) self->is_encoded = strcmp(text, "url") == 0;
    if (strcmp(name, "Contents") != 0) return;
    if (self->next.key == NULL || self->page->count >= PAGE_MOST) {
      self->is_full = true;
      object_free(&self->next);
    } else self->page->objects[self->page->count++] = self->next;
    self->next = (object){.size = -1};
    return;
  }
  if (strcmp(parent, "Contents") != 0) return;
  if (strcmp(name, "Key") == 0) free(self->next.key), self->next.key = need(strdup(text));
  else if (strcmp(name, "ETag") == 0) free(self->next.etag), self->next.etag = need(strdup(text));
  else if (strcmp(name, "Size") == 0) self->next.size = strtoll(text, NULL, 10);
  else if (strcmp(name, "LastModified") == 0) self->next.modified = time_of(text);
}

/* Each page is requested by the last key of the page before, which continues after a restart and needs no token. Servers
 * that do not list in key order, or that repeat keys, would otherwise be read forever. */
static outcome check_order(client *client, const page *page, const char *after) {
  const char *last = after != NULL ? after : "";
  for (size_t i = 0; i < page->count; i++) {
    if (strcmp(page->objects[i].key, last) <= 0 && (i > 0 || after != NULL)) {
      client_trouble(client, "%.100s does not list the bucket in the order of keys, or not behind the last one (start-after)",
                     client->origin.host);
      return AGAIN;
    }
    last = page->objects[i].key;
  }
  if (page->is_last || page->count > 0) return DONE;
  client_trouble(client, "%.100s lists nothing, and says that more follows", client->origin.host);
  return AGAIN;
}

outcome page_get(client *client, const char *prefix, const char *after, page *page) {
  *page = (struct page){.objects = need(calloc(PAGE_MOST, sizeof(object)))};
  request request = {.method = "GET", .timeout_ms = LIST_MS};
  request_query(&request, "list-type", "2");
  request_query(&request, "encoding-type", "url");
  request_query(&request, "max-keys", "1000");
  if (*prefix != 0) request_query(&request, "prefix", prefix);
  if (after != NULL) request_query(&request, "start-after", after);
  answer answer;
  outcome outcome = client_send(client, &request, &answer);
  listing listing = {.page = page, .next = {.size = -1}};
  if (outcome == ABSENT) outcome = NEVER;
  if (outcome == DONE
      && (!xml_read(buffer_text(&answer.body), answer.body.count, element, &listing) || !listing.is_listing || listing.is_full
          || !listing.has_truncated)) {
    client_trouble(client, "%.100s answers a listing with what is none", client->origin.host);
    outcome = AGAIN;
  }
  object_free(&listing.next);
  page->is_last = !listing.is_truncated;
  page->date = (answer.date > 0 ? answer.date : time(NULL)) * 1000;
  for (size_t i = 0; i < page->count && listing.is_encoded; i++) decode_url(page->objects[i].key);
  answer_free(&answer);
  if (outcome == DONE) outcome = check_order(client, page, after);
  if (outcome != DONE) page_free(page);
  return outcome;
}

/* ---- Objects already read ---- */

static uint64_t hash_text(uint64_t hash, const char *text) {
  for (; *text != 0; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
  return hash;
}

/* FNV-1a with a final mix. */
static uint64_t name_of(const object *object) {
  uint64_t hash = hash_text(0xcbf29ce484222325, object->key);
  hash = hash_text((hash ^ 0xff) * 0x100000001b3, object->etag != NULL ? object->etag : "");
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93;
  return hash ^ hash >> 32;
}

static void put_slot(seen *self, size_t index) {
  size_t slot = self->entries[index].name & (self->slot_count - 1);
  while (self->slots[slot] != 0) slot = (slot + 1) & (self->slot_count - 1);
  self->slots[slot] = (uint32_t)index + 1;
}

static void rebuild(seen *self) {
  if (self->slots == NULL) {
    self->slot_count = 64;
    while (self->slot_count < 2 * self->most) self->slot_count *= 2;
    self->slots = need(calloc(self->slot_count, sizeof *self->slots));
    self->entries = need(calloc(self->most, sizeof *self->entries));
  }
  memset(self->slots, 0, self->slot_count * sizeof *self->slots);
  for (size_t i = 0; i < self->count; i++) put_slot(self, i);
}

static bool find(const seen *self, uint64_t name) {
  if (self->slots == NULL) return false;
  for (size_t slot = name & (self->slot_count - 1); self->slots[slot] != 0; slot = (slot + 1) & (self->slot_count - 1))
    if (self->entries[self->slots[slot] - 1].name == name) return true;
  return false;
}

bool seen_has(const seen *self, const object *object) {
  return object->modified <= self->settled || find(self, name_of(object));
}

static void forget(seen *self, int64_t until) {
  size_t kept = 0;
  for (size_t i = 0; i < self->count; i++)
    if (self->entries[i].modified > until) self->entries[kept++] = self->entries[i];
  self->count = kept;
  if (self->slots != NULL) rebuild(self);
}

void seen_settle(seen *self, int64_t settled) {
  if (settled > self->settled) self->settled = settled;
  forget(self, self->settled);
}

static int compare_times(const void *a, const void *b) {
  int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
  return one < other ? -1 : one > other;
}

void seen_restore(seen *self, uint64_t name, int64_t modified) {
  if (self->slots == NULL) rebuild(self);
  if (self->count >= self->most || find(self, name)) return;
  self->entries[self->count] = (seen_entry){name, modified};
  put_slot(self, self->count++);
}

bool seen_add(seen *self, const object *object, int64_t *forgotten) {
  bool is_full = self->count >= self->most;
  if (is_full) {
    int64_t *times = need(calloc(self->count, sizeof *times));
    for (size_t i = 0; i < self->count; i++) times[i] = self->entries[i].modified;
    qsort(times, self->count, sizeof *times, compare_times);
    int64_t until = times[self->count / 10];
    free(times);
    if (forgotten == NULL) seen_settle(self, until);
    else forget(self, *forgotten = until);
  }
  int64_t settled = forgotten != NULL && *forgotten > self->settled ? *forgotten : self->settled;
  if (object->modified > settled) seen_restore(self, name_of(object), object->modified);
  return is_full;
}

void seen_free(seen *self) {
  free(self->entries);
  free(self->slots);
  self->entries = NULL;
  self->slots = NULL;
}
