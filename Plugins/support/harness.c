/* Runs one source or sink of a native plugin without rxd: for tests under sanitizers, and while a plugin is written.
 *
 *   harness PLUGIN.so source NAME PARAMETERS [MILLISECONDS]   writes the events as lines of JSON. An event is acknowledged
 *       when its line is written, after a pause; with SIGTERM the source comes to an end. 'fail N' as MILLISECONDS
 *       fails every N-th batch instead of writing it.
 *   harness PLUGIN.so sink NAME PARAMETERS                    reads events as lines of JSON until the end of the input.
 *
 * PARAMETERS are JSON; defaults of the spec are applied. Of templates only whole {{ event.member }} are understood. */
#include <ctype.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <rxd_plugin.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- Values: nodes in the memory of a scope ---- */

typedef struct node node;
struct node {
  int kind;
  int64_t integer;
  double number;
  rxd_text text;
  size_t count;
  rxd_text *names;
  node **items;
};

typedef struct piece { struct piece *next; } piece;
struct rxd_scope {
  piece *pieces;
  char problem[512], at[64];
};

static void *take(rxd_scope *scope, size_t count) {
  piece *piece = calloc(1, sizeof *piece + count + 16);
  piece->next = scope->pieces;
  scope->pieces = piece;
  return (char *)piece + 16;
}
static void clear(rxd_scope *scope) {
  while (scope->pieces != NULL) {
    piece *next = scope->pieces->next;
    free(scope->pieces);
    scope->pieces = next;
  }
}
static rxd_text copy(rxd_scope *scope, rxd_text text) {
  char *bytes = take(scope, text.count + 1);
  if (text.count > 0) memcpy(bytes, text.bytes, text.count);
  return (rxd_text){bytes, text.count};
}
static node *new_node(rxd_scope *scope, int kind) {
  node *made = take(scope, sizeof *made);
  made->kind = kind;
  return made;
}
/* Values that belong to no scope live for ever: this is a test. */
static rxd_scope eternal;
static node absent = {.kind = RXD_ABSENT};
static rxd_value wrap(const node *n) { return (rxd_value){{(uint64_t)(uintptr_t)n, 0}}; }
static const node *of(const rxd_value *value) {
  const node *n = (const node *)(uintptr_t)value->word[0];
  return n == NULL ? &absent : n;
}
static bool same(rxd_text a, rxd_text b) { return a.count == b.count && memcmp(a.bytes, b.bytes, a.count) == 0; }
static const node *get(const node *object, const char *name) {
  rxd_text text = {name, strlen(name)};
  for (size_t i = 0; object != NULL && object->kind == RXD_OBJECT && i < object->count; i++)
    if (same(object->names[i], text)) return object->items[i];
  return &absent;
}
static bool is_text(const node *n, const char *text) { return n->kind == RXD_TEXT && same(n->text, (rxd_text){text, strlen(text)}); }

/* ---- JSON ---- */

