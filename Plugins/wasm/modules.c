// Finds modules: those that are bundled with this library, appended to its file, or the files and directories in RXD_WASM.
// Merges their specs into one.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wasm.h"

operator_info operators[most_operators];
int operator_count;

static module modules[most_operators];
static int module_count;

void *allocate(size_t count) {
  void *made = calloc(1, count == 0 ? 1 : count);
  if (made == NULL) abort();
  return made;
}

rxd_text text_of(const char *string) { return (rxd_text){string, strlen(string)}; }

void append(buffer *buffer, const char *bytes, size_t count) {
  if (buffer->room < buffer->count + count + 1) {
    buffer->room = (buffer->count + count + 1) * 2;
    buffer->bytes = realloc(buffer->bytes, buffer->room);
    if (buffer->bytes == NULL) abort();
  }
  if (count > 0) memcpy(buffer->bytes + buffer->count, bytes, count);
  buffer->count += count;
  buffer->bytes[buffer->count] = 0;
}

void append_text(buffer *buffer, const char *string) { append(buffer, string, strlen(string)); }

static bool refuse(buffer *problem, const char *path, const char *what) {
  append_text(problem, path), append_text(problem, ": "), append_text(problem, what);
  return false;
}

// ---- JSON: finds members; rxd checks the document. ----

typedef struct { const char *at, *end; } cursor;

