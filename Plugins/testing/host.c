// A small host for native plugins, for their tests: offers rxd_host over values that are trees of JSON, and is called
// from Python (host.py). It checks nothing of what rxd checks; it shows what a plugin does, without rxd.
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "rxd_plugin.h"

// ---- Memory and values ----

typedef struct block {
  struct block *next;
  _Alignas(16) char bytes[];
} block;

struct rxd_scope {
  block *blocks;
  char *message, *at;
};

typedef struct node {
  int kind;
  union {
    int64_t integer;
    double number;
    struct { char *bytes; size_t count; } text;
    struct { struct node **values; struct node **names; size_t count; } items;
  };
} node;

static void *allocate(rxd_scope *scope, size_t count) {
  block *made = calloc(1, sizeof(block) + count + 1);
  made->next = scope->blocks;
  scope->blocks = made;
  return made->bytes;
}

static void clear(rxd_scope *scope) {
  while (scope->blocks != NULL) {
    block *next = scope->blocks->next;
    free(scope->blocks);
    scope->blocks = next;
  }
  free(scope->message);
  free(scope->at);
  scope->message = scope->at = NULL;
}

static node *make(rxd_scope *scope, int kind) {
  node *made = allocate(scope, sizeof(node));
  made->kind = kind;
  return made;
}

static node *make_string(rxd_scope *scope, int kind, const char *bytes, size_t count) {
  node *made = make(scope, kind);
  made->text.bytes = allocate(scope, count);
  if (count > 0) memcpy(made->text.bytes, bytes, count);
  made->text.count = count;
  return made;
}

/// Numbers, times and truth values fit into the value itself: word[0] is the kind, odd; word[1] the bits.
static rxd_value small(int kind, int64_t bits) { return (rxd_value){{(uint64_t)kind << 1 | 1, (uint64_t)bits}}; }
static rxd_value value_of(const node *node) {
  if (node == NULL) return (rxd_value){{0, 0}};
  if (node->kind == RXD_TEXT || node->kind == RXD_BYTES || node->kind == RXD_LIST || node->kind == RXD_OBJECT)
    return (rxd_value){{(uint64_t)(uintptr_t)node, 0}};
  return small(node->kind, node->integer);
}
static node *node_of(const rxd_value *value) {
  return value->word[0] & 1 ? NULL : (node *)(uintptr_t)value->word[0];
}
static node *tree_of(rxd_scope *scope, const rxd_value *value) {
  if (!(value->word[0] & 1)) return node_of(value);
  node *made = make(scope, (int)(value->word[0] >> 1));
  made->integer = (int64_t)value->word[1];
  return made;
}

// ---- JSON ----

typedef struct { const char *at, *end; rxd_scope *scope; int is_extended, depth; } parser;

static void skip(parser *p) {
  while (p->at < p->end && strchr(" \t\r\n", *p->at) && *p->at) p->at++;
}

static void put_utf8(char **to, uint32_t c) {
  char *t = *to;
  if (c < 0x80) *t++ = (char)c;
  else if (c < 0x800) *t++ = (char)(0xC0 | c >> 6), *t++ = (char)(0x80 | (c & 63));
  else if (c < 0x10000) *t++ = (char)(0xE0 | c >> 12), *t++ = (char)(0x80 | (c >> 6 & 63)), *t++ = (char)(0x80 | (c & 63));
  else *t++ = (char)(0xF0 | c >> 18), *t++ = (char)(0x80 | (c >> 12 & 63)), *t++ = (char)(0x80 | (c >> 6 & 63)),
       *t++ = (char)(0x80 | (c & 63));
  *to = t;
}

static int hex4(parser *p, uint32_t *c) {
  char digits[5] = {0};
  if (p->end - p->at < 4) return 0;
  memcpy(digits, p->at, 4);
  char *end;
  *c = (uint32_t)strtoul(digits, &end, 16);
  p->at += 4;
  return *end == 0;
}