typedef struct { const char *at, *end; rxd_scope *scope; bool failed; } parser;
static void space(parser *p) { while (p->at < p->end && isspace((unsigned char)*p->at)) p->at++; }
static bool eat(parser *p, char c) { space(p); if (p->at < p->end && *p->at == c) { p->at++; return true; } return false; }
static rxd_text parse_text(parser *p) {
  char *out = take(p->scope, (size_t)(p->end - p->at) * 2 + 1);
  size_t count = 0;
  while (p->at < p->end && *p->at != '"') {
    char c = *p->at++;
    if (c == '\\' && p->at < p->end) {
      c = *p->at++;
      if (c == 'u' && p->end - p->at >= 4) {
        char hex[5] = {p->at[0], p->at[1], p->at[2], p->at[3], 0};
        unsigned code = (unsigned)strtoul(hex, NULL, 16);
        p->at += 4;
        if (code < 0x80) out[count++] = (char)code;
        else if (code < 0x800) { out[count++] = (char)(0xc0 | code >> 6); out[count++] = (char)(0x80 | (code & 63)); }
        else { out[count++] = (char)(0xe0 | code >> 12); out[count++] = (char)(0x80 | (code >> 6 & 63)); out[count++] = (char)(0x80 | (code & 63)); }
        continue;
      }
      c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
    }
    out[count++] = c;
  }
  if (p->at < p->end) p->at++; else p->failed = true;
  return (rxd_text){out, count};
}
static node *parse(parser *p, int depth) {
  space(p);
  if (p->at >= p->end || depth > 64) { p->failed = true; return &absent; }
  char c = *p->at;
  if (c == '{' || c == '[') {
    node *made = new_node(p->scope, c == '{' ? RXD_OBJECT : RXD_LIST);
    size_t capacity = 0;
    p->at++;
    if (eat(p, c == '{' ? '}' : ']')) return made;
    do {
      if (made->count == capacity) {
        capacity = capacity * 2 + 4;
        rxd_text *names = take(p->scope, capacity * sizeof *names);
        node **items = take(p->scope, capacity * sizeof *items);
        if (made->count > 0) { memcpy(names, made->names, made->count * sizeof *names); memcpy(items, made->items, made->count * sizeof *items); }
        made->names = names;
        made->items = items;
      }
      if (c == '{') {
        if (!eat(p, '"')) { p->failed = true; return made; }
        made->names[made->count] = parse_text(p);
        if (!eat(p, ':')) p->failed = true;
      }
      made->items[made->count++] = parse(p, depth + 1);
    } while (!p->failed && eat(p, ','));
    if (!eat(p, c == '{' ? '}' : ']')) p->failed = true;
    return made;
  }
  node *made = new_node(p->scope, RXD_NULL);
  if (c == '"') { p->at++; made->kind = RXD_TEXT; made->text = parse_text(p); return made; }
  const char *start = p->at;
  while (p->at < p->end && (isalnum((unsigned char)*p->at) || strchr("+-.", *p->at) != NULL)) p->at++;
  char word[64] = "";
  if (p->at - start < 64) memcpy(word, start, (size_t)(p->at - start));
  char *end = word;
  if (strcmp(word, "null") == 0) return made;
  made->kind = RXD_BOOL;
  if (strcmp(word, "true") == 0) { made->integer = 1; return made; }
  if (strcmp(word, "false") == 0) return made;
  made->kind = strpbrk(word, ".eE") == NULL ? RXD_INT : RXD_DOUBLE;
  made->integer = strtoll(word, NULL, 10);
  made->number = strtod(word, &end);
  if (*word == 0 || isalpha((unsigned char)*word) || *end != 0) p->failed = true;
  return made;
}
static node *parse_document(rxd_scope *scope, rxd_text json) {
  parser p = {json.bytes, json.bytes + json.count, scope, false};
  node *made = parse(&p, 0);
  space(&p);
  return p.failed || p.at != p.end ? NULL : made;
}
static void print_text(FILE *file, rxd_text text) {
  fputc('"', file);
  for (size_t i = 0; i < text.count; i++) {
    unsigned char c = (unsigned char)text.bytes[i];
    if (c == '"' || c == '\\') fprintf(file, "\\%c", c);
    else if (c < 32) fprintf(file, "\\u%04x", c);
    else fputc(c, file);
  }
  fputc('"', file);
}
static void print(FILE *file, const node *n) {
  switch (n->kind) {
  case RXD_BOOL: fputs(n->integer ? "true" : "false", file); break;
  case RXD_INT: case RXD_TIMESTAMP: case RXD_DURATION: fprintf(file, "%lld", (long long)n->integer); break;
  case RXD_DOUBLE: fprintf(file, "%.17g", n->number); break;
  case RXD_TEXT: print_text(file, n->text); break;
  case RXD_BYTES:
    fputs("{\"hex\":\"", file);
    for (size_t i = 0; i < n->text.count; i++) fprintf(file, "%02x", (unsigned char)n->text.bytes[i]);
    fputs("\"}", file);
    break;
  case RXD_LIST: case RXD_OBJECT:
    fputc(n->kind == RXD_LIST ? '[' : '{', file);
    for (size_t i = 0; i < n->count; i++) {
      if (i > 0) fputc(',', file);
      if (n->kind == RXD_OBJECT) { print_text(file, n->names[i]); fputc(':', file); }
      print(file, n->items[i]);
    }
    fputc(n->kind == RXD_LIST ? ']' : '}', file);
    break;
  default: fputs("null", file);
  }
}

