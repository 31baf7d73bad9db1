// Instances of modules: wasmtime through dlopen, imported functions, deadlines and limits.
//
// A module can reach the memory of the process only through the functions below, each of which checks its handles and
// addresses. The output of a module is buffered until its call has succeeded.
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wasm.h"

enum { tick = 10000000, most_values = 4 << 20 };

static wasmtime_library wasmtime;
static wasm_engine *engine;
static wasmtime_linker *linker;
static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
  enum { action_send, action_reject, action_timer } kind;
  size_t index;
  rxd_value value;
  char *text;
  size_t count;
  int64_t nanoseconds;
} action;

struct machine {
  machine_settings settings;
  wasmtime_store *store;
  wasmtime_context *context;
  wasmtime_extern memory, open, row, process, save;
  bool has_row, has_process, has_save;
  // State of the current call.
  rxd_scope *scope;
  rxd_value *values;  // indexed by handle; 0 is absent
  size_t value_count, value_room;
  int64_t made;       // bytes of the values
  const rxd_batch *batch;
  size_t first, count;
  action *actions;
  size_t action_count, action_room;
  rxd_text state;
  uint32_t state_version;
  buffer kept;
  char *failure;      // reason given to rxd_fail
};

// ---- The deadline clock: ticks while a call runs ----

static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t clock_change = PTHREAD_COND_INITIALIZER;
static int running;

static void *run_clock(void *unused) {
  for (;;) {
    pthread_mutex_lock(&clock_lock);
    while (running == 0) pthread_cond_wait(&clock_change, &clock_lock);
    pthread_mutex_unlock(&clock_lock);
    nanosleep(&(struct timespec){0, tick}, NULL);
    wasmtime.wasmtime_engine_increment_epoch(engine);
  }
  return unused;
}

static bool start_clock(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int status = pthread_create(&thread, NULL, run_clock, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (status == 0) pthread_detach(thread);
  return status == 0;
}

static void count_running(int by) {
  pthread_mutex_lock(&clock_lock);
  running += by;
  if (running == by) pthread_cond_signal(&clock_change);
  pthread_mutex_unlock(&clock_lock);
}

// ---- Imported functions ----

static machine *machine_of(wasmtime_caller *caller) {
  return wasmtime.wasmtime_context_get_data(wasmtime.wasmtime_caller_context(caller));
}

static wasm_trap *trap(const char *message) { return wasmtime.wasmtime_trap_new(message, strlen(message)); }

static const rxd_value absent = {{0, 0}};

static const rxd_value *value_at(const machine *self, int32_t handle, wasm_trap **bad) {
  size_t index = (uint32_t)handle;
  if (index < self->value_count) return &self->values[index];
  *bad = trap("there is no such value");
  return &absent;
}

static wasm_trap *give(machine *self, wasm_raw *raw, rxd_value value) {
  if (host->kind(&value) == RXD_ABSENT) {
    raw[0].i32 = 0;
    return NULL;
  }
  if (self->value_count == self->value_room) {
    if (self->value_count >= most_values) return trap("a call uses too many values");
    self->value_room = self->value_room * 2 + 64;
    self->values = realloc(self->values, self->value_room * sizeof(rxd_value));
    if (self->values == NULL) abort();
  }
  self->values[self->value_count] = value;
  raw[0].i32 = (int32_t)self->value_count++;
  return NULL;
}

/// Memory for values outside of the module counts towards its limit, too.
static bool charge(machine *self, size_t count, wasm_trap **bad) {
  self->made += (int64_t)count + 64;
  if (self->made <= self->settings.memory) return true;
  *bad = trap("a call makes more values than memoryLimit allows");
  return false;
}

static char *range(machine *self, int32_t address, size_t count, wasm_trap **bad) {
  size_t size = wasmtime.wasmtime_memory_data_size(self->context, self->memory.item);
  size_t start = (uint32_t)address;
  if (start <= size && count <= size - start)
    return (char *)wasmtime.wasmtime_memory_data(self->context, self->memory.item) + start;
  *bad = trap("an address is outside of the memory");
  return NULL;
}

static rxd_text text_at(machine *self, int32_t address, int32_t count, wasm_trap **bad) {
  char *bytes = range(self, address, (uint32_t)count, bad);
  return bytes == NULL ? (rxd_text){"", 0} : (rxd_text){bytes, (uint32_t)count};
}

/// Copies a text to raw[to], at most raw[to + 1] bytes.
static void give_text(machine *self, wasm_raw *raw, int to, rxd_text text, wasm_trap **bad) {
  size_t count = text.count < (uint32_t)raw[to + 1].i32 ? text.count : (uint32_t)raw[to + 1].i32;
  char *bytes = range(self, raw[to].i32, count, bad);
  if (bytes != NULL && count > 0) memcpy(bytes, text.bytes, count);
  raw[0].i32 = (int32_t)text.count;
}

static const rxd_input *input_at(machine *self, int32_t index, wasm_trap **bad) {
  if (self->batch != NULL && (uint32_t)index < self->count)
    return (const rxd_input *)((const char *)self->batch->inputs +
                               (self->first + (uint32_t)index) * self->batch->input_size);
  *bad = trap("there is no such input");
  return NULL;
}

static void add_action(machine *self, action action, rxd_text text) {
  if (self->action_count == self->action_room) {
    self->action_room = self->action_room * 2 + 64;
    self->actions = realloc(self->actions, self->action_room * sizeof action);
    if (self->actions == NULL) abort();
  }
  action.text = allocate(text.count);
  if (text.count > 0) memcpy(action.text, text.bytes, text.count);
  action.count = text.count;
  self->actions[self->action_count++] = action;
}

#define IMPORT(name, ...)                                                                                     \
  static wasm_trap *import_##name(void *unused, wasmtime_caller *caller, wasm_raw *raw, size_t raw_count) {   \
    (void)unused, (void)raw_count;                                                                            \
    machine *self = machine_of(caller);                                                                       \
    wasm_trap *bad = NULL;                                                                                    \
    __VA_ARGS__ return bad;                                                                                   \
  }
