// A source that names its events, with a gauge of what is left: `namer: N` sends the numbers below N. The last has no name.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rxd_plugin.h"

RXD_PLUGIN_MAGIC;

static const rxd_host *host;
static int64_t count;
static rxd_instance *instance_of_namer;

static int open_namer(const rxd_opening *opening, void **instance) {
  *instance = &count;
  instance_of_namer = opening->instance;
  rxd_value given = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("count"));
  count = host->integer(&given);
  return RXD_OK;
}

static void close_namer(void *instance) { (void)instance; }

static int run(void *instance, rxd_scope *scope, rxd_source *source) {
  (void)instance, (void)scope;
  for (int64_t number = 0; number < count; number++) {
    char name[32];
    int length = snprintf(name, sizeof name, "p%d/%d", (int)(number % 2), (int)number);
    rxd_value event = host->make_int(number);
    if (host->add(source, &event, 0) != RXD_OK) break;
    // Only the last call counts.
    host->name(source, RXD_TEXT_OF("wrong"));
    host->name(source, number + 1 == count ? (rxd_text){0} : (rxd_text){name, (size_t)length});
    host->gauge(instance_of_namer, RXD_TEXT_OF("lag"), number % 2 ? RXD_TEXT_OF("p1") : RXD_TEXT_OF("p0"), (double)(count - number));
    host->gauge(instance_of_namer, RXD_TEXT_OF("gone"), (rxd_text){0}, number == 0 ? 1 : NAN);
    host->gauge(instance_of_namer, RXD_TEXT_OF("share"), (rxd_text){0}, 0.5);
  }
  if (host->flush(source) != RXD_OK) return RXD_OK;
  // The values of an instance go with it, so it waits for its end.
  rxd_ack acks[1];
  while (!host->is_stopping(source)) host->acks(source, acks, 1, -1);
  return RXD_OK;
}

static const char spec[] =
  "{\"plugin\":\"namer\",\"version\":\"1\",\"summary\":\"Names events.\",\"components\":["
  "{\"kind\":\"source\",\"name\":\"namer\",\"summary\":\"Names its events.\",\"names\":true,\"output\":{\"type\":\"integer\"},"
  "\"parameters\":[{\"name\":\"count\",\"type\":\"integer\",\"primary\":true,\"required\":true,\"help\":\"How many.\"}]}]}";

static const rxd_component components[] = {
  {.size = sizeof(rxd_component), .name = {"namer", 5}, .kind = {"source", 6}, .open = open_namer, .close = close_namer,
   .run = run},
};
static const rxd_plugin plugin = {
  .size = sizeof(rxd_plugin), .component_count = 1, .components = components, .component_size = sizeof(rxd_component),
  .spec = {spec, sizeof spec - 1}};

RXD_EXPORT int rxd_plugin_init(
  uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
  (void)contract;
  if (offered->size < RXD_HOST_SIZE_1_3) {
    *problem = RXD_TEXT_OF("it needs version 1.3 of the contract");
    return RXD_FAILED;
  }
  host = offered;
  *result = &plugin;
  return RXD_OK;
}