/* ---- The host ---- */

static int h_kind(const rxd_value *v) { return of(v)->kind; }
static int h_boolean(const rxd_value *v) { return of(v)->kind == RXD_BOOL && of(v)->integer; }
static int64_t h_integer(const rxd_value *v) { return of(v)->kind == RXD_DOUBLE ? (int64_t)of(v)->number : of(v)->kind == RXD_BOOL ? 0 : of(v)->integer; }
static double h_number(const rxd_value *v) { return of(v)->kind == RXD_INT ? (double)of(v)->integer : of(v)->number; }
static rxd_text h_text(rxd_scope *s, const rxd_value *v) { (void)s; return of(v)->text; }
static size_t h_count(rxd_scope *s, const rxd_value *v) { (void)s; return of(v)->count; }
static rxd_value h_member(rxd_scope *s, const rxd_value *v, rxd_text name) {
  (void)s;
  for (size_t i = 0; of(v)->kind == RXD_OBJECT && i < of(v)->count; i++)
    if (same(of(v)->names[i], name)) return wrap(of(v)->items[i]);
  return wrap(&absent);
}
static rxd_value h_element(rxd_scope *s, const rxd_value *v, size_t i) { (void)s; return wrap(of(v)->kind == RXD_LIST && i < of(v)->count ? of(v)->items[i] : &absent); }
static rxd_value h_entry(rxd_scope *s, const rxd_value *v, size_t i, rxd_text *name) { (void)s; *name = of(v)->names[i]; return wrap(of(v)->items[i]); }
static rxd_text json_of(rxd_scope *s, const node *n) {
  char *bytes;
  size_t count;
  FILE *file = open_memstream(&bytes, &count);
  print(file, n);
  fclose(file);
  rxd_text made = copy(s, (rxd_text){bytes, count});
  free(bytes);
  return made;
}
static rxd_text h_json(rxd_scope *s, const rxd_value *v) { return json_of(s, of(v)); }
static node *scalar(int kind, int64_t integer, double number) {
  node *made = new_node(&eternal, kind);
  made->integer = integer;
  made->number = number;
  return made;
}
static node null_node = {.kind = RXD_NULL}, true_node = {.kind = RXD_BOOL, .integer = 1}, false_node = {.kind = RXD_BOOL};
static rxd_value h_null(void) { return wrap(&null_node); }
static rxd_value h_bool(int v) { return wrap(v ? &true_node : &false_node); }
static rxd_value h_int(int64_t v) { return wrap(scalar(RXD_INT, v, 0)); }
static rxd_value h_double(double v) { return wrap(scalar(RXD_DOUBLE, 0, v)); }
static rxd_value h_timestamp(int64_t v) { return wrap(scalar(RXD_TIMESTAMP, v, 0)); }
static rxd_value h_duration(int64_t v) { return wrap(scalar(RXD_DURATION, v, 0)); }
static rxd_value h_make_text(rxd_scope *s, rxd_text t) { node *n = new_node(s, RXD_TEXT); n->text = copy(s, t); return wrap(n); }
static rxd_value h_bytes(rxd_scope *s, rxd_text t) { node *n = new_node(s, RXD_BYTES); n->text = copy(s, t); return wrap(n); }
static rxd_value h_list(rxd_scope *s, const rxd_value *values, size_t count) {
  node *n = new_node(s, RXD_LIST);
  n->items = take(s, count * sizeof *n->items + 1);
  for (n->count = 0; n->count < count; n->count++) n->items[n->count] = (node *)of(&values[n->count]);
  return wrap(n);
}
static rxd_value h_object(rxd_scope *s, const rxd_text *names, const rxd_value *values, size_t count) {
  rxd_value made = h_list(s, values, count);
  node *n = (node *)of(&made);
  n->kind = RXD_OBJECT;
  n->names = take(s, count * sizeof *n->names + 1);
  for (size_t i = 0; i < count; i++) n->names[i] = copy(s, names[i]);
  return made;
}
static int h_parse(rxd_scope *s, rxd_text json, rxd_value *value) {
  node *n = parse_document(s, json);
  if (n == NULL) return RXD_FAILED;
  *value = wrap(n);
  return RXD_OK;
}
static void h_fail(rxd_scope *s, rxd_text message, rxd_text at) {
  snprintf(s->problem, sizeof s->problem, "%.*s", (int)message.count, message.bytes);
  snprintf(s->at, sizeof s->at, "%.*s", (int)at.count, at.bytes == NULL ? "" : at.bytes);
}
static void h_log(rxd_instance *i, rxd_text level, rxd_text message) {
  (void)i;
  fprintf(stderr, "%.*s: %.*s\n", (int)level.count, level.bytes, (int)message.count, message.bytes);
}
static void h_count_up(rxd_instance *i, rxd_text name, int64_t by) {
  (void)i;
  fprintf(stderr, "count: %.*s %lld\n", (int)name.count, name.bytes, (long long)by);
}