static node *parse_string(parser *p) {
  node *made = make(p->scope, RXD_TEXT);
  const char *end = p->at + 1;
  while (end < p->end && *end != '"') end += *end == '\\' && end + 1 < p->end ? 2 : 1;
  char *to = made->text.bytes = allocate(p->scope, (size_t)(end - p->at));
  for (p->at++; p->at < p->end && *p->at != '"';) {
    if ((unsigned char)*p->at < 0x20) return NULL;
    if (*p->at != '\\') { *to++ = *p->at++; continue; }
    if (++p->at == p->end) return NULL;
    char c = *p->at++;
    uint32_t code, low;
    switch (c) {
      case 'n': *to++ = '\n'; break;
      case 't': *to++ = '\t'; break;
      case 'r': *to++ = '\r'; break;
      case 'b': *to++ = '\b'; break;
      case 'f': *to++ = '\f'; break;
      case '"': case '\\': case '/': *to++ = c; break;
      case 'u':
        if (!hex4(p, &code)) return NULL;
        if (code >= 0xD800 && code < 0xDC00) {
          if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u') return NULL;
          p->at += 2;
          if (!hex4(p, &low) || low < 0xDC00 || low > 0xDFFF) return NULL;
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        put_utf8(&to, code);
        break;
      default: return NULL;
    }
  }
  if (p->at == p->end) return NULL;
  p->at++;
  made->text.count = (size_t)(to - made->text.bytes);
  return made;
}

static node *parse_value(parser *p);

static node *parse_items(parser *p, int kind) {
  node *made = make(p->scope, kind);
  size_t room = 0;
  node **values = NULL, **names = NULL;
  char close = kind == RXD_LIST ? ']' : '}';
  p->at++;
  skip(p);
  int is_good = p->at < p->end;
  if (is_good && *p->at == close) {
    p->at++;
    return made;
  }
  while (is_good) {
    if (made->items.count == room) {
      room = room * 2 + 8;
      values = realloc(values, room * sizeof *values);
      names = realloc(names, room * sizeof *names);
    }
    node *name = NULL;
    skip(p);
    if (kind == RXD_OBJECT) {
      is_good = p->at < p->end && *p->at == '"' && (name = parse_string(p)) != NULL;
      if (is_good) skip(p);
      is_good = is_good && p->at < p->end && *p->at++ == ':';
    }
    node *value = is_good ? parse_value(p) : NULL;
    if (value == NULL) { is_good = 0; break; }
    names[made->items.count] = name;
    values[made->items.count++] = value;
    skip(p);
    if (p->at == p->end) { is_good = 0; break; }
    char c = *p->at++;
    if (c == close) break;
    is_good = c == ',';
  }
  size_t bytes = made->items.count * sizeof(node *);
  made->items.values = allocate(p->scope, bytes);
  made->items.names = allocate(p->scope, bytes);
  if (bytes > 0) memcpy(made->items.values, values, bytes), memcpy(made->items.names, names, bytes);
  free(values);
  free(names);
  if (!is_good) return NULL;
  // {"$duration": 5} and the like, in what Python hands over.
  if (p->is_extended && kind == RXD_OBJECT && made->items.count == 1) {
    const char *name = made->items.names[0]->text.bytes;
    int64_t integer = made->items.values[0]->integer;
    if (!strcmp(name, "$duration")) made->kind = RXD_DURATION, made->integer = integer;
    else if (!strcmp(name, "$timestamp")) made->kind = RXD_TIMESTAMP, made->integer = integer;
    else if (!strcmp(name, "$bytes")) { made = made->items.values[0]; made->kind = RXD_BYTES; }
  }
  return made;
}

static node *parse_value(parser *p) {
  skip(p);
  if (p->at == p->end || p->depth > 100) return NULL;
  size_t left = (size_t)(p->end - p->at);
  node *made;
  switch (*p->at) {
    case '"': return parse_string(p);
    case '[': case '{':
      p->depth++;
      made = parse_items(p, *p->at == '[' ? RXD_LIST : RXD_OBJECT);
      p->depth--;
      return made;
    case 't': if (left < 4 || memcmp(p->at, "true", 4)) return NULL;
      p->at += 4; made = make(p->scope, RXD_BOOL); made->integer = 1; return made;
    case 'f': if (left < 5 || memcmp(p->at, "false", 5)) return NULL;
      p->at += 5; return make(p->scope, RXD_BOOL);
    case 'n': if (left < 4 || memcmp(p->at, "null", 4)) return NULL;
      p->at += 4; return make(p->scope, RXD_NULL);
    default: break;
  }
  char digits[400];
  size_t count = 0;
  while (count < left && count < sizeof digits - 1 && strchr("+-0123456789.eE", p->at[count])) count++;
  if (count == 0 || strchr(".eE+", p->at[0])) return NULL;
  memcpy(digits, p->at, count);
  digits[count] = 0;
  p->at += count;
  char *end;
  made = make(p->scope, RXD_INT);
  errno = 0;
  if (strpbrk(digits, ".eE") == NULL) {
    made->integer = strtoll(digits, &end, 10);
    if (errno == ERANGE && digits[0] != '-') {
      errno = 0;
      made->integer = (int64_t)strtoull(digits, &end, 10);
      made->kind = RXD_UINT;
    }
    if (errno == 0) return *end ? NULL : made;
  }
  made->kind = RXD_DOUBLE;
  made->number = strtod(digits, &end);
  return *end ? NULL : made;
}

static node *parse(rxd_scope *scope, const char *bytes, size_t count, int is_extended) {
  parser p = {bytes, bytes + count, scope, is_extended, 0};
  node *made = parse_value(&p);
  skip(&p);
  return p.at == p.end ? made : NULL;
}

static void put_string(FILE *to, const char *bytes, size_t count) {
  fputc('"', to);
  for (size_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c == '"' || c == '\\') fprintf(to, "\\%c", c);
    else if (c < 0x20) fprintf(to, "\\u%04x", c);
    else fputc(c, to);
  }
  fputc('"', to);
}

