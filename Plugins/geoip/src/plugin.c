/* The components of the plugin: the step `geoip` and the function `geoip.lookup`. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "geoip.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

enum { PATH_MOST = 16, NAME_MOST = 256, DATABASES_MOST = 16 };

/* ---- Addresses ---- */

typedef union address_of_text {
  struct sockaddr any;
  struct sockaddr_in four;
  struct sockaddr_in6 six;
} address_of_text;

/* Parses an IPv4 or IPv6 address, optionally with a port (1.2.3.4:80, [::1]:80) or a zone. */
static bool read_address(rxd_text text, address_of_text *address) {
  char copy[80];
  memset(address, 0, sizeof *address);
  if (text.count == 0 || text.count >= sizeof copy || memchr(text.bytes, 0, text.count) != NULL) return false;
  memcpy(copy, text.bytes, text.count);
  copy[text.count] = 0;
  char *begin = copy, *end = copy + text.count, *port = NULL;
  if (*begin == '[') {
    begin++;
    if ((end = strchr(begin, ']')) == NULL || (end[1] != 0 && end[1] != ':')) return false;
    port = end[1] == ':' ? end + 2 : NULL;
    *end = 0;
  } else if ((end = strchr(begin, ':')) != NULL && strchr(end + 1, ':') == NULL) {
    port = end + 1;
    *end = 0;
  }
  if (port != NULL && (*port == 0 || strlen(port) > 5 || strspn(port, "0123456789") != strlen(port))) return false;
  if (inet_pton(AF_INET, begin, &address->four.sin_addr) == 1) {
    address->four.sin_family = AF_INET;
    return true;
  }
  char *zone = strchr(begin, '%');
  if (zone != NULL) *zone = 0;
  struct in6_addr six;
  if (inet_pton(AF_INET6, begin, &six) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    address->four.sin_family = AF_INET;
    memcpy(&address->four.sin_addr, &six.s6_addr[12], 4);
  } else {
    address->six.sin6_family = AF_INET6;
    address->six.sin6_addr = six;
  }
  return true;
}

/* ---- Values ---- */

static rxd_value wide_value(rxd_scope *scope, const MMDB_entry_data_s *data) {
#if MMDB_UINT128_IS_BYTE_ARRAY
  char digits[40] = "0x";
  for (int i = 0; i < 16; i++) snprintf(digits + 2 + 2 * i, 3, "%02x", data->uint128[i]);
  return host->make_text(scope, text_of(digits));
#else
  if (data->uint128 <= UINT64_MAX) return host->make_uint((uint64_t)data->uint128);
  char digits[48];
  size_t at = sizeof digits;
  for (mmdb_uint128_t rest = data->uint128; rest > 0; rest /= 10) digits[--at] = (char)('0' + (int)(rest % 10));
  return host->make_text(scope, (rxd_text){digits + at, sizeof digits - at});
#endif
}

static rxd_value plain_value(rxd_scope *scope, const MMDB_entry_data_s *data) {
  switch (data->type) {
    case MMDB_DATA_TYPE_UTF8_STRING: return host->make_text(scope, (rxd_text){data->utf8_string, data->data_size});
    case MMDB_DATA_TYPE_DOUBLE: return host->make_double(data->double_value);
    case MMDB_DATA_TYPE_FLOAT: return host->make_double((double)data->float_value);
    case MMDB_DATA_TYPE_BYTES: return host->make_bytes(scope, (rxd_text){(const char *)data->bytes, data->data_size});
    case MMDB_DATA_TYPE_UINT16: return host->make_int(data->uint16);
    case MMDB_DATA_TYPE_UINT32: return host->make_int(data->uint32);
    case MMDB_DATA_TYPE_INT32: return host->make_int(data->int32);
    case MMDB_DATA_TYPE_UINT64: return host->make_uint(data->uint64);
    case MMDB_DATA_TYPE_UINT128: return wide_value(scope, data);
    case MMDB_DATA_TYPE_BOOLEAN: return host->make_bool(data->boolean);
    default: return host->make_null();
  }
}

/* Makes the value at `*at`, which then points behind it. False: the list ends within the value, or the value is nested
 * too deeply. */