/* Sinks. */
struct rxd_verdicts { size_t delivered; bool *refused; };
static void h_delivered(rxd_verdicts *v, size_t count) { v->delivered = count; }
static void h_refuse(rxd_verdicts *v, size_t index, rxd_text message) {
  v->refused[index] = true;
  fprintf(stderr, "refused: %.*s\n", (int)message.count, message.bytes);
}

/* Sources: a thread writes the lines and acknowledges. */
typedef struct line { rxd_text text; uint64_t token; } line;
enum { QUEUE = 1 << 16 };
struct rxd_source {
  rxd_scope scope;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  line batch[1024], queue[QUEUE];
  rxd_ack answers[QUEUE];
  size_t batch_count, queue_first, queue_count, answer_first, answer_count, busy;
  int wake;
  bool ended;
};
static struct rxd_source source = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static volatile sig_atomic_t stopped;
static int milliseconds, fail_each;
enum { CREDIT = 4096 };
static void on_stop(int signal) { (void)signal; stopped = 1; uint64_t one = 1; if (write(source.wake, &one, sizeof one) < 0) _exit(2); }
static rxd_scope *h_source_scope(rxd_source *s) { return &s->scope; }
static int h_flush(rxd_source *s) {
  pthread_mutex_lock(&s->mutex);
  while (s->queue_count + s->busy + s->batch_count > CREDIT && !stopped) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    if (until.tv_nsec >= 1000000000) { until.tv_nsec -= 1000000000; until.tv_sec++; }
    pthread_cond_timedwait(&s->changed, &s->mutex, &until);
  }
  for (size_t i = 0; i < s->batch_count; i++) s->queue[(s->queue_first + s->queue_count++) % QUEUE] = s->batch[i];
  s->batch_count = 0;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  clear(&s->scope);
  return stopped ? RXD_STOP : RXD_OK;
}
static int h_add(rxd_source *s, const rxd_value *event, uint64_t token) {
  if (s->batch_count == 1024 && h_flush(s) == RXD_STOP) return RXD_STOP;
  rxd_text json = json_of(&s->scope, of(event));
  char *bytes = malloc(json.count + 1);
  memcpy(bytes, json.bytes, json.count);
  s->batch[s->batch_count++] = (line){{bytes, json.count}, token};
  return stopped ? RXD_STOP : RXD_OK;
}
static void h_reject_input(rxd_source *s, rxd_text input, rxd_text message, uint64_t token) {
  rxd_text names[] = {RXD_TEXT_OF("rejected"), RXD_TEXT_OF("reason")};
  rxd_value values[] = {h_make_text(&s->scope, input), h_make_text(&s->scope, message)}, event = h_object(&s->scope, names, values, 2);
  h_add(s, &event, token);
}
static int h_is_closing(rxd_instance *i) { (void)i; return 0; }
static int h_add_json(rxd_source *s, rxd_text json, uint64_t token) {
  rxd_value value;
  return h_parse(&s->scope, json, &value) == RXD_OK ? h_add(s, &value, token) : RXD_FAILED;
}
static void h_position(rxd_source *s, rxd_text position) { (void)s; (void)position; }
static size_t h_acks(rxd_source *s, rxd_ack *acks, size_t most, int64_t wait) {
  struct pollfd polled = {s->wake, POLLIN, 0};
  if (wait > 0 && !stopped) poll(&polled, 1, (int)(wait / 1000000));
  pthread_mutex_lock(&s->mutex);
  size_t count = 0;
  while (count < most && s->answer_count > 0) {
    acks[count++] = s->answers[s->answer_first];
    s->answer_first = (s->answer_first + 1) % QUEUE;
    s->answer_count--;
  }
  uint64_t seen;
  if (s->answer_count == 0 && !stopped && poll(&polled, 1, 0) > 0 && read(s->wake, &seen, sizeof seen) < 0) abort();
  pthread_mutex_unlock(&s->mutex);
  return count;
}
static int h_wake(rxd_source *s) { return s->wake; }
static int h_stopping(rxd_source *s) { (void)s; return stopped; }