/// `is_extended`: times, durations and bytes as `parse` reads them again.
static void put_as(FILE *to, const node *value, int is_extended) {
  if (is_extended && value != NULL && (value->kind == RXD_TIMESTAMP || value->kind == RXD_DURATION)) {
    fprintf(to, "{\"$%s\":%" PRId64 "}", value->kind == RXD_TIMESTAMP ? "timestamp" : "duration", value->integer);
    return;
  }
  if (value == NULL) { fputs("null", to); return; }
  switch (value->kind) {
    case RXD_BOOL: fputs(value->integer ? "true" : "false", to); break;
    case RXD_UINT: fprintf(to, "%" PRIu64, (uint64_t)value->integer); break;
    case RXD_INT: case RXD_DURATION: fprintf(to, "%" PRId64, value->integer); break;
    case RXD_DOUBLE: fprintf(to, "%.17g", value->number); break;
    case RXD_TEXT: put_string(to, value->text.bytes, value->text.count); break;
    case RXD_BYTES:
      fputs("\"hex:", to);
      for (size_t i = 0; i < value->text.count; i++) fprintf(to, "%02x", (unsigned char)value->text.bytes[i]);
      fputc('"', to);
      break;
    case RXD_TIMESTAMP: {
      int64_t seconds = value->integer / 1000000000, rest = value->integer % 1000000000;
      if (rest < 0) seconds--, rest += 1000000000;
      struct tm tm;
      char text[64];
      time_t time = seconds;
      gmtime_r(&time, &tm);
      strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
      fprintf(to, "\"%s.%09dZ\"", text, (int)rest);
      break;
    }
    case RXD_LIST: case RXD_OBJECT:
      fputc(value->kind == RXD_LIST ? '[' : '{', to);
      for (size_t i = 0; i < value->items.count; i++) {
        if (i > 0) fputc(',', to);
        if (value->kind == RXD_OBJECT) {
          put_string(to, value->items.names[i]->text.bytes, value->items.names[i]->text.count);
          fputc(':', to);
        }
        put_as(to, value->items.values[i], is_extended);
      }
      fputc(value->kind == RXD_LIST ? ']' : '}', to);
      break;
    default: fputs("null", to);
  }
}

static void put(FILE *to, const node *value) { put_as(to, value, 0); }

static void put_value(FILE *to, const rxd_value *value) {
  rxd_scope scope = {0};
  put(to, tree_of(&scope, value));
  clear(&scope);
}

// ---- What plugins call ----

