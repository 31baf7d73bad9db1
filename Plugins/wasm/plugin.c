// The entry point that rxd loads: offers the modules' operators as components.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "wasm.h"

RXD_PLUGIN_MAGIC;

const rxd_host *host;

/// An operator in a pipeline. A row operator is called on several threads at once, each with its own machine.
typedef struct {
  machine_settings settings;
  pthread_mutex_t lock;
  machine **idle;  // for a row operator
  size_t idle_count, idle_room;
  machine *machine;  // for a stream operator; NULL after a trap
  buffer saved;      // its state before the batch
  bool has_saved;
} step;

static void step_close(void *instance) {
  step *self = instance;
  for (size_t index = 0; index < self->idle_count; index++) free_machine(self->idle[index]);
  free(self->idle);
  free_machine(self->machine);
  free(self->saved.bytes);
  free((char *)self->settings.parameters.bytes);
  free(self);
}

static void put_idle(step *self, machine *machine) {
  pthread_mutex_lock(&self->lock);
  if (self->idle_count == self->idle_room) {
    self->idle_room = self->idle_room * 2 + 4;
    self->idle = realloc(self->idle, self->idle_room * sizeof *self->idle);
    if (self->idle == NULL) abort();
  }
  self->idle[self->idle_count++] = machine;
  pthread_mutex_unlock(&self->lock);
}

static int fail(rxd_scope *scope, buffer *problem, const char *at) {
  host->fail(scope, (rxd_text){problem->bytes == NULL ? "" : problem->bytes, problem->count}, text_of(at));
  free(problem->bytes);
  return RXD_FAILED;
}

static int64_t integer_parameter(const rxd_opening *opening, const char *name) {
  rxd_value value = host->member(opening->scope, &opening->parameters, text_of(name));
  return host->integer(&value);
}

static int step_open(const rxd_opening *opening, void **instance) {
  buffer problem = {0};
  const operator_info *info = NULL;
  for (int index = 0; index < operator_count; index++) {
    rxd_text name = operators[index].name;
    if (name.count == opening->component.count && memcmp(name.bytes, opening->component.bytes, name.count) == 0)
      info = &operators[index];
  }
  if (info == NULL) {
    append_text(&problem, "there is no such operator");
    return fail(opening->scope, &problem, "");
  }
  if (!prepare_module(info->module, &problem)) return fail(opening->scope, &problem, "");
  step *self = allocate(sizeof *self);
  pthread_mutex_init(&self->lock, NULL);
  rxd_text encoded = host->encode(opening->scope, &opening->parameters);
  char *parameters = allocate(encoded.count);
  memcpy(parameters, encoded.bytes, encoded.count);
  self->settings = (machine_settings){.info = info, .instance = opening->instance, .parameters = {parameters, encoded.count},
                                      .deadline = integer_parameter(opening, "deadline"),
                                      .memory = integer_parameter(opening, "memoryLimit")};
  machine *machine = make_machine(&self->settings, opening->scope, opening->state, opening->state_version, &problem);
  if (machine == NULL) {
    step_close(self);
    return fail(opening->scope, &problem, "");
  }
  if (info->is_row) put_idle(self, machine);
  else self->machine = machine;
  *instance = self;
  return RXD_OK;
}

static int step_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  step *self = instance;
  buffer problem = {0};
  pthread_mutex_lock(&self->lock);
  machine *machine = self->idle_count > 0 ? self->idle[--self->idle_count] : NULL;
  pthread_mutex_unlock(&self->lock);
  if (machine == NULL) machine = make_machine(&self->settings, scope, (rxd_text){NULL, 0}, 0, &problem);
  if (machine == NULL) return fail(scope, &problem, "");
  bool drops = false;
  run_outcome outcome = run_row(machine, scope, event, arguments, &drops, &problem);
  if (outcome == run_dead) free_machine(machine);
  else put_idle(self, machine);
  if (outcome != run_good) return fail(scope, &problem, "");
  return drops ? RXD_DROP : RXD_OK;
}

