// A plugin that keeps the contract, or breaks it as one macro selects.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <unistd.h>

#include "rxd_plugin.h"

#if defined(MAGIC_LIE)
RXD_EXPORT const rxd_magic rxd_plugin_magic = {
  {'r', 'x', 'd', 'p', 'l', 'u', 'g', 0}, sizeof(rxd_magic), 9, sizeof(void *), 1, 1, 0};
#elif !defined(NO_MAGIC)
RXD_PLUGIN_MAGIC;
#endif

#ifdef RACE
#define FORM ",\"form\":\"row\""
#else
#define FORM ",\"state\":{\"version\":1}"
#endif

static const char spec[] =
  "{\"plugin\":\"liar\",\"version\":\"1\",\"summary\":\"Counts.\",\"components\":[{\"kind\":\"operator\","
  "\"name\":\"tally\",\"summary\":\"Counts events.\"" FORM ",\"examples\":[{\"title\":\"plain\",\"yaml\":\"tally: {}\"}]}]}";

static const rxd_host *host;

#ifdef LEAK
// Visible, so that the compiler does not remove the allocation.
static void *volatile leaked;
#endif

typedef struct tally {
  int64_t seen;
  rxd_text kept;  // text of the last event
} tally;

#ifdef GLOBAL
static tally shared;
#endif

static int open_tally(const rxd_opening *opening, void **instance) {
#ifdef GLOBAL
  tally *self = &shared;
#else
  tally *self = calloc(1, sizeof *self);
#endif
#ifndef FORGET
  if (opening->state.bytes != NULL) memcpy(&self->seen, opening->state.bytes, sizeof self->seen);
#endif
  *instance = self;
  return RXD_OK;
}

static void close_tally(void *instance) {
#ifndef GLOBAL
  free(instance);
#else
  (void)instance;
#endif
}

#ifdef RACE
static int inside;
static int row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance, (void)scope, (void)arguments;
  // The number of concurrent calls decides. Lets other calls enter, if there are any.
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  int others = 0;
  for (int turn = 0; turn < 20000 && others == 0; turn++) {
    sched_yield();
    others = __atomic_load_n(&inside, __ATOMIC_SEQ_CST) > 1;
  }
  *event = host->make_int(others);
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  return RXD_OK;
}
#else
__attribute__((unused))
static int process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  tally *self = instance;
  for (uint32_t i = 0; i < batch->count; i++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + i * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    self->seen++;
#ifdef CRASH
    *(volatile int *)8 = 1;
#endif
#ifdef EXIT
    _exit(6);
#endif
#ifdef FAIL
    host->fail(scope, RXD_TEXT_OF("no way"), RXD_TEXT_OF(""));
    return RXD_FAILED;
#endif
#ifdef TIMER
    host->timer(output, RXD_TEXT_OF("t"), 5);
#endif
#ifdef LEAK
    leaked = memset(malloc(3000), 1, 3000);
#endif
    rxd_value sent = host->make_int(self->seen);
#ifdef KEEP
    // Reads the argument of the previous call in this one.
    if (self->kept.count > 0) sent = host->make_text(scope, self->kept);
    self->kept = host->json(scope, &input->event);
#endif
    host->send(output, i, &sent);
  }
  return RXD_OK;
}

static void release(rxd_bytes *bytes) { free(bytes->owner); }

static int save(void *instance, rxd_scope *scope, rxd_bytes *state) {
  (void)scope;
  tally *self = instance;
  int64_t *copy = malloc(sizeof *copy);
  *copy = self->seen;
  *state = (rxd_bytes){copy, sizeof *copy, release, copy};
  return RXD_OK;
}
#endif

static const rxd_component components[] = {{
  .size = sizeof(rxd_component),
  .name = {"tally", 5},
  .kind = {"operator", 8},
  .open = open_tally,
  .close = close_tally,
#ifdef RACE
  .row = row,
#else
#ifndef NO_FUNCTION
  .process = process,
#endif
  .save = save,
#endif
}};

static const rxd_plugin plugin = {
  .size = sizeof(rxd_plugin),
  .component_count = 1,
  .components = components,
  .component_size = sizeof(rxd_component),
  .spec = {spec, sizeof spec - 1},
};

RXD_EXPORT int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  (void)problem;
#ifdef CRASH_INIT
  *(volatile int *)8 = 1;
#endif
#ifdef CRASH_CONTRACT
  if (contract != 1) abort();
#endif
  (void)contract;
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