static int host_kind(const rxd_value *value) {
  if (value->word[0] & 1) return (int)(value->word[0] >> 1);
  return value->word[0] == 0 ? RXD_ABSENT : node_of(value)->kind;
}
static double as_number(const rxd_value *value) {
  double number;
  memcpy(&number, &value->word[1], sizeof number);
  return number;
}
static int host_boolean(const rxd_value *value) { return host_kind(value) == RXD_BOOL && value->word[1]; }
static int64_t host_integer(const rxd_value *value) {
  switch (host_kind(value)) {
    case RXD_INT: case RXD_UINT: case RXD_TIMESTAMP: case RXD_DURATION: return (int64_t)value->word[1];
    case RXD_DOUBLE: return (int64_t)as_number(value);
    default: return 0;
  }
}
static double host_number(const rxd_value *value) {
  switch (host_kind(value)) {
    case RXD_INT: return (double)(int64_t)value->word[1];
    case RXD_UINT: return (double)value->word[1];
    case RXD_DOUBLE: return as_number(value);
    default: return 0;
  }
}
static rxd_text host_text(rxd_scope *scope, const rxd_value *value) {
  (void)scope;
  int kind = host_kind(value);
  if (kind != RXD_TEXT && kind != RXD_BYTES) return (rxd_text){"", 0};
  // A copy without a zero behind it, so that a sanitizer finds who relies on one.
  node *node = node_of(value);
  char *bytes = allocate(scope, node->text.count);
  memcpy(bytes, node->text.bytes, node->text.count);
  bytes[node->text.count] = '#';
  return (rxd_text){bytes, node->text.count};
}
static size_t host_count(rxd_scope *scope, const rxd_value *value) {
  (void)scope;
  int kind = host_kind(value);
  return kind == RXD_LIST || kind == RXD_OBJECT ? node_of(value)->items.count : 0;
}
static rxd_value host_member(rxd_scope *scope, const rxd_value *object, rxd_text name) {
  (void)scope;
  if (host_kind(object) != RXD_OBJECT) return value_of(NULL);
  node *node = node_of(object);
  for (size_t i = 0; i < node->items.count; i++) {
    if (node->items.names[i]->text.count == name.count && !memcmp(node->items.names[i]->text.bytes, name.bytes, name.count))
      return value_of(node->items.values[i]);
  }
  return value_of(NULL);
}
static rxd_value host_element(rxd_scope *scope, const rxd_value *list, size_t index) {
  (void)scope;
  return host_kind(list) == RXD_LIST && index < node_of(list)->items.count ? value_of(node_of(list)->items.values[index])
                                                                           : value_of(NULL);
}
static rxd_value host_entry(rxd_scope *scope, const rxd_value *object, size_t index, rxd_text *name) {
  (void)scope;
  if (host_kind(object) != RXD_OBJECT || index >= node_of(object)->items.count) return value_of(NULL);
  node *node = node_of(object);
  *name = (rxd_text){node->items.names[index]->text.bytes, node->items.names[index]->text.count};
  return value_of(node->items.values[index]);
}
static rxd_text write_json(rxd_scope *scope, const rxd_value *value, int is_extended) {
  char *text = NULL;
  size_t count = 0;
  FILE *to = open_memstream(&text, &count);
  put_as(to, tree_of(scope, value), is_extended);
  fclose(to);
  char *bytes = allocate(scope, count);
  memcpy(bytes, text, count);
  bytes[count] = '#';
  free(text);
  return (rxd_text){bytes, count};
}
static rxd_text host_json(rxd_scope *scope, const rxd_value *value) { return write_json(scope, value, 0); }
static rxd_text host_encode(rxd_scope *scope, const rxd_value *value) { return write_json(scope, value, 1); }

static rxd_value host_make_null(void) { return small(RXD_NULL, 0); }
static rxd_value host_make_bool(int value) { return small(RXD_BOOL, value != 0); }
static rxd_value host_make_int(int64_t value) { return small(RXD_INT, value); }
static rxd_value host_make_double(double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return small(RXD_DOUBLE, bits);
}
static rxd_value host_make_timestamp(int64_t value) { return small(RXD_TIMESTAMP, value); }
static rxd_value host_make_duration(int64_t value) { return small(RXD_DURATION, value); }
static rxd_value host_make_text(rxd_scope *scope, rxd_text text) {
  return value_of(make_string(scope, RXD_TEXT, text.bytes, text.count));
}
static rxd_value host_make_bytes(rxd_scope *scope, rxd_text text) {
  return value_of(make_string(scope, RXD_BYTES, text.bytes, text.count));
}
static rxd_value make_items(rxd_scope *scope, int kind, const rxd_text *names, const rxd_value *values, size_t count) {
  node *made = make(scope, kind);
  made->items.count = count;
  made->items.values = allocate(scope, count * sizeof(node *));
  made->items.names = allocate(scope, count * sizeof(node *));
  for (size_t i = 0; i < count; i++) {
    made->items.values[i] = tree_of(scope, &values[i]);
    if (names != NULL) made->items.names[i] = make_string(scope, RXD_TEXT, names[i].bytes, names[i].count);
  }
  return value_of(made);
}
static rxd_value host_make_list(rxd_scope *scope, const rxd_value *elements, size_t count) {
  return make_items(scope, RXD_LIST, NULL, elements, count);
}
static rxd_value host_make_object(rxd_scope *scope, const rxd_text *names, const rxd_value *values, size_t count) {
  return make_items(scope, RXD_OBJECT, names, values, count);
}
static rxd_value host_with_member(rxd_scope *scope, const rxd_value *object, rxd_text name, const rxd_value *value) {
  node *old = host_kind(object) == RXD_OBJECT ? node_of(object) : NULL, *made = make(scope, RXD_OBJECT);
  size_t count = old == NULL ? 0 : old->items.count, place = count;
  made->items.values = allocate(scope, (count + 1) * sizeof(node *));
  made->items.names = allocate(scope, (count + 1) * sizeof(node *));
  for (size_t i = 0; i < count; i++) {
    made->items.values[i] = old->items.values[i];
    node *n = made->items.names[i] = old->items.names[i];
    if (n->text.count == name.count && !memcmp(n->text.bytes, name.bytes, name.count)) place = i;
  }
  made->items.count = place == count ? count + 1 : count;
  made->items.names[place] = make_string(scope, RXD_TEXT, name.bytes, name.count);
  made->items.values[place] = tree_of(scope, value);
  return value_of(made);
}
static int host_parse_json(rxd_scope *scope, rxd_text json, rxd_value *value) {
  node *made = parse(scope, json.bytes, json.count, 0);
  if (made == NULL) return RXD_FAILED;
  *value = value_of(made);
  return RXD_OK;
}