/// Saves the state in `saved`, if the operator has one.
static run_outcome save(step *self, rxd_scope *scope, buffer *problem) {
  if (self->settings.info->state_version == 0) return run_good;
  run_outcome outcome = run_save(self->machine, scope, &self->saved, problem);
  if (outcome == run_good) self->has_saved = true;
  return outcome;
}

/// Creates a new instance with the state in `saved`.
static bool restart(step *self, rxd_scope *scope, buffer *problem) {
  free_machine(self->machine);
  rxd_text state = {self->has_saved ? self->saved.bytes : NULL, self->saved.count};
  self->machine = make_machine(&self->settings, scope, state, self->settings.info->state_version, problem);
  host->count_up(self->settings.instance, RXD_TEXT_OF("restarts"), 1);
  return self->machine != NULL;
}

static int step_process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  step *self = instance;
  buffer problem = {0};
  if (self->machine == NULL && !restart(self, scope, &problem)) return fail(scope, &problem, "");
  run_outcome outcome = save(self, scope, &problem);
  if (outcome == run_good) outcome = run_process(self->machine, scope, batch, 0, batch->count, output, &problem);
  if (outcome == run_good) return RXD_OK;
  if (outcome == run_failed) return fail(scope, &problem, "");
  // Repeats the batch one by one from the saved state, so that only the offending input is rejected.
  problem.count = 0;
  if (!restart(self, scope, &problem)) return fail(scope, &problem, "");
  for (size_t index = 0; index < batch->count; index++) {
    problem.count = 0;
    outcome = run_process(self->machine, scope, batch, index, 1, output, &problem);
    if (outcome == run_failed) return fail(scope, &problem, "");
    if (outcome == run_good) outcome = save(self, scope, &problem);
    if (outcome == run_good) continue;
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + index * batch->input_size);
    rxd_text text = {problem.bytes, problem.count};
    if (input->kind == RXD_EVENT) host->reject(output, index, text);
    else host->log(self->settings.instance, RXD_TEXT_OF("error"), text);
    problem.count = 0;
    if (!restart(self, scope, &problem)) return fail(scope, &problem, "");
  }
  free(problem.bytes);
  return RXD_OK;
}

static void release(rxd_bytes *bytes) { (void)bytes; }

static int step_save(void *instance, rxd_scope *scope, rxd_bytes *state) {
  step *self = instance;
  buffer problem = {0};
  if (self->machine == NULL && !restart(self, scope, &problem)) return fail(scope, &problem, "");
  if (save(self, scope, &problem) != run_good) return fail(scope, &problem, "");
  // rxd copies the state before the next call.
  *state = (rxd_bytes){self->saved.bytes == NULL ? "" : self->saved.bytes, self->saved.count, release, NULL};
  return RXD_OK;
}

static rxd_component components[most_operators];
static rxd_plugin plugin;
static buffer spec, problem;

int rxd_plugin_init(uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *why) {
  if (contract < RXD_CONTRACT || offered->size < RXD_HOST_SIZE_1_0) {
    *why = RXD_TEXT_OF("this plugin needs a newer rxd");
    return RXD_FAILED;
  }
  host = offered;
  if (!find_modules(&spec, &problem)) {
    *why = (rxd_text){problem.bytes, problem.count};
    return RXD_FAILED;
  }
  for (int index = 0; index < operator_count; index++) {
    const operator_info *info = &operators[index];
    components[index] = (rxd_component){
        .size = sizeof(rxd_component), .name = info->name, .kind = {"operator", 8}, .open = step_open, .close = step_close,
        .row = info->is_row ? step_row : NULL, .process = info->is_row ? NULL : step_process,
        .save = info->state_version > 0 ? step_save : NULL};
  }
  plugin = (rxd_plugin){.size = sizeof(rxd_plugin), .component_count = (uint32_t)operator_count, .components = components,
                        .component_size = sizeof(rxd_component), .spec = {spec.bytes, spec.count}};
  *result = &plugin;
  return RXD_OK;
}
