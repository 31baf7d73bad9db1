// A plugin with functions, decoders and an encoder; some misbehave as named.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rxd_plugin.h"

RXD_PLUGIN_MAGIC;

static const rxd_host *host;

#define ARGUMENT(name, type) "{\"name\":\"" name "\",\"type\":\"expression\",\"result\":\"" type "\",\"required\":true,\"help\":\"It.\"}"
static const char spec[] =
  "{\"plugin\":\"formats\",\"version\":\"1\",\"summary\":\"Formats.\",\"components\":["
  "{\"kind\":\"function\",\"name\":\"refuse\",\"summary\":\"Refuses.\",\"parameters\":[" ARGUMENT("text", "string") "],\"output\":{\"type\":\"string\"}},"
  "{\"kind\":\"function\",\"name\":\"lie\",\"summary\":\"Lies.\",\"parameters\":[" ARGUMENT("number", "int") "],\"output\":{\"type\":\"integer\"}},"
  "{\"kind\":\"function\",\"name\":\"touch\",\"summary\":\"Makes a file.\",\"parameters\":[" ARGUMENT("path", "string") "],\"output\":{\"type\":\"boolean\"}},"
  "{\"kind\":\"function\",\"name\":\"names\",\"summary\":\"Lists the names of members, by index.\",\"parameters\":[{\"name\":\"map\",\"type\":\"expression\",\"required\":true,\"help\":\"It.\"}]},"
  "{\"kind\":\"function\",\"name\":\"sum\",\"summary\":\"Adds up numbers, by index.\",\"parameters\":[{\"name\":\"list\",\"type\":\"expression\",\"required\":true,\"help\":\"It.\"}]},"
  "{\"kind\":\"function\",\"name\":\"half\",\"summary\":\"Halves.\",\"parameters\":[" ARGUMENT("number", "double") "],\"output\":{\"type\":\"number\"}},"
  "{\"kind\":\"function\",\"name\":\"whole\",\"summary\":\"Returns an integer.\",\"parameters\":[],\"output\":{\"type\":\"number\"}},"
  "{\"kind\":\"function\",\"name\":\"fifth\",\"summary\":\"Returns the fifth.\",\"parameters\":[" ARGUMENT("a", "int") "," ARGUMENT("b", "int") ","
  ARGUMENT("c", "int") "," ARGUMENT("d", "int") "," ARGUMENT("e", "string") "]},"
  "{\"kind\":\"function\",\"name\":\"speak\",\"summary\":\"Logs a text.\",\"parameters\":[" ARGUMENT("text", "string") "]},"
  "{\"kind\":\"operator\",\"name\":\"spoken\",\"form\":\"row\",\"summary\":\"Logs the event.\"},"
  "{\"kind\":\"function\",\"name\":\"closed\",\"summary\":\"Cannot be opened.\",\"parameters\":[" ARGUMENT("number", "int") "]},"
  "{\"kind\":\"decoder\",\"name\":\"closed\",\"summary\":\"Cannot be opened.\",\"parameters\":["
  "{\"name\":\"key\",\"type\":\"text\",\"help\":\"The key.\"}]},"
  "{\"kind\":\"decoder\",\"name\":\"between\",\"summary\":\"Splits lines.\",\"framing\":\"lines\",\"parameters\":["
  "{\"name\":\"separator\",\"type\":\"text\",\"default\":\",\",\"help\":\"What separates.\"}],"
  "\"output\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"
  "{\"kind\":\"source\",\"name\":\"feed\",\"summary\":\"Sends rows, then changes the first.\",\"loads\":true,\"recovery\":\"position\","
  "\"parameters\":[{\"name\":\"count\",\"type\":\"integer\",\"required\":true,\"help\":\"How many.\"}]},"
  "{\"kind\":\"encoder\",\"name\":\"bracketed\",\"summary\":\"Writes texts in brackets.\",\"framing\":\"lines\",\"mediaType\":\"text/plain\"}]}";

static int fail(rxd_scope *scope, const char *message, const char *at) {
  host->fail(scope, (rxd_text){message, strlen(message)}, (rxd_text){at, strlen(at)});
  return RXD_FAILED;
}

static int refuse(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance, (void)result;
  rxd_text text = host->text(scope, &arguments[0]);
  char message[100];
  snprintf(message, sizeof message, "it refuses '%.*s'", (int)text.count, text.bytes);
  return fail(scope, message, "");
}

static int lie(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance, (void)arguments;
  *result = host->make_text(scope, RXD_TEXT_OF("seven"));
  return RXD_OK;
}

static int touch(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance;
  rxd_text text = host->text(scope, &arguments[0]);
  char path[1000];
  snprintf(path, sizeof path, "%.*s", (int)text.count, text.bytes);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
  *result = host->make_bool(file >= 0);
  return RXD_OK;
}

static int names(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance;
  rxd_value found[100];
  size_t count = host->count(scope, &arguments[0]);
  for (size_t index = 0; index < count && index < 100; index++) {
    rxd_text name = {NULL, 0};
    host->entry(scope, &arguments[0], index, &name);
    found[index] = host->make_text(scope, name);
  }
  *result = host->make_list(scope, found, count < 100 ? count : 100);
  return RXD_OK;
}

static int sum(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance;
  uint64_t total = 0;
  size_t count = host->count(scope, &arguments[0]);
  for (size_t index = 0; index <= count; index++) {
    rxd_value element = host->element(scope, &arguments[0], index);
    total += host->unsigned_integer(&element);
  }
  *result = host->make_uint(total);
  return RXD_OK;
}