static void *deliver(void *unused) {
  (void)unused;
  int round = 0;
  pthread_mutex_lock(&source.mutex);
  for (;;) {
    while (source.queue_count == 0 && !source.ended) pthread_cond_wait(&source.changed, &source.mutex);
    if (source.queue_count == 0) break;
    size_t count = source.busy = source.queue_count;
    bool fails = fail_each > 0 && ++round % fail_each == 0;
    pthread_mutex_unlock(&source.mutex);
    if (milliseconds > 0) usleep((unsigned)milliseconds * 1000);
    for (size_t i = 0; i < count; i++) {
      line *each = &source.queue[(source.queue_first + i) % QUEUE];
      if (!fails) printf("%.*s\n", (int)each->text.count, each->text.bytes);
      free((char *)each->text.bytes);
    }
    fflush(stdout);
    pthread_mutex_lock(&source.mutex);
    for (size_t i = 0; i < count; i++)
      source.answers[(source.answer_first + source.answer_count++) % QUEUE] = (rxd_ack){source.queue[(source.queue_first + i) % QUEUE].token, fails, 0};
    source.queue_first = (source.queue_first + count) % QUEUE;
    source.queue_count -= count;
    source.busy = 0;
    uint64_t one = 1;
    if (write(source.wake, &one, sizeof one) < 0) abort();
    pthread_cond_broadcast(&source.changed);
  }
  pthread_mutex_unlock(&source.mutex);
  return NULL;
}

static const rxd_host table = {
  .size = sizeof(rxd_host), .contract = RXD_CONTRACT, .kind = h_kind, .boolean = h_boolean, .integer = h_integer, .number = h_number,
  .text = h_text, .count = h_count, .member = h_member, .element = h_element, .entry = h_entry, .json = h_json, .make_null = h_null,
  .make_bool = h_bool, .make_int = h_int, .make_double = h_double, .make_timestamp = h_timestamp, .make_duration = h_duration,
  .make_text = h_make_text, .make_bytes = h_bytes, .make_list = h_list, .make_object = h_object, .parse_json = h_parse, .fail = h_fail,
  .log = h_log, .count_up = h_count_up, .delivered = h_delivered, .refuse = h_refuse, .source_scope = h_source_scope, .add = h_add,
  .add_json = h_add_json, .flush = h_flush, .position = h_position, .acks = h_acks, .wake_descriptor = h_wake, .is_stopping = h_stopping,
  .reject_input = h_reject_input, .is_closing = h_is_closing,
};

/* ---- Parameters ---- */