static int host_decode(rxd_scope *scope, rxd_text bytes, rxd_value *value) {
  node *made = parse(scope, bytes.bytes, bytes.count, 1);
  if (made == NULL) return RXD_FAILED;
  *value = value_of(made);
  return RXD_OK;
}

static void host_fail(rxd_scope *scope, rxd_text message, rxd_text at) {
  free(scope->message);
  free(scope->at);
  scope->message = strndup(message.bytes, message.count);
  scope->at = strndup(at.bytes, at.count);
}

typedef struct handle {
  const rxd_component *component;
  void *instance;
  rxd_scope scope;
  rxd_source *source;
  pthread_mutex_t lock;
  char *log;  // lines
} handle;

static void host_log(rxd_instance *instance, rxd_text level, rxd_text message) {
  handle *self = (handle *)(void *)instance;
  pthread_mutex_lock(&self->lock);
  char *longer = NULL;
  if (asprintf(&longer, "%s%.*s %.*s\n", self->log ? self->log : "", (int)level.count, level.bytes, (int)message.count,
               message.bytes) > 0) {
    free(self->log);
    self->log = longer;
  }
  pthread_mutex_unlock(&self->lock);
}
static void host_count_up(rxd_instance *instance, rxd_text name, int64_t by) {
  char text[200];
  int count = snprintf(text, sizeof text, "%.*s %" PRId64, (int)name.count, name.bytes, by);
  host_log(instance, RXD_TEXT_OF("count"), (rxd_text){text, (size_t)count});
}

struct rxd_output { FILE *sent; FILE *timers; int has_sent, has_timers; };
static void begin_item(rxd_output *output, size_t index) {
  fprintf(output->sent, "%s{\"index\":%zu,", output->has_sent++ ? "," : "", index);
}
static void host_send(rxd_output *output, size_t index, const rxd_value *event) {
  begin_item(output, index);
  fputs("\"event\":", output->sent);
  put_value(output->sent, event);
  fputc('}', output->sent);
}
static void host_reject(rxd_output *output, size_t index, rxd_text message) {
  begin_item(output, index);
  fputs("\"error\":", output->sent);
  put_string(output->sent, message.bytes, message.count);
  fputc('}', output->sent);
}
static void host_timer(rxd_output *output, rxd_text name, int64_t nanoseconds) {
  fputs(output->has_timers++ ? "," : "", output->timers);
  put_string(output->timers, name.bytes, name.count);
  fprintf(output->timers, ":%" PRId64, nanoseconds);
}

struct rxd_verdicts { size_t delivered; FILE *refused; int has_refused; };
static void host_delivered(rxd_verdicts *verdicts, size_t count) { verdicts->delivered = count; }
static void host_refuse(rxd_verdicts *verdicts, size_t index, rxd_text message) {
  fprintf(verdicts->refused, "%s\"%zu\":", verdicts->has_refused++ ? "," : "", index);
  put_string(verdicts->refused, message.bytes, message.count);
}

struct rxd_source {
  rxd_scope scope;
  FILE *events;  // of the batch that is being made
  char *text;
  size_t length, count;
  char *position;  // in hex
  pthread_mutex_t lock;
  pthread_cond_t change;
  char **batches;  // handed over
  size_t batch_count;
  int64_t credit;
  int is_stopping, wake;
  rxd_ack *acks;
  size_t ack_count;
};