static bool value_of(rxd_scope *scope, const MMDB_entry_data_list_s **at, int depth, value_stack *stack, rxd_value *value) {
  const MMDB_entry_data_s *data = &(*at)->entry_data;
  bool is_map = data->type == MMDB_DATA_TYPE_MAP;
  uint32_t count = data->data_size;
  *at = (*at)->next;
  if (!is_map && data->type != MMDB_DATA_TYPE_ARRAY) {
    *value = plain_value(scope, data);
    return true;
  }
  size_t start = stack->count;
  if (depth == DEPTH_LIMIT) return false;
  for (uint32_t i = 0; i < count; i++) {
    rxd_text name = {"", 0};
    rxd_value member;
    if (*at == NULL) return false;
    if (is_map) {
      if ((*at)->entry_data.type != MMDB_DATA_TYPE_UTF8_STRING) return false;
      name = (rxd_text){(*at)->entry_data.utf8_string, (*at)->entry_data.data_size};
      if (!is_utf8(name.bytes, name.count)) return false;
      *at = (*at)->next;
      if (*at == NULL) return false;
    }
    if (!value_of(scope, at, depth + 1, stack, &member)) return false;
    push_member(stack, name, member);
  }
  *value = is_map ? pop_object(scope, stack, start) : pop_list(scope, stack, start);
  return true;
}

/* ---- A look-up ---- */

typedef struct lookup {
  rxd_scope *scope;
  const char *const *path;  /* ends with NULL; empty: the whole record */
  rxd_value *result;
} lookup;

static int use_found(void *closure, MMDB_entry_s *entry) {
  const lookup *self = closure;
  MMDB_entry_s within = *entry;
  int status = MMDB_SUCCESS;
  if (self->path[0] != NULL) {
    MMDB_entry_data_s data;
    status = MMDB_aget_value(entry, &data, self->path);
    if (status == MMDB_LOOKUP_PATH_DOES_NOT_MATCH_DATA_ERROR || status == MMDB_INVALID_LOOKUP_PATH_ERROR || (status == MMDB_SUCCESS && !data.has_data))
      return RXD_OK;
    if (status == MMDB_SUCCESS && data.type != MMDB_DATA_TYPE_MAP && data.type != MMDB_DATA_TYPE_ARRAY) {
      *self->result = plain_value(self->scope, &data);
      return RXD_OK;
    }
    within.offset = data.offset;
  }
  MMDB_entry_data_list_s *all = NULL;
  if (status == MMDB_SUCCESS) status = MMDB_get_entry_data_list(&within, &all);
  value_stack stack = {0};
  const MMDB_entry_data_list_s *at = all;
  bool is_made = status == MMDB_SUCCESS && at != NULL && value_of(self->scope, &at, 0, &stack, self->result);
  free_values(&stack);
  MMDB_free_entry_data_list(all);
  return is_made ? RXD_OK : fail_at(self->scope, "", "the database is damaged: %s", status == MMDB_SUCCESS ? "a record is nested too deeply" : MMDB_strerror(status));
}

/* Gives null if the database lacks the address. */
static int look_up(rxd_scope *scope, database *database, const rxd_value *given, const char *const *path, rxd_value *result) {
  int kind = host->kind(given);
  *result = host->make_null();
  if (kind == RXD_NULL || kind == RXD_ABSENT) return RXD_OK;
  if (kind != RXD_TEXT) return fail_at(scope, "", "the address is %s, and must be a text", value_kind(kind));
  rxd_text text = host->text(scope, given);
  address_of_text address;
  if (!read_address(text, &address)) return fail_at(scope, "", "'%.*s' is not an IP address", shown_count(text), text.bytes);
  char problem[256] = "";
  bool is_found;
  lookup lookup = {.scope = scope, .path = path, .result = result};
  int status = database_find(database, &address.any, use_found, &lookup, &is_found, problem, sizeof problem);
  return problem[0] == 0 ? status : fail_at(scope, "", "%s", problem);
}

/* Splits a path such as `country.iso_code` in place. False: a name is empty, or there are too many. */
static bool cut_path(char *text, const char **path) {
  size_t count = 0;
  path[0] = NULL;
  if (text == NULL) return true;
  for (char *name = text, *end = text; end != NULL; name = end + 1) {
    end = strchr(name, '.');
    if (end != NULL) *end = 0;
    if (*name == 0 || count == PATH_MOST) return false;
    path[count++] = name;
    path[count] = NULL;
  }
  return true;
}

/* ---- The step ---- */

typedef struct step {
  rxd_instance *instance;
  database *database;
  atomic_uint problems;  /* number of logged refusals */
  char *into, *path_text;
  const char *path[PATH_MOST + 1];
} step;

static void step_close(void *instance) {
  step *self = instance;
  if (self->database != NULL) database_close(self->database);
  free(self->into);
  free(self->path_text);
  free(self);
}

static int step_open(const rxd_opening *opening, void **instance) {
  step *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  char *file = NULL, problem[256];
  int status = text_parameter(opening, "database", &file);
  if (status == RXD_OK) status = text_parameter(opening, "into", &self->into);
  if (status == RXD_OK) status = text_parameter(opening, "path", &self->path_text);
  if (status == RXD_OK && !cut_path(self->path_text, self->path))
    status = fail_at(opening->scope, "path", "must be at most %d names with full stops between them", PATH_MOST);
  if (status == RXD_OK && (self->database = database_open(file == NULL ? "" : file, problem, sizeof problem)) == NULL)
    status = fail_at(opening->scope, "database", "%s", problem);
  free(file);
  if (status == RXD_OK) *instance = self;
  else step_close(self);
  return status;
}