static int64_t duration(rxd_text text) {
  char *unit;
  double value = strtod(text.bytes, &unit);
  static const struct { const char *name; double nanoseconds; } units[] = {{"ms", 1e6}, {"s", 1e9}, {"m", 6e10}, {"h", 3.6e12}, {"d", 8.64e13}};
  for (size_t i = 0; i < 5; i++)
    if (same((rxd_text){unit, text.count - (size_t)(unit - text.bytes)}, (rxd_text){units[i].name, strlen(units[i].name)})) return (int64_t)(value * units[i].nanoseconds);
  fprintf(stderr, "no duration\n");
  exit(64);
}
/* The result of a template, or of an expression that is `event` or a member of it. */
static rxd_value evaluate(rxd_scope *scope, const node *template, const node *event) {
  if (template->kind != RXD_TEXT) return wrap(&absent);
  char *bytes;
  size_t count;
  FILE *out = open_memstream(&bytes, &count);
  const char *at = template->text.bytes, *end = at + template->text.count;
  while (at < end) {
    const char *open = memmem(at, (size_t)(end - at), "{{ event", 8), *close = open == NULL ? NULL : memmem(open, (size_t)(end - open), " }}", 3);
    if (close == NULL) { fwrite(at, 1, (size_t)(end - at), out); break; }
    fwrite(at, 1, (size_t)(open - at), out);
    char name[64] = "";
    if (open[8] == '.') snprintf(name, sizeof name, "%.*s", (int)(close - open - 9), open + 9);
    const node *value = *name == 0 ? event : get(event, name);
    if (value->kind == RXD_TEXT) fwrite(value->text.bytes, 1, value->text.count, out);
    else print(out, value);
    at = close + 3;
  }
  fclose(out);
  rxd_value made = h_make_text(scope, (rxd_text){bytes, count});
  free(bytes);
  return made;
}

