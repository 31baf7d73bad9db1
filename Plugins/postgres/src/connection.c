// Connections: settings, waiting until a deadline or a source's stop, errors without secrets.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "postgres.h"

int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// ---- Settings ----

static void put_setting(session *session, int *count, const char *name, const char *value) {
  session->names[*count] = copy_text(text_of(name));
  session->values[*count] = copy_text(text_of(value));
  ++*count;
}

int open_session(session *session, const rxd_opening *opening) {
  static const char *const parts[][2] = {{"host", "host"},         {"port", "port"},       {"database", "dbname"},
                                         {"user", "user"},         {"password", "password"}, {"sslmode", "sslmode"},
                                         {"sslrootcert", "sslrootcert"}};
  enum { part_count = sizeof parts / sizeof parts[0], most = part_count + 10 };
  session->instance = opening->instance;
  session->connect_timeout = integer_parameter(opening, "connectTimeout");
  // The server's own time limit ends a statement before the connection is closed, so that no locks remain.
  session->statement_timeout = integer_parameter(opening, "timeout");
  session->timeout = session->statement_timeout + 1000000000;
  session->names = allocate((most + 1) * sizeof(char *));
  session->values = allocate((most + 1) * sizeof(char *));
  int count = 0;
  // libpq uses the last value of a setting, so `conninfo` overrides this one.
  put_setting(session, &count, "fallback_application_name", "rxd");
  put_setting(session, &count, "keepalives_idle", "30");
  put_setting(session, &count, "keepalives_interval", "10");
  put_setting(session, &count, "keepalives_count", "3");
  char *conninfo = text_parameter(opening, "conninfo");
  bool has_conninfo = conninfo != NULL;
  if (conninfo != NULL) {
    // libpq's message may quote a part of the password.
    PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
    if (options == NULL) {
      free(conninfo);
      return refuse_opening(
          opening, "this is not a connection string, such as 'host=db dbname=shop user=rxd' or 'postgresql://rxd@db/shop'",
          "conninfo");
    }
    for (PQconninfoOption *option = options; option->keyword != NULL; option++) {
      if (option->val != NULL && strcmp(option->keyword, "password") == 0) session->secret = copy_text(text_of(option->val));
    }
    PQconninfoFree(options);
    put_setting(session, &count, "dbname", conninfo);
    free(conninfo);
  }
  for (int index = 0; index < part_count; index++) {
    rxd_value value = parameter(opening, parts[index][0]);
    int kind = host->kind(&value);
    if (kind == RXD_ABSENT || kind == RXD_NULL) continue;
    if (has_conninfo) {
      return refuse_opening(opening, "give either conninfo or the parts of a connection", parts[index][0]);
    }
    char number[32];
    char *text = NULL;
    if (kind == RXD_TEXT) text = copy_text(host->text(opening->scope, &value));
    snprintf(number, sizeof number, "%lld", (long long)host->integer(&value));
    put_setting(session, &count, parts[index][1], text == NULL ? number : text);
    if (strcmp(parts[index][0], "password") == 0) session->secret = copy_text(text_of(text == NULL ? number : text));
    free(text);
  }
  put_setting(session, &count, "client_encoding", "UTF8");
  return RXD_OK;
}

void disconnect(session *session) {
  if (session->connection != NULL) PQfinish(session->connection);
  session->connection = NULL;
}

void close_session(session *session) {
  disconnect(session);
  free_list(session->names);
  free_list(session->values);
  if (session->secret != NULL) explicit_bzero(session->secret, strlen(session->secret));
  free(session->secret);
  free(session->last_error);
  free(session->error.bytes);
}

// ---- Errors ----

void set_error(session *session, const char *message) {
  buffer *to = &session->error;
  to->count = 0;
  append_text(to, "");
  size_t secret = session->secret == NULL ? 0 : strlen(session->secret);
  while (*message != 0) {
    if (secret > 0 && strncmp(message, session->secret, secret) == 0) {
      append_text(to, "(secret)");
      message += secret;
    } else if (*message == '\n' || *message == '\t') {
      // Joins the message into one line; its later lines are indented.
      while (*message == '\n' || *message == '\t' || *message == ' ') message++;
      if (*message != 0) append_text(to, "; ");
    } else {
      append(to, message++, 1);
    }
  }
  while (to->count > 0 && (to->bytes[to->count - 1] == '.' || to->bytes[to->count - 1] == ' ')) to->bytes[--to->count] = 0;
}

static void take_connection_error(session *session) {
  const char *message = session->connection == NULL ? "" : PQerrorMessage(session->connection);
  set_error(session, message != NULL && *message != 0 ? message : "the connection is lost");
}