/* Logs why a replaced file was refused, once. */
static void log_problem(rxd_instance *instance, database *database, atomic_uint *seen) {
  char line[512], problem[256];
  if (!database_problem(database, seen, problem, sizeof problem)) return;
  int count = snprintf(line, sizeof line, "'%s' was replaced, and what was read before stays in use: %s", database_path(database), problem);
  host->log(instance, RXD_TEXT_OF("warning"), (rxd_text){line, count < (int)sizeof line ? (size_t)count : sizeof line - 1});
}

static int step_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  step *self = instance;
  rxd_value result;
  log_problem(self->instance, self->database, &self->problems);
  if (host->kind(event) != RXD_OBJECT) return fail_at(scope, "", "the event is %s, and must be an object", value_kind(host->kind(event)));
  if (look_up(scope, self->database, &arguments[0], self->path, &result) != RXD_OK) return RXD_FAILED;
  *event = host->with_member(scope, event, text_of(self->into), &result);
  return RXD_OK;
}

/* ---- The function ---- */

/* The databases named in calls of the function. */
typedef struct function {
  pthread_rwlock_t lock;
  size_t count;
  rxd_text paths[DATABASES_MOST];
  database *databases[DATABASES_MOST];
  atomic_uint problems[DATABASES_MOST]; /* how many refused files of each are logged */
  rxd_instance *instance;
} function;

static int function_open(const rxd_opening *opening, void **instance) {
  function *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  pthread_rwlock_init(&self->lock, NULL);
  *instance = self;
  return RXD_OK;
}

static void function_close(void *instance) {
  function *self = instance;
  for (size_t i = 0; i < self->count; i++) {
    database_close(self->databases[i]);
    free((char *)(uintptr_t)self->paths[i].bytes);
  }
  pthread_rwlock_destroy(&self->lock);
  free(self);
}

static database *known(function *self, rxd_text path) {
  for (size_t i = 0; i < self->count; i++) {
    if (!text_is(self->paths[i], path)) continue;
    log_problem(self->instance, self->databases[i], &self->problems[i]);
    return self->databases[i];
  }
  return NULL;
}

/* Returns the database of a call, which stays open as long as the function; NULL after a failure. */
static database *database_of(function *self, rxd_scope *scope, rxd_text path) {
  pthread_rwlock_rdlock(&self->lock);
  database *found = known(self, path);
  pthread_rwlock_unlock(&self->lock);
  if (found != NULL) return found;
  char problem[256] = "";
  if (path.count == 0 || path.count > 4096 || memchr(path.bytes, 0, path.count) != NULL) {
    fail_at(scope, "", "the path of the database is not one");
    return NULL;
  }
  pthread_rwlock_wrlock(&self->lock);
  found = known(self, path);
  if (found == NULL && self->count == DATABASES_MOST) {
    snprintf(problem, sizeof problem, "calls have named %d databases already, and may name no more", DATABASES_MOST);
  } else if (found == NULL) {
    char *copy = copy_text(path);
    found = database_open(copy, problem, sizeof problem);
    if (found != NULL) {
      self->paths[self->count] = (rxd_text){copy, path.count};
      self->databases[self->count++] = found;
    } else {
      free(copy);
    }
  }
  pthread_rwlock_unlock(&self->lock);
  if (found == NULL) fail_at(scope, "", "%s", problem);
  return found;
}

static int function_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  database *database = database_of(instance, scope, host->text(scope, &arguments[1]));
  if (database == NULL) return RXD_FAILED;
  char text[NAME_MOST];
  const char *path[PATH_MOST + 1];
  bool has_path = host->kind(&arguments[2]) == RXD_TEXT;
  rxd_text given = has_path ? host->text(scope, &arguments[2]) : (rxd_text){"", 0};
  bool fits = given.count < sizeof text && (given.count == 0 || memchr(given.bytes, 0, given.count) == NULL);
  if (fits) {
    if (given.count > 0) memcpy(text, given.bytes, given.count);
    text[given.count] = 0;
  }
  if (!fits || !cut_path(has_path ? text : NULL, path)) return fail_at(scope, "", "the path must be at most %d names with full stops between them", PATH_MOST);
  return look_up(scope, database, &arguments[0], path, event);
}

static const rxd_component components[] = {
    {NAMED("operator", "geoip"), .open = step_open, .close = step_close, .row = step_row},
    {NAMED("function", "lookup"), .open = function_open, .close = function_close, .row = function_row},
};

#include "format_entry.h"
