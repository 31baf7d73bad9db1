// Two operators that pass one event in a hundred, as `filter: event.n % 100 == 0` does: a row operator, and one with batches.
#include "rxd_plugin.h"

RXD_PLUGIN_MAGIC;

static const rxd_host *host;

static int open_instance(const rxd_opening *opening, void **instance) {
  (void)opening;
  *instance = NULL;
  return RXD_OK;
}

static int passes(rxd_scope *scope, const rxd_value *event) {
  rxd_value number = host->member(scope, event, RXD_TEXT_OF("n"));
  return host->integer(&number) % 100 == 0;
}

static int row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)instance;
  (void)arguments;
  return passes(scope, event) ? RXD_OK : RXD_DROP;
}

static int process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  (void)instance;
  for (uint32_t i = 0; i < batch->count; i++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + i * batch->input_size);
    if (input->kind == RXD_EVENT && passes(scope, &input->event)) host->send(output, i, &input->event);
  }
  return RXD_OK;
}

static const rxd_component components[] = {
  {.size = sizeof(rxd_component), .name = {"benchRow", 8}, .kind = {"operator", 8}, .open = open_instance, .row = row},
  {.size = sizeof(rxd_component), .name = {"benchBatch", 10}, .kind = {"operator", 8}, .open = open_instance,
   .process = process},
};
static const char spec[] =
  "{\"plugin\":\"bench\",\"version\":\"1\",\"summary\":\"For measuring.\",\"components\":["
  "{\"kind\":\"operator\",\"form\":\"row\",\"name\":\"benchRow\",\"summary\":\"Passes one event in a hundred.\"},"
  "{\"kind\":\"operator\",\"name\":\"benchBatch\",\"summary\":\"Passes one event in a hundred.\"}]}";
static const rxd_plugin plugin = {
  .size = sizeof(rxd_plugin), .component_count = 2, .components = components,
  .component_size = sizeof(rxd_component), .spec = {spec, sizeof spec - 1}};

RXD_EXPORT int rxd_plugin_init(
  uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  (void)contract;
  (void)problem;
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