#define VALUE(index) value_at(self, raw[index].i32, &bad)
#define TEXT(index) text_at(self, raw[index].i32, raw[(index) + 1].i32, &bad)
#define GIVE(value) \
  if (bad == NULL) return give(self, raw, value);

IMPORT(kind, raw[0].i32 = host->kind(VALUE(0));)
IMPORT(boolean, raw[0].i32 = host->boolean(VALUE(0));)
IMPORT(integer, raw[0].i64 = host->integer(VALUE(0));)
IMPORT(number, raw[0].f64 = host->number(VALUE(0));)
IMPORT(text, give_text(self, raw, 1, host->text(self->scope, VALUE(0)), &bad);)
IMPORT(json, give_text(self, raw, 1, host->json(self->scope, VALUE(0)), &bad);)
IMPORT(encode, give_text(self, raw, 1, host->encode(self->scope, VALUE(0)), &bad);)
IMPORT(count, raw[0].i32 = (int32_t)host->count(self->scope, VALUE(0));)
IMPORT(member, rxd_text name = TEXT(1); GIVE(host->member(self->scope, VALUE(0), name)))
IMPORT(element, GIVE(host->element(self->scope, VALUE(0), (uint32_t)raw[1].i32)))
IMPORT(entry_value, rxd_text name; GIVE(host->entry(self->scope, VALUE(0), (uint32_t)raw[1].i32, &name)))
IMPORT(entry_name, rxd_text name = RXD_TEXT_OF("");
       host->entry(self->scope, VALUE(0), (uint32_t)raw[1].i32, &name); give_text(self, raw, 2, name, &bad);)
