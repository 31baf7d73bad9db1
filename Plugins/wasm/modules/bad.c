// Acts as the event requests: {"do": "trap" "loop" "deep" "grow" "wild" "handle" "fail" "count" "json"}.
#include "rxd_wasm.h"

RXD_WASM_SPEC("bad.json");

static int32_t counter;
static volatile uint32_t sink;

RXD_WASM_EXPORT(rxd_open) int32_t open(uint32_t component, rxd_value parameters) {
  (void)component, (void)parameters;
  if (rxd_state_version() == 1) rxd_state((char *)&counter, sizeof counter);
  return RXD_OK;
}

static uint32_t deep(uint32_t n) {
  volatile char frame[1000];
  frame[n % 1000] = 1;
  return n == 0 ? 0 : deep(n - 1) + frame[(n + 1) % 1000];
}

static rxd_value act(rxd_value event) {
  char what[16] = {0};
  rxd_text(rxd_member(event, "do", 2), what, sizeof what - 1);
  counter++;
  if (what[0] == 't') __builtin_trap();
  if (what[0] == 'l') for (;;) sink++;
  if (what[0] == 'd') sink = deep(1u << 30);
  if (what[0] == 'g') {
    uint32_t pages = 0;
    while (__builtin_wasm_memory_grow(0, 16) != (__SIZE_TYPE__)-1 && pages < 65536) pages += 16;
    return rxd_with_member(event, "pages", 5, rxd_make_int(pages));
  }
  if (what[0] == 'w') return rxd_make_text((const char *)0xFFFFFFF0u, 100);
  if (what[0] == 'h') return 4000000000u;
  if (what[0] == 'f') return rxd_fail("as asked", 8), 0;
  if (what[0] == 'j') return rxd_parse_json("{\"a\": [1, 2.50]}", 16);
  return rxd_with_member(event, "count", 5, rxd_make_int(counter));
}

RXD_WASM_EXPORT(rxd_row) rxd_value row(rxd_value event, rxd_value arguments) {
  (void)arguments;
  return act(event);
}

RXD_WASM_EXPORT(rxd_process) int32_t process(uint32_t count) {
  for (uint32_t index = 0; index < count; index++) {
    int32_t kind = rxd_input_kind(index);
    if (kind == RXD_EVENT) rxd_send(index, act(rxd_input_event(index)));
    if (kind == RXD_EVENT) rxd_timer("later", 5, 5000000);
    if (kind == RXD_TIMER) rxd_send(index, rxd_make_int(counter));
  }
  return RXD_OK;
}

RXD_WASM_EXPORT(rxd_save) int32_t save(void) {
  rxd_keep((const char *)&counter, sizeof counter);
  return RXD_OK;
}