void take_error(session *session, const PGresult *result) {
  const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
  if (message == NULL) {
    take_connection_error(session);
    return;
  }
  buffer text = {0};
  append_text(&text, message);
  if (detail != NULL) append_text(&text, "; "), append_text(&text, detail);
  append_format(&text, " (%s)", PQresultErrorField(result, PG_DIAG_SQLSTATE));
  set_error(session, text.bytes);
  free(text.bytes);
}

fault fault_of(const PGresult *result) {
  switch (result == NULL ? PGRES_FATAL_ERROR : PQresultStatus(result)) {
    case PGRES_COMMAND_OK: case PGRES_TUPLES_OK: case PGRES_COPY_IN: case PGRES_PIPELINE_SYNC: return fault_none;
    default: break;
  }
  const char *state = result == NULL ? NULL : PQresultErrorField(result, PG_DIAG_SQLSTATE);
  if (state == NULL) return fault_passing;
  // Temporary: connection, transaction state (a read-only standby), rollbacks, resources, locks, shutdown, system,
  // internal.
  static const char passing[][3] = {"08", "25", "40", "53", "55", "57", "58", "F0", "XX"};
  // Settings: unsupported feature, authorization, missing database, schema or table, missing privilege.
  static const char setting[][3] = {"0A", "28", "3D", "3F", "42"};
  for (size_t index = 0; index < sizeof passing / sizeof passing[0]; index++) {
    if (strncmp(state, passing[index], 2) == 0) return fault_passing;
  }
  for (size_t index = 0; index < sizeof setting / sizeof setting[0]; index++) {
    if (strncmp(state, setting[index], 2) == 0) return fault_setting;
  }
  return fault_row;
}

void log_message(session *session, const char *level, const char *message) {
  host->log(session->instance, text_of(level), text_of(message));
}

void report_down(session *session) {
  const char *message = session->error.bytes == NULL ? "" : session->error.bytes;
  if (session->is_down && session->last_error != NULL && strcmp(session->last_error, message) == 0) return;
  session->is_down = true;
  free(session->last_error);
  session->last_error = copy_text(text_of(message));
  buffer text = {0};
  append_text(&text, session->was_connected ? "no connection to the database; trying again: "
                                            : "cannot connect to the database; trying again: ");
  append_text(&text, message);
  log_message(session, "warning", text.bytes);
  free(text.bytes);
}

// ---- Waiting ----

static bool look_at_stop(session *session) {
  if (session->source == NULL ? host->is_closing(session->instance) : host->is_stopping(session->source))
    session->is_stopping = true;
  return session->is_stopping;
}

/// Waits for `descriptor` (-1: none) or the stop. 1: ready; 0: the deadline has passed; -1: the source must stop.
static int wait_descriptor(session *session, int descriptor, short events, int64_t deadline) {
  for (;;) {
    if (look_at_stop(session)) return -1;
    int64_t left = deadline - now();
    if (left < 0) left = 0;
    // A sink has no wake descriptor, so it polls.
    int64_t most = session->source == NULL ? 100000000 : 3600000000000;
    if (left > most) left = most;
    struct pollfd waits[2] = {{.fd = descriptor, .events = events},
                              {.fd = session->source == NULL ? -1 : host->wake_descriptor(session->source), .events = POLLIN}};
    int ready = poll(waits, 2, (int)((left + 999999) / 1000000));
    if (ready < 0 && errno != EINTR) return 0;
    if (ready > 0 && waits[1].revents != 0) {
      // Discards acknowledgements: the position makes them redundant.
      rxd_ack acks[64];
      while (host->acks(session->source, acks, 64, 0) == 64) continue;
    }
    if (ready > 0 && waits[0].revents != 0) return 1;
    if (now() >= deadline) return look_at_stop(session) ? -1 : 0;
  }
}

bool pause_source(session *session, int64_t nanoseconds) {
  return wait_descriptor(session, -1, 0, now() + nanoseconds) == 0;
}

bool wait_for(session *session, bool also_write, int64_t deadline) {
  short events = also_write ? POLLIN | POLLOUT : POLLIN;
  switch (wait_descriptor(session, PQsocket(session->connection), events, deadline)) {
    case 1: return true;
    case 0: set_error(session, "the server has not answered in time"); return false;
    default: set_error(session, "stopped"); return false;
  }
}

