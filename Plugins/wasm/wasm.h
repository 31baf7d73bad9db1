// What the parts of the plugin share.
#ifndef RXD_WASM_PLUGIN_H
#define RXD_WASM_PLUGIN_H
#include <stdbool.h>

#include "rxd_plugin.h"
#include "wasmtime.h"

extern const rxd_host *host;

typedef struct {
  char *bytes;
  size_t count, room;
} buffer;
void append(buffer *buffer, const char *bytes, size_t count);
void append_text(buffer *buffer, const char *string);
void *allocate(size_t count);
rxd_text text_of(const char *string);

// ---- modules.c: finding modules and reading their specs ----

typedef struct {
  char *path;
  bool is_file;               // of its own, and not a part of this library
  const uint8_t *bytes;
  size_t count;
  rxd_text spec;              // of the section rxd_spec
  wasmtime_module *compiled;  // NULL until it is needed
} module;

typedef struct {
  module *module;
  uint32_t index;  // in the module's spec
  rxd_text name;
  bool is_row;
  uint32_t state_version;  // 0: without state
  uint32_t argument_count; // of expressions and templates, at most 16
} operator_info;

enum { most_operators = 64 };
extern operator_info operators[most_operators];
extern int operator_count;

/// Finds the modules and makes one spec of theirs. False with `problem`.
bool find_modules(buffer *spec, buffer *problem);

// ---- machine.c: an instance of a module ----

typedef struct machine machine;

typedef struct {
  const operator_info *info;
  rxd_instance *instance;
  rxd_text parameters;  // encoded
  int64_t deadline;     // nanoseconds
  int64_t memory;       // bytes
} machine_settings;

/// Loads wasmtime and compiles the module, both once. False with `problem`.
bool prepare_module(module *module, buffer *problem);
/// A new instance, opened. NULL with `problem`. `state`: `bytes` is NULL if there is none.
machine *make_machine(const machine_settings *settings, rxd_scope *scope, rxd_text state, uint32_t version, buffer *problem);
void free_machine(machine *machine);

typedef enum {
  run_good,
  run_failed,   // the module says so
  run_dead,     // a trap: the machine is of no use any more
} run_outcome;

run_outcome run_row(machine *, rxd_scope *, rxd_value *event, const rxd_value *arguments, bool *drops, buffer *problem);
/// Inputs from `first` on; what the module sends goes to `output` only if all goes well.
run_outcome run_process(machine *, rxd_scope *, const rxd_batch *, size_t first, size_t count, rxd_output *, buffer *problem);
run_outcome run_save(machine *, rxd_scope *, buffer *state, buffer *problem);
#endif
