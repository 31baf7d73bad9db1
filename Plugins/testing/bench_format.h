/* Measures the decoder and the encoder of a plugin against a plain loop of its library, over the values in a file. Values
 * are as cheap here as in rxd: two words, with lists and objects in memory that a call frees at once.
 *
 * The including file defines plain_decode, plain_prepare and plain_encode and, if the components need parameters, PARAMETERS: their names and
 * texts, `{{"message", "Reading"}}`. A format without an encoder defines DECODES_ONLY instead of the last two. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rxd_plugin.h"

/* Reads all values of the file once; false on failure. */
static int plain_decode(const char *bytes, size_t count);
#ifndef DECODES_ONLY
/* Encodes the values read by `plain_prepare` once; returns the number of bytes. */
static void plain_prepare(const char *bytes, size_t count);
static size_t plain_encode(void);
#endif

struct rxd_scope { char *memory; size_t used, size; };
static struct rxd_scope scope;

static void *take(size_t count) {
  void *taken = scope.memory + scope.used;
  scope.used += (count + 15) & ~(size_t)15;
  if (scope.used > scope.size) abort();
  return taken;
}

typedef struct { rxd_text name; rxd_value value; } member;
static rxd_value value_of(int kind, uint64_t payload, size_t count) { return (rxd_value){{payload, (uint64_t)count << 8 | (unsigned)kind}}; }
static int kind_of(const rxd_value *value) { return (int)(value->word[1] & 0xff); }
static size_t count_of(const rxd_value *value) { return value->word[1] >> 8; }
static void *pointer_of(const rxd_value *value) { return (void *)(uintptr_t)value->word[0]; }

static int on_boolean(const rxd_value *value) { return (int)value->word[0]; }
static int64_t on_integer(const rxd_value *value) { return (int64_t)value->word[0]; }
static double on_number(const rxd_value *value) { double number; memcpy(&number, &value->word[0], 8); return number; }
static rxd_text on_text(rxd_scope *s, const rxd_value *value) { (void)s; return (rxd_text){pointer_of(value), count_of(value)}; }
static size_t on_count(rxd_scope *s, const rxd_value *value) { (void)s; return kind_of(value) == RXD_LIST || kind_of(value) == RXD_OBJECT ? count_of(value) : 0; }
static rxd_value on_member(rxd_scope *s, const rxd_value *object, rxd_text name) {
  (void)s;
  const member *members = pointer_of(object);
  for (size_t i = 0; kind_of(object) == RXD_OBJECT && i < count_of(object); i++)
    if (members[i].name.count == name.count && !memcmp(members[i].name.bytes, name.bytes, name.count)) return members[i].value;
  return value_of(RXD_ABSENT, 0, 0);
}
static rxd_value on_element(rxd_scope *s, const rxd_value *list, size_t index) { (void)s; return ((const rxd_value *)pointer_of(list))[index]; }
static rxd_value on_entry(rxd_scope *s, const rxd_value *object, size_t index, rxd_text *name) {
  (void)s;
  *name = ((const member *)pointer_of(object))[index].name;
  return ((const member *)pointer_of(object))[index].value;
}
static rxd_text on_bytes_of(rxd_scope *s, const rxd_value *value) { (void)s; (void)value; return (rxd_text){"", 0}; }
static rxd_value on_null(void) { return value_of(RXD_NULL, 0, 0); }
static rxd_value on_bool(int value) { return value_of(RXD_BOOL, value != 0, 0); }
static rxd_value on_int(int64_t value) { return value_of(RXD_INT, (uint64_t)value, 0); }
static rxd_value on_uint(uint64_t value) { return value_of(value <= INT64_MAX ? RXD_INT : RXD_UINT, value, 0); }
static uint64_t on_unsigned_integer(const rxd_value *value) { return value->word[0]; }
static rxd_value on_double(double value) { uint64_t bits; memcpy(&bits, &value, 8); return value_of(RXD_DOUBLE, bits, 0); }
static rxd_value on_timestamp(int64_t value) { return value_of(RXD_TIMESTAMP, (uint64_t)value, 0); }
static rxd_value on_duration(int64_t value) { return value_of(RXD_DURATION, (uint64_t)value, 0); }
static const char *copied(rxd_text text) { return text.count == 0 ? "" : memcpy(take(text.count), text.bytes, text.count); }
static rxd_value on_make_text(rxd_scope *s, rxd_text text) { (void)s; return value_of(RXD_TEXT, (uint64_t)(uintptr_t)copied(text), text.count); }
static rxd_value on_make_bytes(rxd_scope *s, rxd_text text) { (void)s; return value_of(RXD_BYTES, (uint64_t)(uintptr_t)copied(text), text.count); }
static rxd_value on_list(rxd_scope *s, const rxd_value *elements, size_t count) {
  (void)s;
  rxd_value *made = take(count * sizeof *made);
  if (count > 0) memcpy(made, elements, count * sizeof *made);
  return value_of(RXD_LIST, (uint64_t)(uintptr_t)made, count);
}
static rxd_value on_object(rxd_scope *s, const rxd_text *names, const rxd_value *values, size_t count) {
  (void)s;
  member *made = take(count * sizeof *made);
  for (size_t i = 0; i < count; i++) made[i] = (member){{copied(names[i]), names[i].count}, values[i]};
  return value_of(RXD_OBJECT, (uint64_t)(uintptr_t)made, count);
}
static rxd_value on_with_member(rxd_scope *s, const rxd_value *object, rxd_text name, const rxd_value *value) {
  (void)s;
  (void)value;
  (void)name; /* the plugins replace a member themselves, for which rxd copies the members */
  member *made = take(count_of(object) * sizeof *made);
  memcpy(made, pointer_of(object), count_of(object) * sizeof *made);
  return value_of(RXD_OBJECT, (uint64_t)(uintptr_t)made, count_of(object));
}