static rxd_scope *host_source_scope(rxd_source *source) { return &source->scope; }
static int host_flush(rxd_source *source) {
  if (source->events != NULL) fclose(source->events);
  source->events = NULL;
  pthread_mutex_lock(&source->lock);
  while (source->credit < (int64_t)source->count && !source->is_stopping) pthread_cond_wait(&source->change, &source->lock);
  int status = source->is_stopping ? RXD_STOP : RXD_OK;
  if (source->credit >= (int64_t)source->count && (source->count > 0 || source->position != NULL)) {
    source->credit -= (int64_t)source->count;
    char *batch = NULL;
    if (asprintf(&batch, "{\"events\":[%s],\"position\":\"%s\"}", source->text ? source->text : "",
                 source->position ? source->position : "") > 0) {
      source->batches = realloc(source->batches, (source->batch_count + 1) * sizeof(char *));
      source->batches[source->batch_count++] = batch;
    }
  }
  pthread_cond_broadcast(&source->change);
  pthread_mutex_unlock(&source->lock);
  free(source->text);
  free(source->position);
  source->text = source->position = NULL;
  source->count = 0;
  clear(&source->scope);
  return status;
}
static int add_text(rxd_source *source, const char *bytes, size_t count, uint64_t token) {
  // At the beginning, so that a position set behind the last event goes with it.
  if (source->count >= 1024 && host_flush(source) == RXD_STOP) return RXD_STOP;
  if (source->events == NULL) source->events = open_memstream(&source->text, &source->length);
  fprintf(source->events, "%s{\"token\":%" PRIu64 ",\"event\":%.*s}", source->count++ ? "," : "", token, (int)count, bytes);
  return RXD_OK;
}
static int host_add(rxd_source *source, const rxd_value *event, uint64_t token) {
  rxd_scope scope = {0};
  rxd_text json = host_json(&scope, event);
  int status = add_text(source, json.bytes, json.count, token);
  clear(&scope);
  return status;
}
static int host_add_json(rxd_source *source, rxd_text json, uint64_t token) {
  rxd_scope scope = {0};
  int is_json = parse(&scope, json.bytes, json.count, 0) != NULL;
  clear(&scope);
  return is_json ? add_text(source, json.bytes, json.count, token) : RXD_FAILED;
}
static void host_position(rxd_source *source, rxd_text position) {
  free(source->position);
  source->position = calloc(1, position.count * 2 + 1);
  for (size_t i = 0; i < position.count; i++) sprintf(source->position + 2 * i, "%02x", (unsigned char)position.bytes[i]);
}
static size_t host_acks(rxd_source *source, rxd_ack *acks, size_t most, int64_t wait_nanoseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += wait_nanoseconds / 1000000000;
  until.tv_nsec += wait_nanoseconds % 1000000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&source->lock);
  while (source->ack_count == 0 && !source->is_stopping) {
    if (pthread_cond_timedwait(&source->change, &source->lock, &until) != 0) break;
  }
  size_t count = source->ack_count < most ? source->ack_count : most;
  memcpy(acks, source->acks, count * sizeof *acks);
  memmove(source->acks, source->acks + count, (source->ack_count - count) * sizeof *acks);
  source->ack_count -= count;
  uint64_t ignored;
  if (source->ack_count == 0 && !source->is_stopping && read(source->wake, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
    abort();
  pthread_mutex_unlock(&source->lock);
  return count;
}
static int host_wake_descriptor(rxd_source *source) { return source->wake; }
static int host_is_stopping(rxd_source *source) {
  pthread_mutex_lock(&source->lock);
  int is_stopping = source->is_stopping;
  pthread_mutex_unlock(&source->lock);
  return is_stopping;
}

static const rxd_host the_host = {
    sizeof(rxd_host), RXD_CONTRACT, host_kind, host_boolean, host_integer, host_number, host_text, host_count,
    host_member, host_element, host_entry, host_json, host_make_null, host_make_bool, host_make_int, host_make_double,
    host_make_timestamp, host_make_duration, host_make_text, host_make_bytes, host_make_list, host_make_object,
    host_with_member, host_parse_json, host_fail, host_log, host_count_up, host_send, host_reject, host_timer,
    host_delivered, host_refuse, host_source_scope, host_add, host_add_json, host_flush, host_position, host_acks,
    host_wake_descriptor, host_is_stopping, host_encode, host_decode};

// ---- What Python calls. Texts that are returned are freed with `test_free`. ----

void test_free(void *pointer) { free(pointer); }

const rxd_plugin *test_load(const char *path, char **problem) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) { *problem = strdup(dlerror()); return NULL; }
  const rxd_magic *magic = dlsym(library, "rxd_plugin_magic");
  if (magic == NULL || memcmp(magic->name, "rxdplug", 8) || magic->size != sizeof(rxd_magic)
      || magic->contract != RXD_CONTRACT || magic->pointer_bytes != sizeof(void *)) {
    *problem = strdup("no magic");
    return NULL;
  }
  rxd_plugin_init_function *init;
  *(void **)&init = dlsym(library, "rxd_plugin_init");
  const rxd_plugin *plugin = NULL;
  rxd_text why = {"", 0};
  if (init(RXD_CONTRACT, &the_host, &plugin, &why) != RXD_OK) {
    *problem = strndup(why.bytes, why.count);
    return NULL;
  }
  return plugin;
}