// Fails if rxd does not pass a double as its spec requires.
static int half(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance;
  if (host->kind(&arguments[0]) != RXD_DOUBLE) return fail(scope, "it is no double", "");
  *result = host->make_double(host->number(&arguments[0]) / 2);
  return RXD_OK;
}

static int whole(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance, (void)scope, (void)arguments;
  *result = host->make_int(3);
  return RXD_OK;
}

static int fifth(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance, (void)scope;
  *result = arguments[4];
  return RXD_OK;
}

static int speak_open(const rxd_opening *opening, void **instance) {
  *instance = opening->instance;
  return RXD_OK;
}

static void speak_close(void *instance) { (void)instance; }

static int speak(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  *result = arguments[0];
  host->log(instance, RXD_TEXT_OF("warning"), host->text(scope, result));
  return RXD_OK;
}

static int spoken(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  host->log(instance, RXD_TEXT_OF("info"), host->text(scope, event));
  return RXD_OK;
}

static int closed_open(const rxd_opening *opening, void **instance) {
  (void)instance;
  return fail(opening->scope, "the key is wrong", "key");
}

static int closed_row(void *instance, rxd_scope *scope, rxd_value *result, const rxd_value *arguments) {
  (void)instance, (void)scope, (void)result, (void)arguments;
  return RXD_OK;
}

static int between_open(const rxd_opening *opening, void **instance) {
  rxd_value separator = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("separator"));
  char *byte = malloc(1);
  *byte = host->text(opening->scope, &separator).bytes[0];
  *instance = byte;
  return RXD_OK;
}

static int between_row(void *instance, rxd_scope *scope, rxd_value *input, const rxd_value *arguments) {
  (void)arguments;
  const char *separator = instance;
  rxd_text line = host->text(scope, input);
  if (line.count == 4 && memcmp(line.bytes, "skip", 4) == 0) return RXD_DROP;
  if (line.count > 0 && line.bytes[0] == '!') return fail(scope, "it begins with '!'", "");
  rxd_value parts[100];
  size_t count = 0, begin = 0;
  for (size_t index = 0; index <= line.count && count < 100; index++) {
    if (index < line.count && line.bytes[index] != *separator) continue;
    parts[count++] = host->make_text(scope, (rxd_text){line.bytes + begin, index - begin});
    begin = index + 1;
  }
  *input = host->make_list(scope, parts, count);
  return RXD_OK;
}

static int bracketed_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance, (void)arguments;
  // A value that is not a text passes unchanged, which is a breach.
  if (host->kind(event) != RXD_TEXT) return RXD_OK;
  rxd_text text = host->text(scope, event);
  char bytes[1000];
  int count = snprintf(bytes, sizeof bytes, "[%.*s]", (int)text.count, text.bytes);
  *event = host->make_text(scope, (rxd_text){bytes, (size_t)count});
  return RXD_OK;
}

static int rows_open(const rxd_opening *opening, void **instance) {
  rxd_value count = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("count"));
  int64_t *self = malloc(sizeof *self);
  // After a position nothing follows, as after that of a log.
  *self = opening->position.bytes != NULL ? 0 : host->integer(&count);
  *instance = self;
  return RXD_OK;
}

static void add_row(rxd_source *source, int64_t id, const char *before) {
  char name[40];
  int length = snprintf(name, sizeof name, "%s%lld", before, (long long)id);
  rxd_scope *scope = host->source_scope(source);
  const rxd_text names[] = {RXD_TEXT_OF("id"), RXD_TEXT_OF("name")};
  const rxd_value values[] = {host->make_int(id), host->make_text(scope, (rxd_text){name, (size_t)length})};
  rxd_value row = host->make_object(scope, names, values, 2);
  host->add(source, &row, 0);
  host->position(source, RXD_TEXT_OF("behind"));
}

static int rows_run(void *instance, rxd_scope *scope, rxd_source *source) {
  (void)scope;
  int64_t count = *(int64_t *)instance;
  for (int64_t id = 1; id <= count; id++) add_row(source, id, "n");
  host->loaded(source);
  host->loaded(source);
  add_row(source, 1, "changed");
  host->flush(source);
  rxd_ack ack;
  while (host->is_stopping(source) == 0) host->acks(source, &ack, 1, -1);
  return RXD_OK;
}

#define COMPONENT(NAME, KIND, ...) {.size = sizeof(rxd_component), .name = {NAME, sizeof NAME - 1}, .kind = {KIND, sizeof KIND - 1}, __VA_ARGS__}
static const rxd_component components[] = {
  COMPONENT("refuse", "function", .row = refuse),
  COMPONENT("lie", "function", .row = lie),
  COMPONENT("touch", "function", .row = touch),
  COMPONENT("names", "function", .row = names),
  COMPONENT("sum", "function", .row = sum),
  COMPONENT("half", "function", .row = half),
  COMPONENT("whole", "function", .row = whole),
  COMPONENT("fifth", "function", .row = fifth),
  COMPONENT("speak", "function", .open = speak_open, .close = speak_close, .row = speak),
  COMPONENT("spoken", "operator", .open = speak_open, .close = speak_close, .row = spoken),
  COMPONENT("closed", "function", .open = closed_open, .row = closed_row),
  COMPONENT("closed", "decoder", .open = closed_open, .row = closed_row),
  COMPONENT("between", "decoder", .open = between_open, .close = free, .row = between_row),
  COMPONENT("feed", "source", .open = rows_open, .close = free, .run = rows_run),
  COMPONENT("bracketed", "encoder", .row = bracketed_row),
};

static const rxd_plugin plugin = {
  .size = sizeof(rxd_plugin), .component_count = sizeof components / sizeof components[0], .components = components,
  .component_size = sizeof(rxd_component), .spec = {spec, sizeof spec - 1}};

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  (void)contract, (void)problem;
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