/* Parses the JSON of schemas, which has no escapes in texts. */
static int parse_at(const char **at, const char *end, rxd_value *value) {
  static const char blank[] = " \n\t\r,:";
  while (*at < end && memchr(blank, **at, sizeof blank - 1)) ++*at;
  if (*at == end) return 0;
  char first = *(*at)++;
  if (first == '"') {
    const char *start = *at, *stop = memchr(start, '"', (size_t)(end - start));
    if (stop == NULL) return 0;
    *value = on_make_text(NULL, (rxd_text){start, (size_t)(stop - start)});
    *at = stop + 1;
    return 1;
  }
  if (first == '{' || first == '[') {
    rxd_text names[100];
    rxd_value values[100], name;
    size_t count = 0;
    for (;; count++) {
      while (*at < end && memchr(blank, **at, sizeof blank - 1)) ++*at;
      if (*at == end || count == 100) return 0;
      if (**at == '}' || **at == ']') break;
      if (first == '{') {
        if (!parse_at(at, end, &name)) return 0;
        names[count] = on_text(NULL, &name);
      }
      if (!parse_at(at, end, &values[count])) return 0;
    }
    ++*at;
    *value = first == '{' ? on_object(NULL, names, values, count) : on_list(NULL, values, count);
    return 1;
  }
  if (first == 'n' || first == 't' || first == 'f') {
    *at += first == 'f' ? 4 : 3;
    *value = first == 'n' ? on_null() : on_bool(first == 't');
    return 1;
  }
  char *stop;
  *value = on_int(strtoll(*at - 1, &stop, 10));
  *at = stop;
  return 1;
}
static int on_parse(rxd_scope *s, rxd_text json, rxd_value *value) {
  (void)s;
  const char *at = json.bytes;
  return parse_at(&at, json.bytes + json.count, value) ? RXD_OK : RXD_FAILED;
}
static void on_fail(rxd_scope *s, rxd_text message, rxd_text at) { (void)s; (void)at; fprintf(stderr, "%.*s\n", (int)message.count, message.bytes); }

static const rxd_host the_host = {
    .size = sizeof(rxd_host), .contract = RXD_CONTRACT, .kind = kind_of, .boolean = on_boolean, .integer = on_integer, .number = on_number,
    .text = on_text, .count = on_count, .member = on_member, .element = on_element, .entry = on_entry, .json = on_bytes_of, .encode = on_bytes_of,
    .make_null = on_null, .make_bool = on_bool, .make_int = on_int, .make_double = on_double, .make_timestamp = on_timestamp, .make_duration = on_duration,
    .make_text = on_make_text, .make_bytes = on_make_bytes, .make_list = on_list, .make_object = on_object, .with_member = on_with_member,
    .parse_json = on_parse, .fail = on_fail, .make_uint = on_uint, .unsigned_integer = on_unsigned_integer};