static void skip_space(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

static bool skip_string(cursor *c) {
  for (c->at++; c->at < c->end && *c->at != '"'; c->at++) {
    if (*c->at == '\\' && c->at + 1 < c->end) c->at++;
  }
  return c->at++ < c->end;
}

/// Skips a value.
static bool skip_value(cursor *c) {
  skip_space(c);
  int depth = 0;
  do {
    skip_space(c);
    if (c->at >= c->end) return false;
    if (*c->at == '"') {
      if (!skip_string(c)) return false;
    } else if (*c->at == '{' || *c->at == '[') {
      depth++;
      c->at++;
    } else if (*c->at == '}' || *c->at == ']') {
      depth--;
      c->at++;
    } else if (*c->at == ',' || *c->at == ':') {
      c->at++;
    } else {
      // Always advances: strchr also finds the terminating zero.
      do c->at++; while (c->at < c->end && strchr(",:{}[]\" \t\r\n", *c->at) == NULL);
    }
  } while (depth > 0);
  return true;
}

/// The value of a member of an object; `bytes` is NULL if there is none.
static rxd_text find_member(rxd_text object, const char *name) {
  cursor c = {object.bytes, object.bytes + object.count};
  size_t count = strlen(name);
  skip_space(&c);
  if (c.at >= c.end || *c.at++ != '{') return (rxd_text){NULL, 0};
  for (;;) {
    skip_space(&c);
    if (c.at >= c.end || *c.at != '"') return (rxd_text){NULL, 0};
    const char *key = c.at + 1;
    if (!skip_string(&c)) return (rxd_text){NULL, 0};
    bool is_it = (size_t)(c.at - 1 - key) == count && memcmp(key, name, count) == 0;
    skip_space(&c);
    if (c.at >= c.end || *c.at++ != ':') return (rxd_text){NULL, 0};
    skip_space(&c);
    const char *value = c.at;
    if (!skip_value(&c)) return (rxd_text){NULL, 0};
    if (is_it) return (rxd_text){value, (size_t)(c.at - value)};
    skip_space(&c);
    if (c.at >= c.end || *c.at++ != ',') return (rxd_text){NULL, 0};
  }
}

/// The text between the quotes.
static rxd_text unquoted(rxd_text value) {
  if (value.count < 2 || value.bytes[0] != '"') return (rxd_text){"", 0};
  return (rxd_text){value.bytes + 1, value.count - 2};
}

static bool is(rxd_text text, const char *string) {
  return text.count == strlen(string) && memcmp(text.bytes, string, text.count) == 0;
}

// ---- The spec ----

static const char own_parameters[] =
    "{ \"name\": \"deadline\", \"type\": \"duration\", \"default\": \"1s\", \"minimum\": \"10ms\", \"maximum\": \"10m\", "
    "\"help\": \"The longest time that the module may take for one call.\" }, "
    "{ \"name\": \"memoryLimit\", \"type\": \"size\", \"default\": \"64MiB\", "
    "\"help\": \"The most memory that an instance of the module may have.\" }";

/// Adds a component to the spec, with the parameters that the loader offers.
static void append_component(buffer *spec, rxd_text component) {
  rxd_text parameters = find_member(component, "parameters");
  if (parameters.bytes == NULL) {
    append(spec, component.bytes, component.count - 1);
    append_text(spec, ", \"parameters\": ["), append_text(spec, own_parameters), append_text(spec, "]}");
    return;
  }
  const char *end = parameters.bytes + parameters.count - 1;  // index of the bracket
  const char *last = end;
  while (last > parameters.bytes && strchr(" \t\r\n", last[-1]) != NULL) last--;
  append(spec, component.bytes, (size_t)(last - component.bytes));
  if (last[-1] != '[') append_text(spec, ", ");
  append_text(spec, own_parameters);
  append(spec, end, (size_t)(component.bytes + component.count - end));
}

/// The number of parameters that rxd evaluates for each event.
static uint32_t count_arguments(rxd_text component) {
  rxd_text list = find_member(component, "parameters");
  cursor c = {list.bytes, list.bytes + list.count};
  uint32_t count = 0;
  if (list.bytes == NULL) return 0;
  for (c.at++; c.at < c.end; c.at++) {
    skip_space(&c);
    const char *start = c.at;
    if (*start != '{' || !skip_value(&c)) break;
    rxd_text type = unquoted(find_member((rxd_text){start, (size_t)(c.at - start)}, "type"));
    count += is(type, "expression") || is(type, "template");
    skip_space(&c);
  }
  return count;
}

static bool take_components(module *module, buffer *spec, buffer *problem) {
  rxd_text list = find_member(module->spec, "components");
  cursor c = {list.bytes, list.bytes + list.count};
  if (list.bytes == NULL || *c.at++ != '[') return refuse(problem, module->path, "its spec has no components");
  for (uint32_t index = 0;; index++) {
    skip_space(&c);
    const char *start = c.at;
    if (!skip_value(&c) || *start != '{') return refuse(problem, module->path, "its components cannot be read");
    rxd_text component = {start, (size_t)(c.at - start)};
    if (!is(unquoted(find_member(component, "kind")), "operator"))
      return refuse(problem, module->path, "a module can offer operators only");
    if (operator_count == most_operators) return refuse(problem, module->path, "there are more than 64 operators");
    rxd_text version = find_member(find_member(component, "state"), "version");
    if (count_arguments(component) > 16) return refuse(problem, module->path, "an operator has more than 16 expressions");
    operators[operator_count++] = (operator_info){
        .argument_count = count_arguments(component), .module = module, .index = index, .name = unquoted(find_member(component, "name")),
        .is_row = is(unquoted(find_member(component, "form")), "row"),
        .state_version = version.bytes == NULL ? 0 : (uint32_t)strtoul(version.bytes, NULL, 10)};
    if (operator_count > 1) append_text(spec, ",\n");
    append_component(spec, component);
    skip_space(&c);
    if (c.at >= c.end || *c.at != ',') return true;
    c.at++;
  }
}

/// Appends a text as JSON.
static void append_string(buffer *buffer, const char *text) {
  append_text(buffer, "\"");
  for (; *text != 0; text++) {
    char escaped[8];
    unsigned char byte = (unsigned char)*text;
    if (byte == '"' || byte == '\\') snprintf(escaped, sizeof escaped, "\\%c", byte);
    else if (byte < 0x20) snprintf(escaped, sizeof escaped, "\\u%04x", byte);
    else snprintf(escaped, sizeof escaped, "%c", byte);
    append_text(buffer, escaped);
  }
  append_text(buffer, "\"");
}

/// Lists the modules that are separate files: rxd reads the spec again when one of them changes.
static void append_uses(buffer *spec) {
  int count = 0;
  for (int index = 0; index < module_count; index++) {
    char *path = modules[index].is_file ? realpath(modules[index].path, NULL) : NULL;
    if (path == NULL) continue;
    append_text(spec, count++ == 0 ? "\"uses\": [" : ", "), append_string(spec, path);
    free(path);
  }
  if (count > 0) append_text(spec, "], ");
}

// ---- Modules ----

static bool read_number(const uint8_t **at, const uint8_t *end, uint32_t *number) {
  *number = 0;
  for (int shift = 0; *at < end && shift < 35; shift += 7) {
    uint8_t byte = *(*at)++;
    *number |= (uint32_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

static bool add_module(const char *path, const uint8_t *bytes, size_t count, bool is_file, buffer *problem) {
  const uint8_t *at = bytes + 8, *end = bytes + count;
  if (count < 8 || memcmp(bytes, "\0asm\1\0\0\0", 8) != 0) return refuse(problem, path, "this is not a WebAssembly module");
  if (module_count == most_operators) return refuse(problem, path, "there are more than 64 modules");
  module *made = &modules[module_count];
  *made = (module){.path = strdup(path), .is_file = is_file, .bytes = bytes, .count = count};
  while (at < end) {
    uint32_t size, name_count;
    uint8_t kind = *at++;
    if (!read_number(&at, end, &size) || size > (size_t)(end - at)) return refuse(problem, path, "the module is cut off");
    const uint8_t *section = at;
    at += size;
    if (kind != 0 || !read_number(&section, at, &name_count) || name_count > (size_t)(at - section)) continue;
    if (name_count == 8 && memcmp(section, "rxd_spec", 8) == 0)
      made->spec = (rxd_text){(const char *)section + 8, (size_t)(at - section - 8)};
  }
  if (made->spec.bytes == NULL) return refuse(problem, path, "the module has no section rxd_spec");
  module_count++;
  return true;
}

static const uint8_t *read_file(const char *path, size_t *count) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0) return NULL;
  void *bytes = NULL;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    // A copy, because truncating a mapped file ends the process.
    *count = (size_t)status.st_size;
    bytes = malloc(*count);
    size_t have = 0;
    ssize_t more;
    while (bytes != NULL && have < *count && (more = pread(file, (char *)bytes + have, *count - have, (off_t)have)) > 0)
      have += (size_t)more;
    if (bytes == NULL || have < *count) {
      free(bytes);
      bytes = NULL;
    }
  }
  close(file);
  return bytes == NULL ? NULL : bytes;
}

/// Appended to the library's file: for each module its bytes, their number (8 bytes, little endian) and "rxdwasm1".
static bool add_bundled(buffer *problem) {
  Dl_info info;
  size_t count;
  if (dladdr((void *)add_bundled, &info) == 0 || info.dli_fname == NULL) return true;
  const uint8_t *bytes = read_file(info.dli_fname, &count);
  if (bytes == NULL) return true;
  bool is_used = false;
  while (count > 16 && memcmp(bytes + count - 8, "rxdwasm1", 8) == 0) {
    uint64_t size = 0;
    for (int index = 0; index < 8; index++) size |= (uint64_t)bytes[count - 16 + (size_t)index] << (8 * index);
    if (size > count - 16) return refuse(problem, info.dli_fname, "a bundled module is cut off");
    is_used = true;
    if (!add_module(info.dli_fname, bytes + count - 16 - size, size, false, problem)) return false;
    count -= 16 + size;
  }
  if (!is_used) free((void *)bytes);
  return true;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int is_module(const struct dirent *entry) {
  size_t count = strlen(entry->d_name);
  return count > 5 && strcmp(entry->d_name + count - 5, ".wasm") == 0;
}

/// Other users must not be able to write to code that runs here, although it is sandboxed.
static bool is_trusted(const char *path, const struct stat *status, buffer *problem) {
  if ((status->st_uid == 0 || status->st_uid == geteuid()) && (status->st_mode & 022) == 0) return true;
  return refuse(problem, path, "other users may write to it");
}

static bool add_path(const char *path, buffer *problem) {
  struct stat status;
  if (stat(path, &status) != 0) return refuse(problem, path, "there is no such file or directory");
  if (!is_trusted(path, &status, problem)) return false;
  if (S_ISDIR(status.st_mode)) {
    struct dirent **entries;
    int count = scandir(path, &entries, is_module, by_name);
    bool is_good = true;
    for (int index = 0; index < count; index++) {
      char *inner = NULL;
      if (asprintf(&inner, "%s/%s", path, entries[index]->d_name) < 0) abort();
      is_good = is_good && add_path(inner, problem);
      free(inner);
      free(entries[index]);
    }
    if (count >= 0) free(entries);
    return is_good;
  }
  size_t count;
  const uint8_t *bytes = read_file(path, &count);
  if (bytes == NULL) return refuse(problem, path, "it cannot be read");
  return add_module(path, bytes, count, true, problem);
}

bool find_modules(buffer *spec, buffer *problem) {
  if (!add_bundled(problem)) return false;
  const char *paths = getenv("RXD_WASM");
  // A bundle needs no further modules.
  if (module_count == 0 && paths != NULL) {
    char *copy = strdup(paths), *rest = copy;
    for (char *path; (path = strsep(&rest, ":")) != NULL;) {
      if (*path != 0 && !add_path(path, problem)) {
        free(copy);
        return false;
      }
    }
    free(copy);
  }
  if (module_count == 0) {
    append_text(problem, "there is no module: bundle some with rxd-wasm-bundle, or name files or directories in RXD_WASM");
    return false;
  }
  // A single module keeps its name; several are one plugin.
  append_text(spec, "{");
  for (int index = 0; index < 3; index++) {
    static const char *const names[] = {"plugin", "version", "summary"};
    static const char *const otherwise[] = {"\"wasm\"", "\"1.0.0\"", "\"Operators in WebAssembly.\""};
    rxd_text value = module_count == 1 ? find_member(modules[0].spec, names[index]) : (rxd_text){NULL, 0};
    append_text(spec, "\""), append_text(spec, names[index]), append_text(spec, "\": ");
    if (value.bytes == NULL) append_text(spec, otherwise[index]);
    else append(spec, value.bytes, value.count);
    append_text(spec, ", ");
  }
  append_uses(spec);
  append_text(spec, "\"contract\": 1, \"components\": [\n");
  for (int index = 0; index < module_count; index++) {
    if (!take_components(&modules[index], spec, problem)) return false;
  }
  append_text(spec, "\n]}\n");
  return true;
}
