// libsqlite3, loaded when the first store is opened: a process without a state directory does not map it. Until
// `rx_sqlite_load` has returned true, no other function may be called.
#ifndef RX_SQLITE_H
#define RX_SQLITE_H
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Loads the library unless that has been done. False: it cannot be loaded, and `why` has the reason, `size` bytes at
/// most with the closing 0. Thread-safe.
bool rx_sqlite_load(char *why, size_t size);

/// Opens `path`, in the form that stores need: extended result codes, double-quoted strings refused, defensive, no trusted schema. From the first
/// reading on this connection alone has the file, and it maps no memory that the file system may fail to back. `*frames` is how many pages
/// the log had after the last commit; the log grows until ``rx_sqlite_checkpoint``. `*db` is set where memory was left for it, also after a failure.
int rx_sqlite_open(const char *path, int *frames, sqlite3 **db);
/// Opens such a file for reading, without locks, while another connection may have it. The result is undefined if the other makes a checkpoint or
/// begins its log anew meanwhile. Neither the file nor its log is changed.
int rx_sqlite_open_beside(const char *path, sqlite3 **db);
/// Opens a file that no process writes to, for reading: without locks, and without the two files that SQLite keeps beside
/// one. The result of reading is undefined if somebody writes to it all the same.
int rx_sqlite_open_quiet(const char *path, sqlite3 **db);
/// Opens a database of others, in the same form; symbolic links are followed.
int rx_sqlite_open_foreign(const char *path, bool writable, bool creates, sqlite3 **db);

/// What limits the statements of a connection. It must outlive the connection.
typedef struct {
  /// Not 0: statements end with SQLITE_INTERRUPT. Only ``rx_sqlite_stop`` sets it.
  int stop;
  /// On the monotonic clock, in nanoseconds; a statement that still runs then ends with SQLITE_INTERRUPT. 0: none.
  int64_t deadline;
  /// How long a statement waits for others that have locked the file, in nanoseconds.
  int64_t busy;
  int64_t busy_since;
} rx_sqlite_limits;
void rx_sqlite_limit(sqlite3 *db, rx_sqlite_limits *limits);
/// From any thread.
void rx_sqlite_stop(rx_sqlite_limits *limits);
/// The end of the connection leaves the log as it is.
void rx_sqlite_keep_log(sqlite3 *db);
int rx_sqlite_close(sqlite3 *db);
int rx_sqlite_exec(sqlite3 *db, const char *sql);
const char *rx_sqlite_message(sqlite3 *db);
const char *rx_sqlite_name(int code);
int rx_sqlite_changes(sqlite3 *db);
bool rx_sqlite_in_transaction(sqlite3 *db);
/// The error number of the last system call that failed in it; 0: none has.
int rx_sqlite_errno(sqlite3 *db);
/// Writes what the log has to the database; `*is_whole`: all of it. The next commit begins the log anew.
int rx_sqlite_checkpoint(sqlite3 *db, bool *is_whole);
/// Writes what the log has to the database and empties the log.
int rx_sqlite_truncate_log(sqlite3 *db);

int rx_sqlite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **statement);
/// `*has_more`: a further statement follows in the text.
int rx_sqlite_prepare_one(sqlite3 *db, const char *sql, sqlite3_stmt **statement, bool *has_more);
/// Whether it changes nothing.
bool rx_sqlite_only_reads(sqlite3_stmt *statement);
int rx_sqlite_columns(sqlite3_stmt *statement);
const char *rx_sqlite_column_name(sqlite3_stmt *statement, int column);
int rx_sqlite_parameters(sqlite3_stmt *statement);
/// With its first character, `:`, `@` or `$`; NULL: it has no name.
const char *rx_sqlite_parameter_name(sqlite3_stmt *statement, int index);
int rx_sqlite_bind_null(sqlite3_stmt *statement, int index);
int rx_sqlite_bind_double(sqlite3_stmt *statement, int index, double value);
double rx_sqlite_double(sqlite3_stmt *statement, int column);
/// One of SQLITE_INTEGER and so on.
int rx_sqlite_type(sqlite3_stmt *statement, int column);
void rx_sqlite_finalize(sqlite3_stmt *statement);
int rx_sqlite_step(sqlite3_stmt *statement);
int rx_sqlite_reset(sqlite3_stmt *statement);
int rx_sqlite_bind_int(sqlite3_stmt *statement, int index, sqlite3_int64 value);
/// The bytes must stay until the statement is reset.
int rx_sqlite_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, size_t count);
/// The bytes are copied.
int rx_sqlite_bind_copy(sqlite3_stmt *statement, int index, const void *bytes, size_t count);
int rx_sqlite_bind_text(sqlite3_stmt *statement, int index, const char *text, size_t count);
sqlite3_int64 rx_sqlite_int(sqlite3_stmt *statement, int column);
/// Valid until the next step.
const void *rx_sqlite_bytes(sqlite3_stmt *statement, int column, size_t *count);
bool rx_sqlite_is_null(sqlite3_stmt *statement, int column);
#endif
