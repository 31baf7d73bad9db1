/* rxd_wasm.h: the functions that a WebAssembly module imports from rxd and exports to it. Version 1.
 *
 * A module offers operators. It has a custom section `rxd_spec` with the spec of rxd plugins (RXD_WASM_SPEC below), and imports
 * only functions of the module "rxd", those of this header.
 *
 * A value is a handle: a number that is valid until the exported function returns. 0 is absent. Texts are UTF-8 bytes with a
 * length. Functions that return bytes write at most `room` of them to `to` and return the full length; if it is larger than
 * `room`, call again with more room.
 *
 * Exported functions return 0, or 1 after `rxd_fail`. A trap, a missed deadline or exhausted memory ends the instance: the event
 * that caused it is rejected, and a new instance continues with the state that was saved before it. */
#ifndef RXD_WASM_H
#define RXD_WASM_H
#include <stdint.h>

#define RXD_WASM_IMPORT(name) __attribute__((import_module("rxd"), import_name(#name))) extern
#define RXD_WASM_EXPORT(name) __attribute__((export_name(#name), used))

/* Embeds a file in the module as its spec: RXD_WASM_SPEC("words.json") at file scope. */
#define RXD_WASM_SPEC(file) __asm__(".section .custom_section.rxd_spec,\"\",@\n.incbin \"" file "\"\n.text\n")

typedef uint32_t rxd_value;

enum { RXD_ABSENT, RXD_NULL, RXD_BOOL, RXD_INT, RXD_UINT, RXD_DOUBLE, RXD_TEXT, RXD_BYTES, RXD_LIST, RXD_OBJECT,
       RXD_TIMESTAMP, RXD_DURATION, RXD_OTHER };
enum { RXD_EVENT, RXD_TIMER, RXD_COMPLETE };
enum { RXD_OK = 0, RXD_FAILED = 1 };

/* Reading values. */
RXD_WASM_IMPORT(kind) int32_t rxd_kind(rxd_value value);
RXD_WASM_IMPORT(boolean) int32_t rxd_boolean(rxd_value value);
RXD_WASM_IMPORT(integer) int64_t rxd_integer(rxd_value value); /* also of timestamps and durations, in nanoseconds */
RXD_WASM_IMPORT(number) double rxd_number(rxd_value value);
RXD_WASM_IMPORT(text) uint32_t rxd_text(rxd_value value, char *to, uint32_t room);
RXD_WASM_IMPORT(json) uint32_t rxd_json(rxd_value value, char *to, uint32_t room);
RXD_WASM_IMPORT(encode) uint32_t rxd_encode(rxd_value value, char *to, uint32_t room); /* for states */
RXD_WASM_IMPORT(count) uint32_t rxd_count(rxd_value value);
RXD_WASM_IMPORT(member) rxd_value rxd_member(rxd_value object, const char *name, uint32_t count);
RXD_WASM_IMPORT(element) rxd_value rxd_element(rxd_value list, uint32_t index);
RXD_WASM_IMPORT(entry_value) rxd_value rxd_entry_value(rxd_value object, uint32_t index);
RXD_WASM_IMPORT(entry_name) uint32_t rxd_entry_name(rxd_value object, uint32_t index, char *to, uint32_t room);

/* Making values. */
RXD_WASM_IMPORT(make_null) rxd_value rxd_make_null(void);
RXD_WASM_IMPORT(make_bool) rxd_value rxd_make_bool(int32_t value);
RXD_WASM_IMPORT(make_int) rxd_value rxd_make_int(int64_t value);
RXD_WASM_IMPORT(make_double) rxd_value rxd_make_double(double value);
RXD_WASM_IMPORT(make_timestamp) rxd_value rxd_make_timestamp(int64_t nanoseconds);
RXD_WASM_IMPORT(make_duration) rxd_value rxd_make_duration(int64_t nanoseconds);
RXD_WASM_IMPORT(make_text) rxd_value rxd_make_text(const char *bytes, uint32_t count);
RXD_WASM_IMPORT(make_bytes) rxd_value rxd_make_bytes(const char *bytes, uint32_t count);
RXD_WASM_IMPORT(make_list) rxd_value rxd_make_list(const rxd_value *elements, uint32_t count);
RXD_WASM_IMPORT(make_object) rxd_value rxd_make_object(void); /* an empty object */
RXD_WASM_IMPORT(with_member) rxd_value rxd_with_member(rxd_value object, const char *name, uint32_t count, rxd_value value);
RXD_WASM_IMPORT(parse_json) rxd_value rxd_parse_json(const char *bytes, uint32_t count); /* 0: not JSON */
RXD_WASM_IMPORT(decode) rxd_value rxd_decode(const char *bytes, uint32_t count);

/* Gives the reason of a failed call: one sentence without a full stop. */
RXD_WASM_IMPORT(fail) void rxd_fail(const char *message, uint32_t count);
/* Level: 0 debug, 1 info, 2 warning, 3 error. */
RXD_WASM_IMPORT(log) void rxd_log(int32_t level, const char *message, uint32_t count);
RXD_WASM_IMPORT(count_up) void rxd_count_up(const char *name, uint32_t count, int64_t by);

/* During rxd_open: the state, and the version of the spec under which it was saved; 0: there is none. */
RXD_WASM_IMPORT(state) uint32_t rxd_state(char *to, uint32_t room);
RXD_WASM_IMPORT(state_version) uint32_t rxd_state_version(void);
/* During rxd_save. */
RXD_WASM_IMPORT(keep) void rxd_keep(const char *bytes, uint32_t count);

/* During rxd_process. */
RXD_WASM_IMPORT(input_kind) int32_t rxd_input_kind(uint32_t index);
RXD_WASM_IMPORT(input_event) rxd_value rxd_input_event(uint32_t index);
RXD_WASM_IMPORT(input_name) uint32_t rxd_input_name(uint32_t index, char *to, uint32_t room);
RXD_WASM_IMPORT(input_argument) rxd_value rxd_input_argument(uint32_t index, uint32_t argument);
RXD_WASM_IMPORT(time) int64_t rxd_time(int32_t is_monotonic); /* nanoseconds; virtual in tests */
RXD_WASM_IMPORT(send) void rxd_send(uint32_t index, rxd_value event);
RXD_WASM_IMPORT(reject) void rxd_reject(uint32_t index, const char *message, uint32_t count);
RXD_WASM_IMPORT(timer) void rxd_timer(const char *name, uint32_t count, int64_t nanoseconds); /* below 0: cancels the timer */

/* Functions that a module exports.
 *
 *   memory
 *   int32_t rxd_open(uint32_t component, rxd_value parameters)   component: its index in the spec, from 0
 *   int32_t rxd_process(uint32_t count)                          of a stream operator: inputs 0 to count - 1
 *   rxd_value rxd_row(rxd_value event, rxd_value arguments)      of a row operator: the event, or 0 to drop it; after
 *                                                                rxd_fail any value. `arguments` is a list.
 *   int32_t rxd_save(void)                                       of a component with state */
#endif