char *test_spec(const rxd_plugin *plugin) { return strndup(plugin->spec.bytes, plugin->spec.count); }

static int is(rxd_text text, const char *string) {
  return text.count == strlen(string) && !memcmp(text.bytes, string, text.count);
}

handle *test_open(const rxd_plugin *plugin, const char *kind, const char *name, const char *parameters,
                  const char *state, size_t state_count, uint32_t version, const char *position, size_t position_count,
                  char **problem) {
  const rxd_component *component = NULL;
  for (uint32_t i = 0; i < plugin->component_count; i++) {
    const rxd_component *one = (const rxd_component *)((const char *)plugin->components + i * plugin->component_size);
    if (is(one->name, name) && is(one->kind, kind)) component = one;
  }
  if (component == NULL) { *problem = strdup("no such component"); return NULL; }
  handle *self = calloc(1, sizeof *self);
  pthread_mutex_init(&self->lock, NULL);
  self->component = component;
  rxd_opening opening = {
      .size = sizeof(rxd_opening), .instance = (rxd_instance *)(void *)self, .scope = &self->scope,
      .parameters = value_of(parse(&self->scope, parameters, strlen(parameters), 1)), .step = RXD_TEXT_OF("test/1"),
      .state = {state, state_count}, .state_version = version, .position = {position, position_count}};
  if (component->open(&opening, &self->instance) != RXD_OK) {
    if (asprintf(problem, "%s\n%s", self->scope.at ? self->scope.at : "", self->scope.message ? self->scope.message : "") < 0)
      abort();
    clear(&self->scope);
    free(self->log);
    free(self);
    return NULL;
  }
  clear(&self->scope);
  return self;
}

void test_close(handle *self) {
  self->component->close(self->instance);
  if (self->source != NULL) {
    for (size_t i = 0; i < self->source->batch_count; i++) free(self->source->batches[i]);
    free(self->source->batches);
    free(self->source->acks);
    close(self->source->wake);
    free(self->source);
  }
  free(self->log);
  free(self);
}

/// What has been logged and counted since, a line each.
char *test_log(handle *self) {
  pthread_mutex_lock(&self->lock);
  char *log = self->log ? self->log : strdup("");
  self->log = NULL;
  pthread_mutex_unlock(&self->lock);
  return log;
}

static void put_failure(FILE *to, rxd_scope *scope, int status) {
  fprintf(to, "\"status\":%d,\"error\":", status);
  put_string(to, scope->message ? scope->message : "", scope->message ? strlen(scope->message) : 0);
}

char *test_row(handle *self, const char *event, const char *arguments) {
  char *text = NULL;
  size_t count;
  rxd_scope scope = {0};  // `row` may be called on several threads
  rxd_value value = value_of(parse(&scope, event, strlen(event), 1));
  node *given = parse(&scope, arguments, strlen(arguments), 1);
  rxd_value values[32];
  for (size_t i = 0; i < given->items.count && i < 32; i++) values[i] = value_of(given->items.values[i]);
  int status = self->component->row(self->instance, &scope, &value, values);
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &scope, status);
  fputs(",\"event\":", to);
  put_value(to, &value);
  fputc('}', to);
  fclose(to);
  clear(&scope);
  return text;
}

/// `inputs`: a list of {"event": ..., "with": [...]}, {"timer": name}, {"complete": true}.
static rxd_batch make_batch(rxd_scope *scope, const char *inputs, int64_t monotonic) {
  node *list = parse(scope, inputs, strlen(inputs), 1);
  rxd_input *made = allocate(scope, list->items.count * sizeof(rxd_input));
  for (size_t i = 0; i < list->items.count; i++) {
    rxd_value item = value_of(list->items.values[i]);
    rxd_value timer = host_member(scope, &item, RXD_TEXT_OF("timer"));
    rxd_value complete = host_member(scope, &item, RXD_TEXT_OF("complete"));
    rxd_value with = host_member(scope, &item, RXD_TEXT_OF("with"));
    made[i].event = host_member(scope, &item, RXD_TEXT_OF("event"));
    made[i].kind = host_kind(&timer) ? RXD_TIMER : host_kind(&complete) ? RXD_COMPLETE : RXD_EVENT;
    made[i].name = host_text(scope, &timer);
    made[i].argument_count = (uint32_t)host_count(scope, &with);
    rxd_value *arguments = allocate(scope, made[i].argument_count * sizeof(rxd_value));
    for (uint32_t j = 0; j < made[i].argument_count; j++) arguments[j] = host_element(scope, &with, j);
    made[i].arguments = arguments;
  }
  return (rxd_batch){sizeof(rxd_batch), (uint32_t)list->items.count, made, sizeof(rxd_input), monotonic, monotonic};
}

