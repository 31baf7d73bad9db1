// Declarations that the plugin's files share.
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
  bool is_file;               // a separate file, not bundled with this library
  const uint8_t *bytes;
  size_t count;
  rxd_text spec;              // content of the section rxd_spec
  wasmtime_module *compiled;  // NULL until needed
} module;

typedef struct {
  module *module;
  uint32_t index;  // index in the module's spec
  rxd_text name;
  bool is_row;
  uint32_t state_version;  // 0: without state
  uint32_t argument_count; // number of expressions and templates, at most 16
} operator_info;

enum { most_operators = 64 };
extern operator_info operators[most_operators];
extern int operator_count;

/// Finds the modules and merges their specs into one. False with `problem`.
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
/// Creates and opens an instance. NULL with `problem`. `state`: `bytes` is NULL if there is none.
machine *make_machine(const machine_settings *settings, rxd_scope *scope, rxd_text state, uint32_t version, buffer *problem);
void free_machine(machine *machine);

typedef enum {
  run_good,
  run_failed,   // the module called rxd_fail
  run_dead,     // a trap: the machine is unusable
} run_outcome;

run_outcome run_row(machine *, rxd_scope *, rxd_value *event, const rxd_value *arguments, bool *drops, buffer *problem);
/// Processes the inputs from `first` on; the module's output goes to `output` only if all succeed.
run_outcome run_process(machine *, rxd_scope *, const rxd_batch *, size_t first, size_t count, rxd_output *, buffer *problem);
run_outcome run_save(machine *, rxd_scope *, buffer *state, buffer *problem);
#endif