IMPORT(make_null, GIVE(host->make_null()))
IMPORT(make_bool, GIVE(host->make_bool(raw[0].i32)))
IMPORT(make_int, GIVE(host->make_int(raw[0].i64)))
IMPORT(make_double, GIVE(host->make_double(raw[0].f64)))
IMPORT(make_timestamp, GIVE(host->make_timestamp(raw[0].i64)))
IMPORT(make_duration, GIVE(host->make_duration(raw[0].i64)))
IMPORT(make_text, rxd_text text = TEXT(0); if (charge(self, text.count, &bad)) GIVE(host->make_text(self->scope, text)))
IMPORT(make_bytes, rxd_text text = TEXT(0); if (charge(self, text.count, &bad)) GIVE(host->make_bytes(self->scope, text)))
IMPORT(make_object, if (charge(self, 0, &bad)) GIVE(host->make_object(self->scope, NULL, NULL, 0)))
IMPORT(parse_json, rxd_text text = TEXT(0); rxd_value value = absent; if (charge(self, text.count * 16, &bad)) {
  if (host->parse_json(self->scope, text, &value) != RXD_OK) value = absent;
  GIVE(value)
})
IMPORT(decode, rxd_text text = TEXT(0); rxd_value value = absent; if (charge(self, text.count * 16, &bad)) {
  if (host->decode(self->scope, text, &value) != RXD_OK) value = absent;
  GIVE(value)
})
IMPORT(make_list, size_t count = (uint32_t)raw[1].i32; char *handles = range(self, raw[0].i32, count * 4, &bad);
       if (bad == NULL && charge(self, count * sizeof(rxd_value), &bad)) {
         rxd_value *values = allocate(count * sizeof(rxd_value));
         for (size_t index = 0; index < count; index++) {
           int32_t handle;
           memcpy(&handle, handles + 4 * index, 4);
           values[index] = *value_at(self, handle, &bad);
           if (host->kind(&values[index]) == RXD_ABSENT) values[index] = host->make_null();
         }
         rxd_value list = bad == NULL ? host->make_list(self->scope, values, count) : absent;
         free(values);
         GIVE(list)
       })
IMPORT(with_member, rxd_text name = TEXT(1); const rxd_value *object = VALUE(0); rxd_value value = *VALUE(3);
       if (host->kind(&value) == RXD_ABSENT) value = host->make_null();
       if (bad == NULL && host->kind(object) != RXD_OBJECT) bad = trap("with_member needs an object");
       if (bad == NULL && charge(self, name.count + 16 * host->count(self->scope, object), &bad))
           GIVE(host->with_member(self->scope, object, name, &value)))
IMPORT(fail, rxd_text text = TEXT(0); if (bad == NULL) {
  free(self->failure);
  self->failure = strndup(text.bytes, text.count);
})
IMPORT(log, rxd_text text = TEXT(1); static const char *const levels[] = {"debug", "info", "warning", "error"};
       if (bad == NULL) host->log(self->settings.instance, text_of(levels[raw[0].i32 & 3]), text);)
IMPORT(count_up, rxd_text text = TEXT(0); if (bad == NULL) host->count_up(self->settings.instance, text, raw[2].i64);)
IMPORT(state, give_text(self, raw, 0, self->state.bytes == NULL ? (rxd_text){"", 0} : self->state, &bad);)
IMPORT(state_version, raw[0].i32 = self->state.bytes == NULL ? 0 : (int32_t)self->state_version;)
IMPORT(keep, rxd_text text = TEXT(0); self->kept.count = 0; append(&self->kept, text.bytes, text.count);)
IMPORT(input_kind, const rxd_input *input = input_at(self, raw[0].i32, &bad);
       if (input != NULL) raw[0].i32 = (int32_t)input->kind;)
IMPORT(input_event, const rxd_input *input = input_at(self, raw[0].i32, &bad);
       if (input != NULL) GIVE(input->kind == RXD_EVENT ? input->event : absent))
IMPORT(input_name, const rxd_input *input = input_at(self, raw[0].i32, &bad);
       if (input != NULL) give_text(self, raw, 1, input->kind == RXD_TIMER ? input->name : (rxd_text){"", 0}, &bad);)
IMPORT(input_argument, const rxd_input *input = input_at(self, raw[0].i32, &bad);
       if (input != NULL) GIVE((uint32_t)raw[1].i32 < input->argument_count ? input->arguments[(uint32_t)raw[1].i32] : absent))
IMPORT(time, raw[0].i64 = self->batch == NULL ? 0
                          : raw[0].i32 != 0   ? self->batch->monotonic_time
                                              : self->batch->wall_time;)
