// What the parts of the plugin share.
#ifndef RXD_POSTGRES_H
#define RXD_POSTGRES_H
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "rxd_plugin.h"

extern const rxd_host *host;

// ---- Texts ----

rxd_text text_of(const char *string);
/// A copy with a zero at the end, made by `malloc`; ends the process when there is no memory.
char *copy_text(rxd_text text);
void *allocate(size_t count);

/// A growing text with a zero at the end.
typedef struct {
  char *bytes;
  size_t count, room;
} buffer;
void append(buffer *buffer, const char *bytes, size_t count);
void append_text(buffer *buffer, const char *string);
void append_format(buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- Parameters ----

rxd_value parameter(const rxd_opening *opening, const char *name);
/// NULL if the parameter is absent.
char *text_parameter(const rxd_opening *opening, const char *name);
int64_t integer_parameter(const rxd_opening *opening, const char *name);
bool bool_parameter(const rxd_opening *opening, const char *name);
/// The value of a choice is `choice`.
bool is_choice(const rxd_opening *opening, const char *name, const char *choice);
/// NULL-terminated; NULL if the parameter is absent. Freed with `free_list`.
char **list_parameter(const rxd_opening *opening, const char *name);
void free_list(char **list);
/// Says why and returns RXD_FAILED.
int refuse_opening(const rxd_opening *opening, const char *message, const char *at);

// ---- Connections ----

/// What to do about an error of the server.
typedef enum {
  fault_none,
  fault_passing,  // try again: connection, shutdown, resources, conflicts of transactions
  fault_setting,  // of the settings: no such table, no right
  fault_row,      // of the values
} fault;

typedef struct {
  PGconn *connection;  // NULL: none
  rxd_instance *instance;
  char **names, **values;  // of PQconnectStartParams
  char *secret;            // the password, which no message may hold; NULL: none
  int64_t connect_timeout, statement_timeout, timeout;  // nanoseconds
  rxd_source *source;      // NULL: of a sink
  bool is_stopping;
  bool was_connected;
  bool is_down;            // has been logged
  char *last_error;        // the last one logged while down
  buffer error;            // why the last call has failed
} session;

int open_session(session *session, const rxd_opening *opening);
void close_session(session *session);
void disconnect(session *session);
int64_t now(void);
/// False with `error` set.
bool connect_session(session *session);
/// Waits until something can be read, or also written, at most until `deadline`. False: not so, with `error` set.
bool wait_for(session *session, bool also_write, int64_t deadline);
/// Sleeps; false if the source is to stop.
bool pause_source(session *session, int64_t nanoseconds);
/// Writes out what libpq holds.
bool flush_session(session *session, int64_t deadline);
/// The next result, or NULL at the end of the results of a command. `*ok` is false if the connection has failed.
PGresult *next_result(session *session, int64_t deadline, bool *ok);
/// Runs one command and returns its last result, NULL if the connection has failed. A result with an error is
/// returned, with `error` set.
PGresult *run_command(session *session, const char *command, int count, const char *const *values);
/// The same, when only success counts.
bool run_simple(session *session, const char *command, fault *fault);
fault fault_of(const PGresult *result);
/// The server's message on one line, without secrets, into `error`.
void take_error(session *session, const PGresult *result);
void set_error(session *session, const char *message);
/// Logs that the connection is gone, once for each reason.
void report_down(session *session);
void log_message(session *session, const char *level, const char *message);
/// `name`, or `schema.name`, quoted.
void append_name(buffer *buffer, const char *name);
void append_identifier(buffer *buffer, const char *name);

// ---- Values ----

/// A value of the server in text form as a value of rxd.
rxd_value value_of_text(rxd_scope *scope, Oid type, const char *text, size_t count);
/// A value of rxd in text form for a parameter of `type`, with a zero at the end. `*is_null`: SQL's NULL. False: it
/// has a zero byte.
bool text_of_value(rxd_scope *scope, Oid type, const rxd_value *value, buffer *to, bool *is_null);

extern const rxd_component query_component, notify_component, insert_component;
#endif
