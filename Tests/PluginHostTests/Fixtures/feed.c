// A source of numbered records, one per line of a growing file, which ends when it is stopped.
//
// `position`: continues after the last line that counts. `sender`: each line has a token; acknowledged lines are noted in PATH.acked and
// failed ones in PATH.failed, and an instance sends the lines that are not in PATH.acked. A line that is no number is rejected.
// `fail`: an end of the file is a failure.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rxd_plugin.h"

RXD_PLUGIN_MAGIC;

enum { MOST = 100000 };

static const rxd_host *host;

typedef struct {
  char path[4000];
  int has_tokens, fails, ends;
  long next;          // the next line
  char done[MOST];    // by line: acknowledged before
  rxd_instance *instance;
} feed;

static void copy(char *to, size_t size, rxd_text text) {
  size_t count = text.count < size - 1 ? text.count : size - 1;
  memcpy(to, text.bytes, count);
  to[count] = 0;
}

static void note(feed *self, const char *what, uint64_t line) {
  char path[4100];
  snprintf(path, sizeof path, "%s.%s", self->path, what);
  FILE *file = fopen(path, "a");
  if (file == NULL) return;
  fprintf(file, "%llu\n", (unsigned long long)line);
  fclose(file);
}

static int open_feed(const rxd_opening *opening, void **instance) {
  feed *self = calloc(1, sizeof *self);
  *instance = self;
  self->instance = opening->instance;
  rxd_value path = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("path"));
  rxd_value mode = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("mode"));
  copy(self->path, sizeof self->path, host->text(opening->scope, &path));
  char text[16];
  copy(text, sizeof text, host->text(opening->scope, &mode));
  self->has_tokens = strcmp(text, "sender") == 0;
  self->fails = strcmp(text, "fail") == 0;
  self->ends = strcmp(text, "once") == 0;
  if (opening->position.bytes != NULL) {
    char digits[32];
    copy(digits, sizeof digits, opening->position);
    self->next = atol(digits);
  }
  if (self->has_tokens) {
    char name[4100];
    snprintf(name, sizeof name, "%s.acked", self->path);
    FILE *file = fopen(name, "r");
    long line;
    if (file != NULL) {
      while (fscanf(file, "%ld", &line) == 1)
        if (line >= 0 && line < MOST) self->done[line] = 1;
      fclose(file);
    }
  }
  return RXD_OK;
}

static void close_feed(void *instance) { free(instance); }

static size_t settle(feed *self, rxd_source *source, int64_t wait) {
  rxd_ack acks[16];
  size_t count = host->acks(source, acks, 16, wait);
  for (size_t i = 0; i < count; i++) note(self, acks[i].is_failed ? "failed" : "acked", acks[i].token - 1);
  return count;
}

// Sends a line; its number is the position before it. RXD_STOP: nothing more may be sent.
static int send_line(feed *self, rxd_source *source, char *line, size_t *in_hand) {
  long number = self->next++;
  uint64_t token = self->has_tokens ? (uint64_t)number + 1 : 0;
  if (self->has_tokens && number < MOST && self->done[number]) return RXD_OK;
  char *end;
  long value = strtol(line, &end, 10);
  if (end == line || (*end != '\n' && *end != ' ')) {
    line[strcspn(line, "\n")] = 0;
    host->reject_input(source, (rxd_text){line, strlen(line)}, RXD_TEXT_OF("not a number"), token);
  } else {
    rxd_value event = host->make_int(value);
    if (*end == ' ') {
      rxd_text name = RXD_TEXT_OF("text");
      line[strcspn(line, "\n")] = 0;
      rxd_value text = host->make_text(host->source_scope(source), (rxd_text){line, strlen(line)});
      event = host->make_object(host->source_scope(source), &name, &text, 1);
    }
    host->add(source, &event, token);
  }
  if (token > 0) ++*in_hand;
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%ld", self->next);
  if (!self->has_tokens) host->position(source, (rxd_text){digits, (size_t)length});
  return host->flush(source);
}

static int run(void *instance, rxd_scope *scope, rxd_source *source) {
  feed *self = instance;
  FILE *file = fopen(self->path, "r");
  if (file == NULL) {
    host->fail(scope, RXD_TEXT_OF("there is no such file"), RXD_TEXT_OF("path"));
    return RXD_FAILED;
  }
  size_t in_hand = 0;
  char line[4096];
  for (long skipped = 0; skipped < self->next && fgets(line, sizeof line, file) != NULL; skipped++) {}
  int status = RXD_OK;
  while (!host->is_stopping(source)) {
    long start = ftell(file);
    if (fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL) {
      if (send_line(self, source, line, &in_hand) == RXD_STOP) break;
      continue;
    }
    if (self->fails) {
      host->fail(scope, RXD_TEXT_OF("the file has ended"), RXD_TEXT_OF("path"));
      fclose(file);
      return RXD_FAILED;
    }
    if (self->ends) break;
    clearerr(file);
    fseek(file, start, SEEK_SET);
    in_hand -= settle(self, source, 2000000);
  }
  fclose(file);
  while (in_hand > 0) {
    size_t count = settle(self, source, 100000000);
    in_hand -= count;
    if (count == 0 && host->is_stopping(source) == 2) break;
  }
  return status;
}

static const char spec[] =
  "{\"plugin\":\"feed\",\"version\":\"1\",\"summary\":\"Feeds records.\",\"components\":["
  "{\"kind\":\"source\",\"name\":\"feed\",\"summary\":\"Sends the lines of a file.\",\"recovery\":\"position\","
  "\"when\":[{\"parameter\":\"mode\",\"is\":\"sender\",\"recovery\":\"sender\"}],\"parameters\":["
  "{\"name\":\"path\",\"type\":\"text\",\"primary\":true,\"required\":true,\"help\":\"The file.\"},"
  "{\"name\":\"mode\",\"type\":\"choice\",\"default\":\"position\",\"choices\":[{\"name\":\"position\",\"help\":\"P.\"},"
  "{\"name\":\"sender\",\"help\":\"S.\"},{\"name\":\"once\",\"help\":\"O.\"},{\"name\":\"fail\",\"help\":\"F.\"}],\"help\":\"How it "
  "continues.\"}]}]}";

static const rxd_component components[] = {
  {.size = sizeof(rxd_component), .name = {"feed", 4}, .kind = {"source", 6}, .open = open_feed, .close = close_feed,
   .run = run},
};
static const rxd_plugin plugin = {
  .size = sizeof(rxd_plugin), .component_count = 1, .components = components, .component_size = sizeof(rxd_component),
  .spec = {spec, sizeof spec - 1}};

RXD_EXPORT int rxd_plugin_init(
  uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  (void)contract, (void)problem;
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