int main(int count, char **arguments) {
  if (count < 5) { fprintf(stderr, "usage: harness PLUGIN.so source|sink NAME PARAMETERS [MILLISECONDS]\n"); return 64; }
  signal(SIGPIPE, SIG_IGN);
  void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) { fprintf(stderr, "%s\n", dlerror()); return 70; }
  const rxd_magic *magic = dlsym(library, "rxd_plugin_magic");
  rxd_plugin_init_function *init;
  *(void **)&init = dlsym(library, "rxd_plugin_init");
  const rxd_plugin *plugin;
  rxd_text problem;
  if (magic == NULL || init == NULL || memcmp(magic->name, "rxdplug", 8) != 0 || init(RXD_CONTRACT, &table, &plugin, &problem) != RXD_OK) return 70;
  const node *spec = parse_document(&eternal, plugin->spec), *wanted = NULL;
  if (spec == NULL) { fprintf(stderr, "the spec is no JSON\n"); return 70; }
  const node *components = get(spec, "components");
  for (size_t i = 0; i < components->count; i++)
    if (is_text(get(components->items[i], "name"), arguments[3]) && is_text(get(components->items[i], "kind"), arguments[2])) wanted = components->items[i];
  const rxd_component *component = NULL;
  for (uint32_t i = 0; i < plugin->component_count; i++) {
    const rxd_component *each = (const rxd_component *)((const char *)plugin->components + i * plugin->component_size);
    if (same(each->name, (rxd_text){arguments[3], strlen(arguments[3])}) && same(each->kind, (rxd_text){arguments[2], strlen(arguments[2])})) component = each;
  }
  const node *given = parse_document(&eternal, (rxd_text){arguments[4], strlen(arguments[4])});
  if (wanted == NULL || component == NULL || given == NULL) { fprintf(stderr, "no such component, or no JSON\n"); return 64; }

  const node *parameters = get(wanted, "parameters"), *templates[16];
  rxd_text names[64];
  rxd_value values[64];
  size_t value_count = 0, template_count = 0;
  for (size_t i = 0; i < parameters->count; i++) {
    const node *parameter = parameters->items[i], *type = get(parameter, "type");
    rxd_text name = get(parameter, "name")->text;
    char terminated[64];
    snprintf(terminated, sizeof terminated, "%.*s", (int)name.count, name.bytes);
    const node *value = get(given, terminated);
    if (value->kind == RXD_ABSENT) value = get(parameter, "default");
    if (is_text(type, "template") || is_text(type, "expression")) { templates[template_count++] = value; continue; }
    if (value->kind == RXD_ABSENT) continue;
    if (is_text(type, "duration")) { rxd_value made = h_duration(duration(value->text)); value = of(&made); }
    if (is_text(type, "list") && value->kind != RXD_LIST) { rxd_value one = wrap(value), made = h_list(&eternal, &one, 1); value = of(&made); }
    names[value_count] = name;
    values[value_count++] = wrap(value);
  }
  rxd_scope scope = {0};
  rxd_opening opening = {.size = sizeof opening, .scope = &scope, .parameters = h_object(&eternal, names, values, value_count),
                         .step = RXD_TEXT_OF("harness/1"), .pipeline = RXD_TEXT_OF("harness")};
  void *instance = NULL;
  if (component->open(&opening, &instance) != RXD_OK) {
    fprintf(stderr, "refused at '%s': %s\n", scope.at, scope.problem);
    clear(&scope);
    clear(&eternal);
    return 78;
  }
  clear(&scope);
  int status = RXD_OK;
  if (component->run != NULL) {
    if (count > 5 && strncmp(arguments[5], "fail ", 5) == 0) fail_each = atoi(arguments[5] + 5);
    else if (count > 5) milliseconds = atoi(arguments[5]);
    source.wake = eventfd(0, EFD_CLOEXEC);
    signal(SIGTERM, on_stop);
    pthread_t thread;
    pthread_create(&thread, NULL, deliver, NULL);
    status = component->run(instance, &scope, &source);
    h_flush(&source);
    pthread_mutex_lock(&source.mutex);
    source.ended = true;
    pthread_cond_broadcast(&source.changed);
    pthread_mutex_unlock(&source.mutex);
    pthread_join(thread, NULL);
  } else {
    enum { MOST = 1024 };
    static rxd_input inputs[MOST];
    static rxd_value results[MOST * 4];
    static char *lines[MOST];
    size_t waiting = 0, total = 0, refused_count = 0, capacity = 0;
    bool is_over = false, is_failing = false;
    char *text = NULL;
    unsigned pause = 500;
    while (!is_over || waiting > 0) {
      ssize_t length;
      while (waiting < MOST && !is_over) {
        if ((length = getline(&text, &capacity, stdin)) < 0) is_over = true;
        else lines[waiting++] = strdup(text);
      }
      if (waiting == 0) break;
      for (size_t i = 0; i < waiting; i++) {
        node *event = parse_document(&scope, (rxd_text){lines[i], strlen(lines[i])});
        if (event == NULL) event = &null_node;
        for (size_t t = 0; t < template_count; t++) results[i * 4 + t] = evaluate(&scope, templates[t], event);
        inputs[i] = (rxd_input){.kind = RXD_EVENT, .argument_count = (uint32_t)template_count, .event = wrap(event), .arguments = &results[i * 4]};
      }
      rxd_batch batch = {.size = sizeof batch, .count = (uint32_t)waiting, .inputs = inputs, .input_size = sizeof inputs[0]};
      bool refused[MOST] = {false};
      rxd_verdicts verdicts = {0, refused};
      status = component->write(instance, &scope, &batch, &verdicts);
      if (status == RXD_RETRY && !is_failing) fprintf(stderr, "warning: %s; trying again\n", scope.problem);
      if (status == RXD_OK && is_failing) fprintf(stderr, "info: works again\n");
      is_failing = status == RXD_RETRY;
      clear(&scope);
      size_t settled = status == RXD_OK ? waiting : verdicts.delivered;
      if (status == RXD_FAILED) break;
      size_t kept = 0;
      for (size_t i = 0; i < waiting; i++) {
        if (i >= settled && !refused[i]) { lines[kept++] = lines[i]; continue; }
        free(lines[i]);
        if (refused[i]) refused_count++; else total++;
      }
      waiting = kept;
      if (status == RXD_RETRY) { usleep(pause * 1000); pause = pause < 15000 ? pause * 2 : 30000; } else pause = 500;
    }
    for (size_t i = 0; i < waiting; i++) free(lines[i]);
    free(text);
    fprintf(stderr, "delivered %zu, refused %zu\n", total, refused_count);
  }
  if (status == RXD_FAILED) fprintf(stderr, "failed at '%s': %s\n", scope.at, scope.problem);
  component->close(instance);
  clear(&source.scope);
  clear(&scope);
  clear(&eternal);
  return status == RXD_FAILED ? 1 : 0;
}
