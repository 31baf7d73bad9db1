#include "rx_sqlite.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The functions of the library, with the types from its header.
#define FUNCTIONS(X) \
  X(open_v2) X(close) X(exec) X(errmsg) X(errstr) X(changes) X(get_autocommit) X(system_errno) X(wal_checkpoint_v2) \
  X(prepare_v2) X(finalize) X(step) X(reset) X(bind_int64) X(bind_blob64) X(bind_text64) X(column_int64) \
  X(column_blob) X(column_bytes) X(column_type) X(db_config) \
  X(progress_handler) X(busy_handler) X(limit) X(stmt_readonly) X(column_count) X(column_name) \
  X(bind_parameter_count) X(bind_parameter_name) X(bind_null) X(bind_double) X(column_double) X(wal_hook) X(config)
#define FIELD(name) __typeof__(&sqlite3_##name) name;
static struct { FUNCTIONS(FIELD) } lib;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;

bool rx_sqlite_load(char *why, size_t size) {
  pthread_mutex_lock(&lock);
  if (!is_loaded) {
    const char *fault = NULL;
    void *handle = dlopen("libsqlite3.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
      fault = dlerror();
    } else {
#define FIND(name) \
  if (!fault && !(lib.name = (__typeof__(lib.name))dlsym(handle, "sqlite3_" #name))) fault = "it lacks sqlite3_" #name;
      FUNCTIONS(FIND)
    }
    is_loaded = !fault;
    // Pages are allocated one by one: a process may have a thousand stores, most of which need only a few. SQLite
    // refuses this if another part of the process already uses the library.
    if (is_loaded) lib.config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0);
    // For the same reason, not every connection gets a block of 120 KiB for small allocations.
    if (is_loaded) lib.config(SQLITE_CONFIG_LOOKASIDE, 512, 32);
    if (fault && size) snprintf(why, size, "%s", fault);
  }
  bool loaded = is_loaded;
  pthread_mutex_unlock(&lock);
  return loaded;
}

static int open_with(const char *path, int flags, const char *vfs, sqlite3 **db);

static int log_grew(void *frames, sqlite3 *db, const char *name, int count) {
  (void)db, (void)name;
  *(int *)frames = count;
  return SQLITE_OK;
}

int rx_sqlite_open(const char *path, int *frames, sqlite3 **db) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW;
  int code = open_with(path, flags | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL, db);
  if (code != SQLITE_OK) return code;
  // Replaces SQLite's automatic checkpoints.
  lib.wal_hook(*db, log_grew, frames);
  return lib.exec(*db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
}

int rx_sqlite_open_beside(const char *path, sqlite3 **db) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_READONLY;
  int code = open_with(path, flags, "unix-none", db);
  if (code != SQLITE_OK) return code;
  rx_sqlite_keep_log(*db);
  return lib.exec(*db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
}

int rx_sqlite_open_foreign(const char *path, bool writable, bool creates, sqlite3 **db) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |= writable ? SQLITE_OPEN_READWRITE | (creates ? SQLITE_OPEN_CREATE : 0) : SQLITE_OPEN_READONLY;
  int code = open_with(path, flags, NULL, db);
  // Statements cannot attach other files.
  if (code == SQLITE_OK) lib.limit(*db, SQLITE_LIMIT_ATTACHED, 0);
  return code;
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static bool must_end(rx_sqlite_limits *limits) {
  return __atomic_load_n(&limits->stop, __ATOMIC_RELAXED) || (limits->deadline && now() >= limits->deadline);
}

static int in_progress(void *limits) { return must_end(limits); }

static int is_busy(void *context, int count) {
  rx_sqlite_limits *limits = context;
  if (!count) limits->busy_since = now();
  if (must_end(limits) || now() - limits->busy_since >= limits->busy) return 0;
  // SQLite has no call that waits for a lock. This polls as its own time-out does, but can be stopped.
  struct timespec pause = {0, count < 10 ? 1000000 : 10000000};
  nanosleep(&pause, NULL);
  return 1;
}

void rx_sqlite_limit(sqlite3 *db, rx_sqlite_limits *limits) {
  lib.progress_handler(db, 1000, in_progress, limits);
  lib.busy_handler(db, is_busy, limits);
}
void rx_sqlite_stop(rx_sqlite_limits *limits) { __atomic_store_n(&limits->stop, 1, __ATOMIC_RELAXED); }

int rx_sqlite_open_quiet(const char *path, sqlite3 **db) {
  // Builds a URI; characters that have a meaning in URIs are escaped.
  size_t length = strlen(path);
  char *uri = malloc(3 * length + sizeof "file:?immutable=1");
  if (!uri) return SQLITE_NOMEM;
  char *out = uri + sprintf(uri, "file:");
  for (const char *in = path; *in; in++) {
    bool is_plain = *in != '%' && *in != '?' && *in != '#';
    out += sprintf(out, is_plain ? "%c" : "%%%02X", (unsigned char)*in);
  }
  strcpy(out, "?immutable=1");
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_URI;
  int code = open_with(uri, flags | SQLITE_OPEN_READONLY, NULL, db);
  free(uri);
  return code;
}

static int open_with(const char *path, int flags, const char *vfs, sqlite3 **db) {
  int code = lib.open_v2(path, db, flags, vfs);
  if (code != SQLITE_OK) return code;
  lib.db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  lib.db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  lib.db_config(*db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
  lib.db_config(*db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
  return SQLITE_OK;
}

void rx_sqlite_keep_log(sqlite3 *db) { lib.db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL); }
int rx_sqlite_close(sqlite3 *db) { return lib.close(db); }
int rx_sqlite_exec(sqlite3 *db, const char *sql) { return lib.exec(db, sql, NULL, NULL, NULL); }
const char *rx_sqlite_message(sqlite3 *db) { return lib.errmsg(db); }
const char *rx_sqlite_name(int code) { return lib.errstr(code); }
int rx_sqlite_changes(sqlite3 *db) { return lib.changes(db); }
bool rx_sqlite_in_transaction(sqlite3 *db) { return !lib.get_autocommit(db); }
int rx_sqlite_errno(sqlite3 *db) { return lib.system_errno(db); }
int rx_sqlite_checkpoint(sqlite3 *db, bool *is_whole) {
  int frames = 0, written = 0;
  int code = lib.wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_FULL, &frames, &written);
  *is_whole = code == SQLITE_OK && frames == written;
  return code;
}
int rx_sqlite_truncate_log(sqlite3 *db) {
  return lib.wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

int rx_sqlite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **statement) {
  return lib.prepare_v2(db, sql, -1, statement, NULL);
}
int rx_sqlite_prepare_one(sqlite3 *db, const char *sql, sqlite3_stmt **statement, bool *has_more) {
  const char *rest = NULL;
  *has_more = false;
  int code = lib.prepare_v2(db, sql, -1, statement, &rest);
  while (code == SQLITE_OK && rest && *rest && !*has_more) {
    while (isspace((unsigned char)*rest) || *rest == ';') rest++;
    if (!*rest) break;
    // A comment is not a statement.
    sqlite3_stmt *next = NULL;
    if (lib.prepare_v2(db, rest, -1, &next, &rest) != SQLITE_OK || next) *has_more = true;
    lib.finalize(next);
  }
  return code;
}
bool rx_sqlite_only_reads(sqlite3_stmt *statement) { return lib.stmt_readonly(statement); }
int rx_sqlite_columns(sqlite3_stmt *statement) { return lib.column_count(statement); }
const char *rx_sqlite_column_name(sqlite3_stmt *statement, int column) { return lib.column_name(statement, column); }
int rx_sqlite_parameters(sqlite3_stmt *statement) { return lib.bind_parameter_count(statement); }
const char *rx_sqlite_parameter_name(sqlite3_stmt *statement, int index) {
  return lib.bind_parameter_name(statement, index);
}
int rx_sqlite_bind_null(sqlite3_stmt *statement, int index) { return lib.bind_null(statement, index); }
int rx_sqlite_bind_double(sqlite3_stmt *statement, int index, double value) {
  return lib.bind_double(statement, index, value);
}
double rx_sqlite_double(sqlite3_stmt *statement, int column) { return lib.column_double(statement, column); }
int rx_sqlite_type(sqlite3_stmt *statement, int column) { return lib.column_type(statement, column); }
void rx_sqlite_finalize(sqlite3_stmt *statement) { lib.finalize(statement); }
int rx_sqlite_step(sqlite3_stmt *statement) { return lib.step(statement); }
int rx_sqlite_reset(sqlite3_stmt *statement) { return lib.reset(statement); }
int rx_sqlite_bind_int(sqlite3_stmt *statement, int index, sqlite3_int64 value) {
  return lib.bind_int64(statement, index, value);
}
int rx_sqlite_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, size_t count) {
  return lib.bind_blob64(statement, index, bytes ? bytes : "", count, SQLITE_STATIC);
}
int rx_sqlite_bind_copy(sqlite3_stmt *statement, int index, const void *bytes, size_t count) {
  return lib.bind_blob64(statement, index, bytes ? bytes : "", count, SQLITE_TRANSIENT);
}
int rx_sqlite_bind_text(sqlite3_stmt *statement, int index, const char *text, size_t count) {
  return lib.bind_text64(statement, index, text ? text : "", count, SQLITE_TRANSIENT, SQLITE_UTF8);
}
sqlite3_int64 rx_sqlite_int(sqlite3_stmt *statement, int column) { return lib.column_int64(statement, column); }
const void *rx_sqlite_bytes(sqlite3_stmt *statement, int column, size_t *count) {
  const void *bytes = lib.column_blob(statement, column);
  *count = (size_t)lib.column_bytes(statement, column);
  return bytes;
}
bool rx_sqlite_is_null(sqlite3_stmt *statement, int column) {
  return lib.column_type(statement, column) == SQLITE_NULL;
}