IMPORT(send, input_at(self, raw[0].i32, &bad); const rxd_value *value = VALUE(1);
       if (bad == NULL && host->kind(value) == RXD_ABSENT) bad = trap("an absent value cannot be sent");
       if (bad == NULL && charge(self, sizeof(action), &bad))
           add_action(self, (action){.kind = action_send, .index = self->first + (uint32_t)raw[0].i32, .value = *value},
                      RXD_TEXT_OF(""));)
IMPORT(reject, input_at(self, raw[0].i32, &bad); rxd_text text = TEXT(1);
       if (bad == NULL && charge(self, sizeof(action) + text.count, &bad))
           add_action(self, (action){.kind = action_reject, .index = self->first + (uint32_t)raw[0].i32}, text);)
IMPORT(timer, rxd_text text = TEXT(0); if (self->batch == NULL) bad = trap("a timer needs rxd_process");
       if (bad == NULL && charge(self, sizeof(action) + text.count, &bad))
           add_action(self, (action){.kind = action_timer, .nanoseconds = raw[2].i64}, text);)

typedef struct { const char *name, *signature; wasmtime_callback *function; } import;

// A signature: parameters, a colon, the result; i: 32 bits, l: 64 bits, d: double.
static const import imports[] = {
    {"kind", "i:i", import_kind}, {"boolean", "i:i", import_boolean}, {"integer", "i:l", import_integer},
    {"number", "i:d", import_number}, {"text", "iii:i", import_text}, {"json", "iii:i", import_json},
    {"encode", "iii:i", import_encode}, {"count", "i:i", import_count}, {"member", "iii:i", import_member},
    {"element", "ii:i", import_element}, {"entry_value", "ii:i", import_entry_value},
    {"entry_name", "iiii:i", import_entry_name}, {"make_null", ":i", import_make_null},
    {"make_bool", "i:i", import_make_bool}, {"make_int", "l:i", import_make_int}, {"make_double", "d:i", import_make_double},
    {"make_timestamp", "l:i", import_make_timestamp}, {"make_duration", "l:i", import_make_duration},
    {"make_text", "ii:i", import_make_text}, {"make_bytes", "ii:i", import_make_bytes},
    {"make_list", "ii:i", import_make_list}, {"make_object", ":i", import_make_object},
    {"with_member", "iiii:i", import_with_member}, {"parse_json", "ii:i", import_parse_json},
    {"decode", "ii:i", import_decode}, {"fail", "ii:", import_fail}, {"log", "iii:", import_log},
    {"count_up", "iil:", import_count_up}, {"state", "ii:i", import_state}, {"state_version", ":i", import_state_version},
    {"keep", "ii:", import_keep}, {"input_kind", "i:i", import_input_kind}, {"input_event", "i:i", import_input_event},
    {"input_name", "iii:i", import_input_name}, {"input_argument", "ii:i", import_input_argument}, {"time", "i:l", import_time},
    {"send", "ii:", import_send}, {"reject", "iii:", import_reject}, {"timer", "iil:", import_timer}};

// ---- The engine ----

/// Appends the error's message on one line, and frees the error.
static bool take_error(wasmtime_error *error, buffer *problem) {
  if (error == NULL) return true;
  wasm_bytes message;
  wasmtime.wasmtime_error_message(error, &message);
  for (size_t index = 0; index < message.size && message.data[index] != 0; index++)
    append(problem, message.data[index] == '\n' ? " " : &message.data[index], 1);
  wasmtime.wasm_byte_vec_delete(&message);
  wasmtime.wasmtime_error_delete(error);
  return false;
}

static uint8_t kind_of(char letter) { return letter == 'i' ? 0 : letter == 'l' ? 1 : 3; }

static wasm_functype *make_type(const char *signature) {
  size_t count = strcspn(signature, ":");
  wasm_valtypes parameters, results;
  wasmtime.wasm_valtype_vec_new_uninitialized(&parameters, count);
  for (size_t index = 0; index < count; index++) parameters.data[index] = wasmtime.wasm_valtype_new(kind_of(signature[index]));
  const char *result = signature + count + 1;
  wasmtime.wasm_valtype_vec_new_uninitialized(&results, *result != 0);
  if (*result != 0) results.data[0] = wasmtime.wasm_valtype_new(kind_of(*result));
  return wasmtime.wasm_functype_new(&parameters, &results);
}