bool flush_session(session *session, int64_t deadline) {
  for (;;) {
    int left = PQflush(session->connection);
    if (left == 0) return true;
    if (left < 0) break;
    if (!wait_for(session, true, deadline)) return false;
    // The server may not read until its answers have been read.
    if (!PQconsumeInput(session->connection)) break;
  }
  take_connection_error(session);
  return false;
}

PGresult *next_result(session *session, int64_t deadline, bool *ok) {
  *ok = false;
  while (PQisBusy(session->connection)) {
    if (!wait_for(session, false, deadline)) return NULL;
    if (!PQconsumeInput(session->connection)) {
      take_connection_error(session);
      return NULL;
    }
  }
  *ok = true;
  return PQgetResult(session->connection);
}

PGresult *run_command(session *session, const char *command, int count, const char *const *values) {
  int64_t deadline = now() + session->timeout;
  int sent = count == 0 ? PQsendQuery(session->connection, command)
                        : PQsendQueryParams(session->connection, command, count, NULL, values, NULL, NULL, 0);
  if (!sent || !flush_session(session, deadline)) {
    if (!sent) take_connection_error(session);
    disconnect(session);
    return NULL;
  }
  PGresult *last = NULL;
  for (;;) {
    bool ok;
    PGresult *result = next_result(session, deadline, &ok);
    if (!ok) {
      PQclear(last);
      disconnect(session);
      return NULL;
    }
    if (result == NULL) break;
    // Of several commands, the first error is reported.
    if (last != NULL && fault_of(last) != fault_none) {
      PQclear(result);
    } else {
      PQclear(last);
      last = result;
    }
    if (PQresultStatus(last) == PGRES_COPY_IN) return last;
  }
  if (fault_of(last) != fault_none) {
    take_error(session, last);
    if (PQstatus(session->connection) != CONNECTION_OK) disconnect(session);
  }
  return last;
}

bool run_simple(session *session, const char *command, fault *kind) {
  PGresult *result = run_command(session, command, 0, NULL);
  *kind = fault_of(result);
  PQclear(result);
  return *kind == fault_none;
}

// ---- Connecting ----

static void ignore_notice(void *context, const PGresult *result) { (void)context, (void)result; }

bool connect_session(session *session) {
  int64_t deadline = now() + session->connect_timeout;
  disconnect(session);
  session->connection = PQconnectStartParams((const char *const *)session->names, (const char *const *)session->values, 1);
  if (session->connection == NULL) abort();
  PQsetNoticeReceiver(session->connection, ignore_notice, NULL);
  PostgresPollingStatusType status = PGRES_POLLING_WRITING;
  while (PQstatus(session->connection) != CONNECTION_BAD) {
    int ready = wait_descriptor(session, PQsocket(session->connection),
                                status == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline);
    if (ready <= 0) {
      disconnect(session);
      set_error(session, ready < 0 ? "stopped" : "the server has not answered in time");
      return false;
    }
    status = PQconnectPoll(session->connection);
    if (status == PGRES_POLLING_FAILED) break;
    if (status != PGRES_POLLING_OK) continue;
    PQsetnonblocking(session->connection, 1);
    // Confirmed rows must be on the server's disk; times have one fixed format.
    char command[600];
    snprintf(command, sizeof command,
             "SET TimeZone TO 'UTC'; SET DateStyle TO 'ISO'; SET IntervalStyle TO 'iso_8601'; SET bytea_output TO 'hex'; "
             "SET extra_float_digits TO 1; SET statement_timeout TO %lld; SELECT set_config('synchronous_commit', 'on', "
             "false) WHERE current_setting('synchronous_commit') = 'off'",
             (long long)(session->statement_timeout / 1000000));
    fault fault;
    if (!run_simple(session, command, &fault)) {
      disconnect(session);
      return false;
    }
    if (session->is_down || session->was_connected) {
      log_message(session, "info", "connected to the database again");
      host->count_up(session->instance, RXD_TEXT_OF("reconnects"), 1);
    }
    session->was_connected = true;
    session->is_down = false;
    return true;
  }
  take_connection_error(session);
  disconnect(session);
  return false;
}

// ---- Names ----

void append_identifier(buffer *to, const char *name) {
  append_text(to, "\"");
  for (; *name != 0; name++) append(to, *name == '"' ? "\"\"" : name, *name == '"' ? 2 : 1);
  append_text(to, "\"");
}

void append_name(buffer *to, const char *name) {
  const char *dot = strchr(name, '.');
  if (dot == NULL) {
    append_identifier(to, name);
    return;
  }
  char *schema = copy_text((rxd_text){name, (size_t)(dot - name)});
  append_identifier(to, schema);
  free(schema);
  append_text(to, ".");
  append_identifier(to, dot + 1);
}