char *test_process(handle *self, const char *inputs, int64_t monotonic) {
  char *sent = NULL, *timers = NULL, *text = NULL;
  size_t count;
  rxd_output output = {open_memstream(&sent, &count), open_memstream(&timers, &count), 0, 0};
  rxd_batch batch = make_batch(&self->scope, inputs, monotonic);
  int status = self->component->process(self->instance, &self->scope, &batch, &output);
  fclose(output.sent);
  fclose(output.timers);
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &self->scope, status);
  fprintf(to, ",\"sent\":[%s],\"timers\":{%s}}", sent, timers);
  fclose(to);
  free(sent);
  free(timers);
  clear(&self->scope);
  return text;
}

char *test_write(handle *self, const char *inputs) {
  char *refused = NULL, *text = NULL;
  size_t count;
  rxd_verdicts verdicts = {0, open_memstream(&refused, &count), 0};
  rxd_batch batch = make_batch(&self->scope, inputs, 0);
  int status = self->component->write(self->instance, &self->scope, &batch, &verdicts);
  fclose(verdicts.refused);
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &self->scope, status);
  fprintf(to, ",\"delivered\":%zu,\"refused\":{%s}}", verdicts.delivered, refused);
  fclose(to);
  free(refused);
  clear(&self->scope);
  return text;
}

char *test_save(handle *self, size_t *count) {
  rxd_bytes bytes = {0};
  *count = 0;
  if (self->component->save(self->instance, &self->scope, &bytes) != RXD_OK) { clear(&self->scope); return NULL; }
  char *copy = malloc(bytes.count + 1);
  memcpy(copy, bytes.bytes, bytes.count);
  *count = bytes.count;
  if (bytes.release != NULL) bytes.release(&bytes);
  clear(&self->scope);
  return copy;
}

void test_begin_source(handle *self, int64_t credit) {
  rxd_source *source = self->source = calloc(1, sizeof *source);
  pthread_mutex_init(&source->lock, NULL);
  pthread_cond_init(&source->change, NULL);
  source->credit = credit;
  source->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/// Blocks until the source has ended.
char *test_run(handle *self) {
  int status = self->component->run(self->instance, &self->scope, self->source);
  char *text = NULL;
  size_t count;
  FILE *to = open_memstream(&text, &count);
  fputc('{', to);
  put_failure(to, &self->scope, status);
  fputc('}', to);
  fclose(to);
  clear(&self->scope);
  return text;
}

static void wake(rxd_source *source) {
  uint64_t one = 1;
  if (write(source->wake, &one, sizeof one) < 0 && errno != EAGAIN) abort();
  pthread_cond_broadcast(&source->change);
}

/// The next batch, or NULL after `seconds` without one.
char *test_take(handle *self, double seconds) {
  rxd_source *source = self->source;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
  until.tv_sec += nanoseconds / 1000000000;
  until.tv_nsec = nanoseconds % 1000000000;
  pthread_mutex_lock(&source->lock);
  while (source->batch_count == 0) {
    if (pthread_cond_timedwait(&source->change, &source->lock, &until) != 0) break;
  }
  char *batch = NULL;
  if (source->batch_count > 0) {
    batch = source->batches[0];
    memmove(source->batches, source->batches + 1, --source->batch_count * sizeof(char *));
  }
  pthread_mutex_unlock(&source->lock);
  return batch;
}

void test_credit(handle *self, int64_t credit) {
  pthread_mutex_lock(&self->source->lock);
  self->source->credit += credit;
  pthread_cond_broadcast(&self->source->change);
  pthread_mutex_unlock(&self->source->lock);
}

void test_acknowledge(handle *self, uint64_t token, int is_failed) {
  rxd_source *source = self->source;
  pthread_mutex_lock(&source->lock);
  source->acks = realloc(source->acks, (source->ack_count + 1) * sizeof(rxd_ack));
  source->acks[source->ack_count++] = (rxd_ack){token, (uint32_t)is_failed, 0};
  wake(source);
  pthread_mutex_unlock(&source->lock);
}

void test_stop(handle *self) {
  pthread_mutex_lock(&self->source->lock);
  self->source->is_stopping = 1;
  wake(self->source);
  pthread_mutex_unlock(&self->source->lock);
}