static void *open_library(buffer *problem) {
  const char *given = getenv("RXD_WASMTIME");
  Dl_info info;
  if (given != NULL && *given != 0) {
    void *library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) append_text(problem, "RXD_WASMTIME: "), append_text(problem, dlerror());
    return library;
  }
  // Looks next to this library, then in the system's directories.
  if (dladdr((void *)open_library, &info) != 0 && info.dli_fname != NULL) {
    static const char *const names[] = {"libwasmtime.so", "_libwasmtime.so"};
    for (int index = 0; index < 2; index++) {
      char *own = strdup(info.dli_fname), *path = NULL;
      if (asprintf(&path, "%s/%s", dirname(own), names[index]) < 0) abort();
      void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      free(own);
      free(path);
      if (library != NULL) return library;
    }
  }
  void *library = dlopen("libwasmtime.so", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    append_text(problem, "there is no wasmtime library: put libwasmtime.so next to the plugin or name it in RXD_WASMTIME; "
                         "the Python package wasmtime has one");
  return library;
}

static bool start_engine(buffer *problem) {
  void *library = open_library(problem);
  if (library == NULL) return false;
#define X(result, name, arguments)                                                                \
  *(void **)&wasmtime.name = dlsym(library, #name);                                               \
  if (wasmtime.name == NULL) {                                                                    \
    append_text(problem, "this version of the wasmtime library does not fit: it has no " #name);  \
    return false;                                                                                 \
  }
  WASMTIME_FUNCTIONS(X)
#undef X
  wasm_config *config = wasmtime.wasm_config_new();
  wasmtime.wasmtime_config_epoch_interruption_set(config, true);
  // Compiled code checks bounds, so that rxd's process needs no signal handlers.
  wasmtime.wasmtime_config_signals_based_traps_set(config, false);
  wasmtime.wasmtime_config_max_wasm_stack_set(config, 256 << 10);
  wasm_engine *made = wasmtime.wasm_engine_new_with_config(config);
  if (made == NULL) {
    append_text(problem, "wasmtime cannot start");
    return false;
  }
  linker = wasmtime.wasmtime_linker_new(made);
  for (size_t index = 0; index < sizeof imports / sizeof imports[0]; index++) {
    wasm_functype *type = make_type(imports[index].signature);
    wasmtime_error *error = wasmtime.wasmtime_linker_define_func_unchecked(
        linker, "rxd", 3, imports[index].name, strlen(imports[index].name), type, imports[index].function, NULL, NULL);
    wasmtime.wasm_functype_delete(type);
    if (!take_error(error, problem)) return false;
  }
  engine = made;
  if (!start_clock()) {
    append_text(problem, "no thread can be started");
    return false;
  }
  return true;
}

bool prepare_module(module *module, buffer *problem) {
  pthread_mutex_lock(&engine_lock);
  bool is_good = engine != NULL || start_engine(problem);
  if (is_good && module->compiled == NULL)
    is_good = take_error(wasmtime.wasmtime_module_new(engine, module->bytes, module->count, &module->compiled), problem);
  pthread_mutex_unlock(&engine_lock);
  return is_good;
}

// ---- Calls ----

static void begin(machine *self, rxd_scope *scope) {
  self->scope = scope;
  self->value_count = 0;
  self->made = 0;
  for (size_t index = 0; index < self->action_count; index++) free(self->actions[index].text);
  self->action_count = 0;
  free(self->failure);
  self->failure = NULL;
  wasm_raw ignored;
  // Handle 0 is absent.
  if (self->value_room == 0) give(self, &ignored, host->make_null());
  self->values[0] = absent;
  self->value_count = 1;
}

/// False: the call trapped; `problem` has the reason.
static bool call(machine *self, wasmtime_extern *function, wasm_raw *raw, size_t count, buffer *problem) {
  wasm_trap *trapped = NULL;
  wasmtime.wasmtime_context_set_epoch_deadline(self->context, (uint64_t)(self->settings.deadline / tick) + 2);
  count_running(1);
  wasmtime_error *error = wasmtime.wasmtime_func_call_unchecked(self->context, function->item, raw, count, &trapped);
  count_running(-1);
  if (!take_error(error, problem)) return false;
  if (trapped == NULL) return true;
  uint8_t code = 255;
  bool has_code = wasmtime.wasmtime_trap_code(trapped, &code);
  char text[100];
  if (has_code && code == 10) {
    snprintf(text, sizeof text, "the module has taken longer than its deadline of %lld ms",
             (long long)(self->settings.deadline / 1000000));
    append_text(problem, text);
  } else {
    // The message without the lines of the backtrace.
    wasm_bytes message;
    wasmtime.wasm_trap_message(trapped, &message);
    size_t length = strnlen(message.data, message.size);
    const char *start = memmem(message.data, length, "wasm trap: ", 11);
    if (start == NULL) start = message.data;
    size_t left = length - (size_t)(start - message.data);
    const char *end = memchr(start, '\n', left);
    append_text(problem, "the module has trapped: ");
    if (left > 11 && memcmp(start, "wasm trap: ", 11) == 0) start += 11, left -= 11;
    append(problem, start, end == NULL ? left : (size_t)(end - start));
    wasmtime.wasm_byte_vec_delete(&message);
  }
  wasmtime.wasm_trap_delete(trapped);
  return false;
}

/// Reports the reason that the module has given to rxd_fail.
static run_outcome failed(machine *self, buffer *problem) {
  append_text(problem, self->failure == NULL ? "the module has failed without a reason" : self->failure);
  return run_failed;
}

/// Finds an exported function; `call` does not check its type. True if it is absent and optional.
static bool find_function(machine *self, wasmtime_instance *instance, const char *name, const char *signature,
                          wasmtime_extern *function, bool is_needed, bool *has, buffer *problem) {
  *has = wasmtime.wasmtime_instance_export_get(self->context, instance, name, strlen(name), function);
  if (!*has && !is_needed) return true;
  bool is_good = *has && (uint8_t)function->kind == 0;
  if (is_good) {
    wasm_functype *type = wasmtime.wasmtime_func_type(self->context, function->item);
    const wasm_valtypes *parameters = wasmtime.wasm_functype_params(type), *results = wasmtime.wasm_functype_results(type);
    size_t count = strcspn(signature, ":");
    is_good = parameters->size == count && results->size == strlen(signature + count + 1);
    for (size_t index = 0; is_good && index < count; index++)
      is_good = wasmtime.wasm_valtype_kind(parameters->data[index]) == kind_of(signature[index]);
    if (is_good && results->size == 1) is_good = wasmtime.wasm_valtype_kind(results->data[0]) == kind_of(signature[count + 1]);
    wasmtime.wasm_functype_delete(type);
  }
  if (!is_good) append_text(problem, "the module exports no fitting "), append_text(problem, name);
  return is_good;
}

void free_machine(machine *self) {
  if (self == NULL) return;
  for (size_t index = 0; index < self->action_count; index++) free(self->actions[index].text);
  if (self->store != NULL) wasmtime.wasmtime_store_delete(self->store);
  free(self->actions);
  free(self->values);
  free(self->kept.bytes);
  free(self->failure);
  free(self);
}

machine *make_machine(const machine_settings *settings, rxd_scope *scope, rxd_text state, uint32_t version, buffer *problem) {
  machine *self = allocate(sizeof *self);
  const operator_info *info = settings->info;
  self->settings = *settings;
  self->store = wasmtime.wasmtime_store_new(engine, self, NULL);
  self->context = wasmtime.wasmtime_store_context(self->store);
  wasmtime.wasmtime_store_limiter(self->store, settings->memory, 10000, 1, 10, 1);
  begin(self, scope);
  self->state = state;
  self->state_version = version;
  wasmtime_instance instance;
  wasm_trap *trapped = NULL;
  bool has, is_good;
  // The start function counts as a call.
  wasmtime.wasmtime_context_set_epoch_deadline(self->context, (uint64_t)(settings->deadline / tick) + 2);
  count_running(1);
  wasmtime_error *error =
      wasmtime.wasmtime_linker_instantiate(linker, self->context, info->module->compiled, &instance, &trapped);
  count_running(-1);
  is_good = take_error(error, problem);
  if (trapped != NULL) {
    append_text(problem, "the module has trapped at its start");
    wasmtime.wasm_trap_delete(trapped);
    is_good = false;
  }
  if (is_good && (!wasmtime.wasmtime_instance_export_get(self->context, &instance, "memory", 6, &self->memory) ||
                  (uint8_t)self->memory.kind != 3)) {
    append_text(problem, "the module exports no memory");
    is_good = false;
  }
  is_good = is_good && find_function(self, &instance, "rxd_open", "ii:i", &self->open, true, &has, problem) &&
            find_function(self, &instance, "rxd_row", "ii:i", &self->row, info->is_row, &self->has_row, problem) &&
            find_function(self, &instance, "rxd_process", "i:i", &self->process, !info->is_row, &self->has_process, problem) &&
            find_function(self, &instance, "rxd_save", ":i", &self->save, info->state_version > 0, &self->has_save, problem);
  rxd_value parameters;
  if (is_good && host->decode(scope, settings->parameters, &parameters) == RXD_OK) {
    wasm_raw raw[2] = {{.i32 = (int32_t)info->index}}, handle[1];
    give(self, handle, parameters);
    raw[1] = handle[0];
    is_good = call(self, &self->open, raw, 2, problem);
    if (is_good && raw[0].i32 != 0) {
      failed(self, problem);
      is_good = false;
    }
  }
  self->state = (rxd_text){NULL, 0};
  if (is_good) return self;
  free_machine(self);
  return NULL;
}

run_outcome run_row(
    machine *self, rxd_scope *scope, rxd_value *event, const rxd_value *arguments, bool *drops, buffer *problem) {
  begin(self, scope);
  wasm_raw raw[2], handle[1];
  give(self, handle, *event);
  raw[0] = handle[0];
  rxd_value given[16];
  uint32_t count = self->settings.info->argument_count;
  for (uint32_t index = 0; index < count; index++)
    given[index] = host->kind(&arguments[index]) == RXD_ABSENT ? host->make_null() : arguments[index];
  give(self, handle, host->make_list(scope, given, count));
  raw[1] = handle[0];
  if (!call(self, &self->row, raw, 2, problem)) return run_dead;
  if (self->failure != NULL) return failed(self, problem);
  *drops = raw[0].i32 == 0;
  size_t result = (uint32_t)raw[0].i32;
  if (result >= self->value_count) {
    append_text(problem, "the module answers with a value that there is not");
    return run_dead;
  }
  if (!*drops) *event = self->values[result];
  return run_good;
}

run_outcome run_process(
    machine *self, rxd_scope *scope, const rxd_batch *batch, size_t first, size_t count, rxd_output *output, buffer *problem) {
  begin(self, scope);
  self->batch = batch;
  self->first = first;
  self->count = count;
  wasm_raw raw[1] = {{.i32 = (int32_t)count}};
  bool is_good = call(self, &self->process, raw, 1, problem);
  self->batch = NULL;
  if (!is_good) return run_dead;
  if (raw[0].i32 != 0) return failed(self, problem);
  for (size_t index = 0; index < self->action_count; index++) {
    const action *done = &self->actions[index];
    rxd_text text = {done->text, done->count};
    switch (done->kind) {
      case action_send: host->send(output, done->index, &done->value); break;
      case action_reject: host->reject(output, done->index, text); break;
      case action_timer: host->timer(output, text, done->nanoseconds); break;
    }
  }
  return run_good;
}

run_outcome run_save(machine *self, rxd_scope *scope, buffer *state, buffer *problem) {
  begin(self, scope);
  self->kept.count = 0;
  wasm_raw raw[1] = {{.i32 = 0}};
  if (!call(self, &self->save, raw, 1, problem)) return run_dead;
  if (raw[0].i32 != 0) return failed(self, problem);
  state->count = 0;
  append(state, self->kept.bytes == NULL ? "" : self->kept.bytes, self->kept.count);
  return run_good;
}
