// A plugin that breaks the contract as the macros select.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rxd_plugin.h"

#ifndef MAGIC_NAME
#define MAGIC_NAME 'r', 'x', 'd', 'p', 'l', 'u', 'g', 0
#endif
#ifndef MAGIC_CONTRACT
#define MAGIC_CONTRACT RXD_CONTRACT
#endif
#ifndef MAGIC_POINTER
#define MAGIC_POINTER sizeof(void *)
#endif
#ifndef MAGIC_FORMAT
#define MAGIC_FORMAT 1
#endif
#ifndef PLUGIN_SIZE
#define PLUGIN_SIZE sizeof(rxd_plugin)
#endif
#ifndef STEP
#define STEP 1
#endif
#if defined(ROW) && !defined(SPEC)
#define SPEC                                                                                                         \
  "{\"plugin\":\"probe\",\"version\":\"1\",\"summary\":\"Probes.\",\"components\":["                                 \
  "{\"kind\":\"operator\",\"name\":\"probe\",\"summary\":\"Does as its parameter says.\",\"form\":\"row\","           \
  "\"parameters\":[{\"name\":\"mode\",\"type\":\"text\",\"primary\":true,\"default\":\"pass\",\"help\":\"What.\"}]}]}"
#endif
#ifndef SPEC
#define SPEC                                                                                                         \
  "{\"plugin\":\"probe\",\"version\":\"1\",\"summary\":\"Probes.\",\"components\":["                                 \
  "{\"kind\":\"operator\",\"name\":\"probe\",\"summary\":\"Does as its parameter says.\",\"state\":{\"version\":1}," \
  "\"parameters\":[{\"name\":\"mode\",\"type\":\"text\",\"primary\":true,\"default\":\"pass\",\"help\":\"What.\"},"   \
  "{\"name\":\"key\",\"type\":\"expression\",\"help\":\"A key.\"},"                                                    \
  "{\"name\":\"label\",\"type\":\"template\",\"help\":\"A label.\"}]},"                                                \
  "{\"kind\":\"sink\",\"name\":\"probeSink\",\"summary\":\"Does as its parameter says.\",\"confirmation\":\"disk\","  \
  "\"parameters\":[{\"name\":\"mode\",\"type\":\"text\",\"primary\":true,\"default\":\"pass\",\"help\":\"What.\"}]}]}"
#endif

#ifndef NO_MAGIC
RXD_EXPORT const rxd_magic rxd_plugin_magic = {
  {MAGIC_NAME}, sizeof(rxd_magic), MAGIC_CONTRACT, MAGIC_POINTER, __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
  MAGIC_FORMAT, 0};
#endif

static const rxd_host *host;

typedef struct probe {
  char mode[256];
  int64_t seen;
  int failures;
  rxd_instance *instance;
} probe;

static int open_probe(const rxd_opening *opening, void **instance) {
  probe *self = calloc(1, sizeof *self);
  *instance = self;
  self->instance = opening->instance;
  rxd_value mode = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("mode"));
  rxd_text text = host->text(opening->scope, &mode);
  memcpy(self->mode, text.bytes, text.count < 255 ? text.count : 255);
  if (strcmp(self->mode, "refuse") == 0) {
    host->fail(opening->scope, RXD_TEXT_OF("it does not like the mode"), RXD_TEXT_OF("mode"));
    return RXD_FAILED;
  }
  if (opening->state.bytes) memcpy(&self->seen, opening->state.bytes, sizeof self->seen);
  return RXD_OK;
}

// "hang:PATH": hangs until the pipe at PATH is opened for writing.
static void hang(const probe *self) {
  if (strncmp(self->mode, "hang:", 5) == 0) close(open(self->mode + 5, O_RDONLY | O_CLOEXEC));
}

static void close_probe(void *instance) { free(instance); }