static const rxd_component *component(const rxd_plugin *plugin, const char *kind) {
  for (uint32_t i = 0; i < plugin->component_count; i++) {
    const rxd_component *one = (const rxd_component *)((const char *)plugin->components + i * plugin->component_size);
    if (one->kind.count == strlen(kind) && !memcmp(one->kind.bytes, kind, one->kind.count)) return one;
  }
  abort();
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

/* bench PLUGIN FILE: prints nanoseconds per value, as JSON. */
int main(int count, char **arguments) {
  if (count != 3) return 64;
  FILE *file = fopen(arguments[2], "rb");
  if (file == NULL) return 66;
  static char bytes[1 << 24];
  size_t length = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  scope.size = (size_t)1 << 28;
  scope.memory = malloc(scope.size);
  memset(scope.memory, 1, scope.size);
  void *library = dlopen(arguments[1], RTLD_NOW);
  rxd_plugin_init_function *init = NULL;
  if (library != NULL) *(void **)&init = dlsym(library, "rxd_plugin_init");
  const rxd_plugin *plugin;
  rxd_text problem;
  if (init == NULL || init(RXD_CONTRACT, &the_host, &plugin, &problem) != RXD_OK) return 70;
  const rxd_component *decoder = component(plugin, "decoder");
#ifdef PARAMETERS
  static const char *const given[][2] = PARAMETERS;
  rxd_text given_names[sizeof given / sizeof *given];
  rxd_value texts[sizeof given / sizeof *given];
  size_t given_count = sizeof given / sizeof *given;
  for (size_t i = 0; i < given_count; i++) {
    given_names[i] = (rxd_text){given[i][0], strlen(given[i][0])};
    texts[i] = on_make_text(&scope, (rxd_text){given[i][1], strlen(given[i][1])});
  }
#else
  const rxd_text *given_names = NULL;
  const rxd_value *texts = NULL;
  size_t given_count = 0;
#endif
  rxd_opening opening = {.size = sizeof opening, .scope = &scope, .parameters = on_object(&scope, given_names, texts, given_count)};
  void *instance = NULL;
  if (decoder->open != NULL && decoder->open(&opening, &instance) != RXD_OK) return 70;
#ifndef DECODES_ONLY
  const rxd_component *encoder = component(plugin, "encoder");
  void *encoding = NULL;
  if (encoder->open != NULL && encoder->open(&opening, &encoding) != RXD_OK) return 70;
#endif

  scope.used = 0;
  rxd_value all = value_of(RXD_BYTES, (uint64_t)(uintptr_t)bytes, length);
  if (decoder->row(instance, &scope, &all, NULL) != RXD_OK) return 65;
  size_t values = count_of(&all), kept = scope.used;
#ifdef DECODES_ONLY
  enum { RUNS = 5, CASES = 2 };
#else
  enum { RUNS = 5, CASES = 4 };
  plain_prepare(bytes, length);
#endif
  double times[CASES][RUNS];
  for (int run = 0; run < RUNS; run++) {
    for (int what = 0; what < CASES; what++) {
      double start = now();
      if (what == 0 && !plain_decode(bytes, length)) return 65;
      if (what == 1) {
        rxd_value event = value_of(RXD_BYTES, (uint64_t)(uintptr_t)bytes, length);
        if (decoder->row(instance, &scope, &event, NULL) != RXD_OK) return 65;
      }
#ifndef DECODES_ONLY
      if (what == 2 && plain_encode() == 0) return 65;
      if (what == 3) {
        for (size_t i = 0; i < values; i++) {
          rxd_value event = on_element(&scope, &all, i);
          if (encoder->row(encoding, &scope, &event, NULL) != RXD_OK) return 65;
          scope.used = kept;
        }
      }
#endif
      times[what][run] = (now() - start) * 1e9 / (double)values;
      scope.used = kept;
    }
  }
  static const char *const names[] = {"decoded by the library", "decoded by the plugin", "encoded by the library", "encoded by the plugin"};
  printf("%zu values, %zu bytes each\n", values, length / values);
  for (int what = 0; what < CASES; what++) {
    qsort(times[what], RUNS, sizeof(double), by_size);
    printf("%-24s %6.0f ns each (%.0f to %.0f), %5.2f million a second\n", names[what], times[what][RUNS / 2], times[what][0], times[what][RUNS - 1],
           1e3 / times[what][RUNS / 2]);
  }
  return 0;
}
