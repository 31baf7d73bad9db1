// The used part of wasmtime's C interface, declared here so that the build needs no headers. Relies only on what is the
// same in all versions: an export has 8 bytes of kind and then the item, whose layout does not matter.
#ifndef RXD_WASMTIME_H
#define RXD_WASMTIME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wasm_engine wasm_engine;
typedef struct wasm_config wasm_config;
typedef struct wasm_trap wasm_trap;
typedef struct wasm_functype wasm_functype;
typedef struct wasm_valtype wasm_valtype;
typedef struct wasmtime_error wasmtime_error;
typedef struct wasmtime_module wasmtime_module;
typedef struct wasmtime_store wasmtime_store;
typedef struct wasmtime_context wasmtime_context;
typedef struct wasmtime_linker wasmtime_linker;
typedef struct wasmtime_caller wasmtime_caller;
typedef struct { size_t size; char *data; } wasm_bytes;
typedef struct { size_t size; wasm_valtype **data; } wasm_valtypes;
typedef union { int32_t i32; int64_t i64; float f32; double f64; uint8_t v128[16]; } wasm_raw;
typedef struct { uint64_t room[8]; } wasmtime_instance;
typedef struct { uint64_t kind; uint64_t item[8]; } wasmtime_extern;  // the kind is the first byte: 0 function, 3 memory
typedef wasm_trap *wasmtime_callback(void *environment, wasmtime_caller *, wasm_raw *, size_t count);

#define WASMTIME_FUNCTIONS(X)                                                                                   \
  X(wasm_config *, wasm_config_new, (void))                                                                     \
  X(wasm_engine *, wasm_engine_new_with_config, (wasm_config *))                                                \
  X(void, wasmtime_config_epoch_interruption_set, (wasm_config *, bool))                                        \
  X(void, wasmtime_config_max_wasm_stack_set, (wasm_config *, size_t))                                          \
  X(void, wasmtime_config_signals_based_traps_set, (wasm_config *, bool))                                       \
  X(void, wasmtime_engine_increment_epoch, (wasm_engine *))                                                     \
  X(wasmtime_error *, wasmtime_module_new, (wasm_engine *, const uint8_t *, size_t, wasmtime_module **))        \
  X(wasmtime_linker *, wasmtime_linker_new, (wasm_engine *))                                                    \
  X(wasmtime_error *, wasmtime_linker_define_func_unchecked,                                                    \
    (wasmtime_linker *, const char *, size_t, const char *, size_t, const wasm_functype *, wasmtime_callback *, \
     void *, void (*)(void *)))                                                                                 \
  X(wasmtime_error *, wasmtime_linker_instantiate,                                                              \
    (const wasmtime_linker *, wasmtime_context *, const wasmtime_module *, wasmtime_instance *, wasm_trap **))  \
  X(wasmtime_store *, wasmtime_store_new, (wasm_engine *, void *, void (*)(void *)))                            \
  X(void, wasmtime_store_delete, (wasmtime_store *))                                                            \
  X(wasmtime_context *, wasmtime_store_context, (wasmtime_store *))                                             \
  X(void, wasmtime_store_limiter, (wasmtime_store *, int64_t, int64_t, int64_t, int64_t, int64_t))              \
  X(void, wasmtime_context_set_epoch_deadline, (wasmtime_context *, uint64_t))                                  \
  X(void *, wasmtime_context_get_data, (const wasmtime_context *))                                              \
  X(wasmtime_context *, wasmtime_caller_context, (wasmtime_caller *))                                           \
  X(bool, wasmtime_instance_export_get,                                                                         \
    (wasmtime_context *, const wasmtime_instance *, const char *, size_t, wasmtime_extern *))                   \
  X(wasmtime_error *, wasmtime_func_call_unchecked,                                                             \
    (wasmtime_context *, const void *, wasm_raw *, size_t, wasm_trap **))                                       \
  X(wasm_functype *, wasmtime_func_type, (const wasmtime_context *, const void *))                              \
  X(uint8_t *, wasmtime_memory_data, (const wasmtime_context *, const void *))                                  \
  X(size_t, wasmtime_memory_data_size, (const wasmtime_context *, const void *))                                \
  X(wasm_trap *, wasmtime_trap_new, (const char *, size_t))                                                     \
  X(void, wasm_trap_message, (const wasm_trap *, wasm_bytes *))                                                 \
  X(bool, wasmtime_trap_code, (const wasm_trap *, uint8_t *))                                                   \
  X(void, wasm_trap_delete, (wasm_trap *))                                                                      \
  X(void, wasmtime_error_message, (const wasmtime_error *, wasm_bytes *))                                       \
  X(void, wasmtime_error_delete, (wasmtime_error *))                                                            \
  X(void, wasm_byte_vec_delete, (wasm_bytes *))                                                                 \
  X(wasm_valtype *, wasm_valtype_new, (uint8_t))                                                                \
  X(uint8_t, wasm_valtype_kind, (const wasm_valtype *))                                                         \
  X(wasm_functype *, wasm_functype_new, (wasm_valtypes *, wasm_valtypes *))                                     \
  X(const wasm_valtypes *, wasm_functype_params, (const wasm_functype *))                                       \
  X(const wasm_valtypes *, wasm_functype_results, (const wasm_functype *))                                      \
  X(void, wasm_functype_delete, (wasm_functype *))                                                              \
  X(void, wasm_valtype_vec_new_uninitialized, (wasm_valtypes *, size_t))

typedef struct {
#define X(result, name, arguments) result(*name) arguments;
  WASMTIME_FUNCTIONS(X)
#undef X
} wasmtime_library;
#endif
