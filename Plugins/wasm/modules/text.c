// Two operators: exampleWords (a row) and exampleDelta (a stream with state). An instance of the module is one step of a
// pipeline, so its variables are the state of that step.
#include "rxd_wasm.h"

RXD_WASM_SPEC("text.json");

static char field[200];
static uint32_t field_count;
static double last;
static int32_t has_last;
static char buffer[65536];

static void fail(const char *message) {
  uint32_t count = 0;
  while (message[count] != 0) count++;
  rxd_fail(message, count);
}

RXD_WASM_EXPORT(rxd_open) int32_t open(uint32_t component, rxd_value parameters) {
  (void)component;
  field_count = rxd_text(rxd_member(parameters, "field", 5), field, sizeof field);
  if (field_count == 0 || field_count > sizeof field) {
    fail("the name of the member must have 1 to 200 bytes");
    return RXD_FAILED;
  }
  if (rxd_state_version() == 1 && rxd_state((char *)&last, sizeof last) == sizeof last) has_last = 1;
  return RXD_OK;
}

RXD_WASM_EXPORT(rxd_row) rxd_value row(rxd_value event, rxd_value arguments) {
  (void)arguments;
  rxd_value value = rxd_member(event, field, field_count);
  if (rxd_kind(value) != RXD_TEXT) return fail("the member is not a text"), 0;
  uint32_t count = rxd_text(value, buffer, sizeof buffer), words = 0, is_inside = 0;
  if (count > sizeof buffer) return fail("the text has more than 65,536 bytes"), 0;
  for (uint32_t index = 0; index < count; index++) {
    uint32_t is_space = buffer[index] == ' ' || (buffer[index] >= 9 && buffer[index] <= 13);
    words += !is_space && !is_inside;
    is_inside = !is_space;
  }
  return rxd_with_member(event, "words", 5, rxd_make_int(words));
}

RXD_WASM_EXPORT(rxd_process) int32_t process(uint32_t count) {
  for (uint32_t index = 0; index < count; index++) {
    if (rxd_input_kind(index) != RXD_EVENT) continue;
    rxd_value event = rxd_input_event(index), value = rxd_member(event, field, field_count);
    int32_t kind = rxd_kind(value);
    if (kind != RXD_INT && kind != RXD_UINT && kind != RXD_DOUBLE) {
      static const char message[] = "the member is not a number";
      rxd_reject(index, message, sizeof message - 1);
      continue;
    }
    double number = rxd_number(value);
    if (has_last) event = rxd_with_member(event, "delta", 5, rxd_make_double(number - last));
    last = number;
    has_last = 1;
    rxd_send(index, event);
  }
  return RXD_OK;
}

RXD_WASM_EXPORT(rxd_save) int32_t save(void) {
  rxd_keep((const char *)&last, has_last ? sizeof last : 0);
  return RXD_OK;
}