static int process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  probe *self = instance;
  hang(self);
  for (uint32_t i = 0; i < batch->count; i++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + i * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    self->seen++;
    host->count_up(self->instance, RXD_TEXT_OF("seen"), 1);
    if (strcmp(self->mode, "fail") == 0) {
      host->fail(scope, RXD_TEXT_OF("it failed as it was told"), (rxd_text){0});
      return RXD_FAILED;
    }
    if (strcmp(self->mode, "silent") == 0) return RXD_FAILED;
    if (strcmp(self->mode, "talk") == 0)
      for (int line = 0; line < 1000; line++) host->log(self->instance, RXD_TEXT_OF("info"), RXD_TEXT_OF("spoken"));
    if (strcmp(self->mode, "reject") == 0) {
      host->reject(output, i, RXD_TEXT_OF("not \xff this one"));
      continue;
    }
    if (strcmp(self->mode, "lies") == 0) {
      rxd_value absent = host->member(scope, &input->event, RXD_TEXT_OF("nothing"));
      host->send(output, i, &absent);
      host->send(output, 1000000, &input->event);
      host->reject(output, 1000000, RXD_TEXT_OF("no such input"));
      host->timer(output, RXD_TEXT_OF("never"), -5);
      continue;
    }
    if (strcmp(self->mode, "arguments") == 0) {
      rxd_text names[2] = {RXD_TEXT_OF("key"), RXD_TEXT_OF("label")};
      rxd_value made = host->make_object(scope, names, input->arguments, 2);
      host->send(output, i, &made);
      continue;
    }
    if (strcmp(self->mode, "gauge") == 0) {
      host->gauge(self->instance, RXD_TEXT_OF("depth"), (rxd_text){0}, (double)self->seen);
      host->gauge(self->instance, RXD_TEXT_OF("of"), RXD_TEXT_OF("a"), 1.5);
      if (self->seen == 2) host->gauge(self->instance, RXD_TEXT_OF("of"), RXD_TEXT_OF("b"), -3);
    }
    if (strcmp(self->mode, "count") == 0) {
      rxd_value seen = host->make_int(self->seen * STEP);
      host->send(output, i, &seen);
      continue;
    }
    if (strcmp(self->mode, "kept") == 0) {
      rxd_text bytes = host->encode(scope, &input->event);
      rxd_value again;
      if (host->decode(scope, bytes, &again) != RXD_OK) return RXD_FAILED;
      host->send(output, i, &again);
      if (host->decode(scope, RXD_TEXT_OF("nonsense"), &again) == RXD_OK) return RXD_FAILED;
      continue;
    }
    host->send(output, i, &input->event);
  }
  return RXD_OK;
}

#ifdef ROW
static int row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)scope, (void)event, (void)arguments;
  host->count_up(((probe *)instance)->instance, RXD_TEXT_OF("rows"), 1);
  if (strcmp(((probe *)instance)->mode, "finish") == 0) return RXD_FINISH;
  return RXD_OK;
}
#endif

static int save(void *instance, rxd_scope *scope, rxd_bytes *state) {
  (void)scope;
  probe *self = instance;
  state->bytes = &self->seen;
  state->count = sizeof self->seen;
  return RXD_OK;
}

#ifndef NO_WRITE
static int write_probe(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  probe *self = instance;
  hang(self);
  if (strcmp(self->mode, "later") == 0 && self->failures++ < 3) {
    host->delivered(verdicts, 1);
    host->fail(scope, RXD_TEXT_OF("not now"), (rxd_text){0});
    return RXD_RETRY;
  }
  // The second half of each batch first, one by one; the rest is wanted again.
  if (strcmp(self->mode, "backwards") == 0 && batch->count > 1 && self->failures++ < 3) {
    for (uint32_t i = batch->count; i-- > batch->count / 2;) host->delivered_at(verdicts, i);
    host->delivered_at(verdicts, 1000000);
    host->fail(scope, RXD_TEXT_OF("not now"), (rxd_text){0});
    return RXD_RETRY;
  }
  if (strcmp(self->mode, "never") == 0) {
    host->fail(scope, RXD_TEXT_OF("not now"), (rxd_text){0});
    return RXD_RETRY;
  }
  if (strcmp(self->mode, "fail") == 0) {
    host->fail(scope, RXD_TEXT_OF("it cannot"), RXD_TEXT_OF("mode"));
    return RXD_FAILED;
  }
  if (strcmp(self->mode, "refuse2") == 0) {
    for (uint32_t i = 0; i < batch->count; i++)
      if (host->integer(&batch->inputs[i].event) == 2) host->refuse(verdicts, i, RXD_TEXT_OF("not a 2"));
    host->refuse(verdicts, 1000000, RXD_TEXT_OF("no such event"));
    host->delivered(verdicts, 1000000);
  }
  return RXD_OK;
}
#endif

static const rxd_component components[] = {
  {.size = sizeof(rxd_component), .name = {"probe", 5}, .kind = {"operator", 8}, .open = open_probe, .close = close_probe,
   .process = process, .save = save,
#ifdef ROW
   .row = row
#endif
  },
  {.size = sizeof(rxd_component), .name = {"probeSink", 9}, .kind = {"sink", 4}, .open = open_probe,
   .close = close_probe,
#ifndef NO_WRITE
   .write = write_probe
#endif
  },
};
static const char spec[] = SPEC;
static const rxd_plugin plugin = {
  .size = PLUGIN_SIZE, .component_count = 2, .components = components, .component_size = sizeof(rxd_component),
  .spec = {spec, sizeof spec - 1}};

RXD_EXPORT int rxd_plugin_init(
  uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  (void)contract;
#ifdef REFUSES
  *problem = RXD_TEXT_OF("the moon is not full");
  return RXD_FAILED;
#endif
  (void)problem;
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
