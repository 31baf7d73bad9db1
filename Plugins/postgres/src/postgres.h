// Declarations that the plugin's files share.
#ifndef RXD_POSTGRES_H
#define RXD_POSTGRES_H
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "rxd_plugin.h"

extern const rxd_host *host;

// ---- Texts ----

rxd_text text_of(const char *string);
/// A zero-terminated copy, allocated with `malloc`; ends the process if memory is short.
char *copy_text(rxd_text text);
void *allocate(size_t count);

/// A growing zero-terminated text.
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
/// Whether the parameter's value is `choice`.
bool is_choice(const rxd_opening *opening, const char *name, const char *choice);
/// NULL-terminated; NULL if the parameter is absent. Freed with `free_list`.
char **list_parameter(const rxd_opening *opening, const char *name);
void free_list(char **list);
/// Reports the reason and returns RXD_FAILED.
int refuse_opening(const rxd_opening *opening, const char *message, const char *at);

// ---- Connections ----

/// How to handle an error of the server.
typedef enum {
  fault_none,
  fault_passing,  // retry: connection, shutdown, resources, transaction conflicts
  fault_setting,  // wrong settings: missing table, missing privilege
  fault_row,      // wrong values
} fault;

typedef struct {
  PGconn *connection;  // NULL: none
  rxd_instance *instance;
  char **names, **values;  // arguments of PQconnectStartParams
  char *secret;            // the password, which no message may contain; NULL: none
  int64_t connect_timeout, statement_timeout, timeout;  // nanoseconds
  rxd_source *source;      // NULL: the session belongs to a sink
  bool is_stopping;
  bool was_connected;
  bool is_down;            // the failure has been logged
  char *last_error;        // the last error logged while down
  buffer error;            // why the last call failed
} session;

int open_session(session *session, const rxd_opening *opening);
void close_session(session *session);
void disconnect(session *session);
int64_t now(void);
/// False with `error` set.
bool connect_session(session *session);
/// Waits until data can be read (or also written), at most until `deadline`. False on failure, with `error` set.
bool wait_for(session *session, bool also_write, int64_t deadline);
/// Sleeps; false if the source must stop.
bool pause_source(session *session, int64_t nanoseconds);
/// Sends the data that libpq has buffered.
bool flush_session(session *session, int64_t deadline);
/// The next result, or NULL after the last result of a command. `*ok` is false if the connection has failed.
PGresult *next_result(session *session, int64_t deadline, bool *ok);
/// Runs one command and returns its last result, NULL if the connection has failed. A result with an error is
/// returned, with `error` set.
PGresult *run_command(session *session, const char *command, int count, const char *const *values);
/// Runs a command of which only success matters.
bool run_simple(session *session, const char *command, fault *fault);
fault fault_of(const PGresult *result);
/// Sets `error` to the server's message, on one line and without secrets.
void take_error(session *session, const PGresult *result);
void set_error(session *session, const char *message);
/// Logs that the connection is lost, once for each reason.
void report_down(session *session);
void log_message(session *session, const char *level, const char *message);
/// Appends `name`, or `schema.name`, quoted.
void append_name(buffer *buffer, const char *name);
void append_identifier(buffer *buffer, const char *name);

// ---- Values ----

/// Converts a server value in text format to a value of rxd.
rxd_value value_of_text(rxd_scope *scope, Oid type, const char *text, size_t count);
/// Converts a value of rxd to the zero-terminated text format of a parameter of `type`. `*is_null`: SQL's NULL.
/// False: it contains a zero byte.
bool text_of_value(rxd_scope *scope, Oid type, const rxd_value *value, buffer *to, bool *is_null);

extern const rxd_component query_component, notify_component, insert_component;
#endif
