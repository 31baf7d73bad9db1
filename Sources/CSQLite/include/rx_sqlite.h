// libsqlite3, loaded when the first database is opened: a process without one does not map it. No other function may be
// called before `rx_sqlite_load` has returned true.
#ifndef RX_SQLITE_H
#define RX_SQLITE_H
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Loads the library if it is not loaded. False: it cannot be loaded; the reason is written to `why`, at most `size`
/// bytes with the final 0. Thread-safe.
bool rx_sqlite_load(char *why, size_t size);

/// Opens `path` in the way that stores need: extended result codes, double-quoted strings refused, defensive, no
/// trusted schema. From the first read on, this connection has exclusive use of the file, and it maps no memory that
/// the file system may fail to back. `*frames` is the number of pages in the log after the last commit; the log grows
/// until ``rx_sqlite_checkpoint``. `*db` is set even after a failure, unless memory is short.
int rx_sqlite_open(const char *path, int *frames, sqlite3 **db);
/// Opens a store for reading, without locks, while another connection may have it open. The result is undefined if the
/// other makes a checkpoint or restarts its log meanwhile. Neither the file nor its log is changed.
int rx_sqlite_open_beside(const char *path, sqlite3 **db);
/// Opens a file that no process writes to, for reading: without locks, and without the two files that SQLite keeps next
/// to it. The result of reading is undefined if the file is written to after all.
int rx_sqlite_open_quiet(const char *path, sqlite3 **db);
/// Opens a database that belongs to others, with the same settings; symbolic links are followed.
int rx_sqlite_open_foreign(const char *path, bool writable, bool creates, sqlite3 **db);

/// The limits of a connection's statements. Must outlive the connection.
typedef struct {
  /// If not 0, statements end with SQLITE_INTERRUPT. Set only by ``rx_sqlite_stop``.
  int stop;
  /// On the monotonic clock, in nanoseconds; a statement that is still running then ends with SQLITE_INTERRUPT. 0: no
  /// deadline.
  int64_t deadline;
  /// How long a statement waits while others have locked the file, in nanoseconds.
  int64_t busy;
  int64_t busy_since;
} rx_sqlite_limits;
void rx_sqlite_limit(sqlite3 *db, rx_sqlite_limits *limits);
/// May be called on any thread.
void rx_sqlite_stop(rx_sqlite_limits *limits);
/// Closing the connection will leave the log as it is.
void rx_sqlite_keep_log(sqlite3 *db);
int rx_sqlite_close(sqlite3 *db);
int rx_sqlite_exec(sqlite3 *db, const char *sql);
const char *rx_sqlite_message(sqlite3 *db);
const char *rx_sqlite_name(int code);
int rx_sqlite_changes(sqlite3 *db);
bool rx_sqlite_in_transaction(sqlite3 *db);
/// The errno of the last failed system call of the connection; 0: none has failed.
int rx_sqlite_errno(sqlite3 *db);
/// Moves the log into the database; `*is_whole`: whether all of it was moved. The next commit then restarts the log.
int rx_sqlite_checkpoint(sqlite3 *db, bool *is_whole);
/// Moves the log into the database and empties the log.
int rx_sqlite_truncate_log(sqlite3 *db);

int rx_sqlite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **statement);
/// `*has_more`: whether a further statement follows in the text.
int rx_sqlite_prepare_one(sqlite3 *db, const char *sql, sqlite3_stmt **statement, bool *has_more);
/// Whether the statement changes nothing.
bool rx_sqlite_only_reads(sqlite3_stmt *statement);
int rx_sqlite_columns(sqlite3_stmt *statement);
const char *rx_sqlite_column_name(sqlite3_stmt *statement, int column);
int rx_sqlite_parameters(sqlite3_stmt *statement);
/// The name with its first character, `:`, `@` or `$`; NULL: the parameter has no name.
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
/// The bytes must stay valid until the statement is reset.
int rx_sqlite_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, size_t count);
/// The bytes are copied.
int rx_sqlite_bind_copy(sqlite3_stmt *statement, int index, const void *bytes, size_t count);
int rx_sqlite_bind_text(sqlite3_stmt *statement, int index, const char *text, size_t count);
sqlite3_int64 rx_sqlite_int(sqlite3_stmt *statement, int column);
/// Valid until the next step.
const void *rx_sqlite_bytes(sqlite3_stmt *statement, int column, size_t *count);
bool rx_sqlite_is_null(sqlite3_stmt *statement, int column);
#endif
