// postgresInsert: inserts rows made from events, one transaction per batch.
//
// The batch is sent at once (libpq's pipeline mode, or COPY) and confirmed after COMMIT. If the server refuses a value,
// the batch is sent again row by row with savepoints, so that only the offending rows are refused. Without COPY each event
// has its own statement, in the order of the events, so a later one sees the effect of earlier ones.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres.h"

static const char no_key_for_retraction[] = "retracting a row needs its key, which only 'mode: upsert' has";

// The indexes of the expression parameters.
enum { argument_row, argument_retracted };

typedef struct {
  session session;
  char **columns;  // not quoted
  char ***paths;   // for each column, the member path of its value; an empty path is the whole event
  bool *is_key;    // for each column, whether it belongs to the key
  int column_count, key_count;
  char *insert, *copy, *delete;  // statements; `copy` is NULL unless the mode is copy, `delete` if no event retracts a row
  Oid *types;
  buffer *values;       // the values of one row
  bool checks_at_commit;  // a deferred constraint has failed
} insert;

static void insert_close(void *instance) {
  insert *self = instance;
  close_session(&self->session);
  for (int column = 0; column < self->column_count; column++) {
    free_list(self->paths[column]);
    free(self->values[column].bytes);
  }
  free_list(self->columns);
  free(self->paths);
  free(self->values);
  free(self->types);
  free(self->is_key);
  free(self->insert);
  free(self->copy);
  free(self->delete);
  free(self);
}

// ---- Settings ----

/// "customer.name" as a list; "." as an empty one.
static char **split_path(const char *path) {
  size_t count = 1;
  for (const char *at = path; *at != 0; at++) count += *at == '.';
  char **made = allocate((count + 1) * sizeof(char *));
  if (strcmp(path, ".") == 0) return made;
  for (size_t index = 0; index < count; index++) {
    const char *end = strchrnul(path, '.');
    made[index] = copy_text((rxd_text){path, (size_t)(end - path)});
    path = end + 1;
  }
  return made;
}

static int take_columns(insert *self, const rxd_opening *opening) {
  rxd_value table = parameter(opening, "columns");
  size_t count = host->count(opening->scope, &table);
  if (count == 0 || count > 1600) return refuse_opening(opening, "name at least one column", "columns");
  self->columns = allocate((count + 1) * sizeof(char *));
  self->paths = allocate(count * sizeof(char **));
  self->values = allocate(count * sizeof(buffer));
  self->types = allocate(count * sizeof(Oid));
  self->is_key = allocate(count * sizeof(bool));
  for (size_t index = 0; index < count; index++) {
    rxd_text name;
    rxd_value value = host->entry(opening->scope, &table, index, &name);
    char *path = copy_text(host->text(opening->scope, &value));
    self->columns[index] = copy_text(name);
    self->paths[index] = split_path(path);
    self->column_count++;
    bool is_good = *path != 0;
    for (char **part = self->paths[index]; *part != NULL; part++) is_good = is_good && **part != 0;
    free(path);
    if (!is_good) {
      buffer at = {0};
      append_text(&at, "columns."), append_text(&at, self->columns[index]);
      refuse_opening(opening, "this is not a path of a member, such as customer.name, nor '.' for the whole event", at.bytes);
      free(at.bytes);
      return RXD_FAILED;
    }
  }
  return RXD_OK;
}

static bool contains(char **list, const char *name) {
  for (; list != NULL && *list != NULL; list++) {
    if (strcmp(*list, name) == 0) return true;
  }
  return false;
}

/// The combined meaning of the parameters `mode`, `conflict` and `key`.
typedef struct {
  bool upserts, ignores, copies;
  char **key;  // the key columns; NULL unless it upserts
} conflicts;

/// Whether the file sets the expression parameter at index `place`; `otherwise` if this rxd does not report it.
static bool is_given(const rxd_opening *opening, size_t place, bool otherwise) {
  if (opening->size < offsetof(rxd_opening, given_count) + sizeof opening->given_count || opening->given == NULL ||
      place >= opening->given_count)
    return otherwise;
  return opening->given[place] != 0;
}

static int take_key(insert *self, const rxd_opening *opening, conflicts *to) {
  to->key = list_parameter(opening, "key");
  if (to->key != NULL && !to->upserts) return refuse_opening(opening, "a key belongs to 'mode: upsert'", "key");
  if (to->upserts && (to->key == NULL || to->key[0] == NULL))
    return refuse_opening(opening, "'mode: upsert' needs the columns that tell rows apart", "key");
  for (char **column = to->key; column != NULL && *column != NULL; column++) {
    if (!contains(self->columns, *column)) return refuse_opening(opening, "each key must be one of the columns", "key");
  }
  for (int column = 0; column < self->column_count; column++) self->is_key[column] = contains(to->key, self->columns[column]);
  return RXD_OK;
}

static int take_conflicts(insert *self, const rxd_opening *opening, conflicts *to) {
  to->upserts = is_choice(opening, "mode", "upsert");
  to->copies = is_choice(opening, "mode", "copy");
  to->ignores = is_choice(opening, "conflict", "ignore");
  if (take_key(self, opening, to) != RXD_OK) return RXD_FAILED;
  if (to->upserts && to->ignores)
    return refuse_opening(opening, "'mode: upsert' says what becomes of a row that is there; leave out 'conflict'", "conflict");
  if (to->copies && to->ignores)
    return refuse_opening(opening, "COPY cannot resolve conflicts; use 'mode: insert'", "mode");
  if (!to->upserts && is_given(opening, argument_retracted, false))
    return refuse_opening(opening, no_key_for_retraction, "retracted");
  return RXD_OK;
}

static void append_columns(insert *self, buffer *to) {
  append_text(to, " (");
  for (int column = 0; column < self->column_count; column++) {
    if (column > 0) append_text(to, ", ");
    append_identifier(to, self->columns[column]);
  }
  append_text(to, ")");
}

/// Updates the row with the key; does nothing if all columns belong to the key.
static void append_upsert(insert *self, buffer *to, char **key) {
  for (char **column = key; *column != NULL; column++) {
    append_text(to, column == key ? " ON CONFLICT (" : ", ");
    append_identifier(to, *column);
  }
  append_text(to, ") ");
  bool is_first = true;
  for (int column = 0; column < self->column_count; column++) {
    if (self->is_key[column]) continue;
    append_text(to, is_first ? "DO UPDATE SET " : ", ");
    is_first = false;
    append_identifier(to, self->columns[column]);
    append_text(to, " = excluded.");
    append_identifier(to, self->columns[column]);
  }
  if (is_first) append_text(to, "DO NOTHING");
}

static char *make_insert(insert *self, const char *table, const conflicts *conflicts) {
  buffer made = {0};
  append_text(&made, "INSERT INTO ");
  append_name(&made, table);
  append_columns(self, &made);
  for (int column = 0; column < self->column_count; column++)
    append_format(&made, "%s$%d", column == 0 ? " VALUES (" : ", ", column + 1);
  append_text(&made, ")");
  if (conflicts->upserts) append_upsert(self, &made, conflicts->key);
  if (conflicts->ignores) append_text(&made, " ON CONFLICT DO NOTHING");
  return made.bytes;
}

static char *make_copy(insert *self, const char *table) {
  buffer made = {0};
  append_text(&made, "COPY ");
  append_name(&made, table);
  append_columns(self, &made);
  append_text(&made, " FROM STDIN");
  return made.bytes;
}

/// The statement's parameters are the key columns, in the order of the columns.
static char *make_delete(insert *self, const char *table) {
  buffer made = {0};
  append_text(&made, "DELETE FROM ");
  append_name(&made, table);
  int count = 0;
  for (int column = 0; column < self->column_count; column++) {
    if (!self->is_key[column]) continue;
    append_text(&made, count == 0 ? " WHERE " : " AND ");
    append_identifier(&made, self->columns[column]);
    append_format(&made, " = $%d", ++count);
  }
  self->key_count = count;
  return made.bytes;
}

static int make_statements(insert *self, const rxd_opening *opening, const char *table) {
  conflicts conflicts = {0};
  int status = take_conflicts(self, opening, &conflicts);
  if (status == RXD_OK) {
    self->insert = make_insert(self, table, &conflicts);
    if (conflicts.copies) self->copy = make_copy(self, table);
    if (conflicts.upserts && is_given(opening, argument_retracted, true)) self->delete = make_delete(self, table);
  }
  free_list(conflicts.key);
  return status;
}

static int insert_open(const rxd_opening *opening, void **instance) {
  insert *self = allocate(sizeof *self);
  char *table = text_parameter(opening, "table");
  int status = table == NULL || *table == 0 ? refuse_opening(opening, "the name of the table is empty", "table") : RXD_OK;
  if (status == RXD_OK) status = take_columns(self, opening);
  if (status == RXD_OK) status = make_statements(self, opening, table);
  if (status == RXD_OK) status = open_session(&self->session, opening);
  free(table);
  if (status != RXD_OK) {
    insert_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

// ---- A batch ----

typedef enum {
  row_good,
  row_refused,  // the verdict has been reported
} row_state;

typedef struct {
  insert *self;
  rxd_scope *scope;
  const rxd_batch *batch;
  rxd_verdicts *verdicts;
  char *rows;  // a row_state for each row
  int good;    // number of valid rows
  fault fault;  // kind of the last failure
  const char *at;  // the parameter that caused the failure, if any
} work;

/// The statement for an event.
typedef struct {
  const char *name;    // name of the prepared statement
  int count;           // number of its parameters
  const char **texts;  // the parameters; NULL stands for SQL's NULL
} statement;

static const rxd_input *input_at(const work *work, size_t index) {
  return (const rxd_input *)((const char *)work->batch->inputs + index * work->batch->input_size);
}

static void refuse_row(work *work, size_t index, const char *message) {
  host->refuse(work->verdicts, index, text_of(message));
  work->rows[index] = row_refused;
  work->good--;
}

static void refuse_column(work *work, size_t index, const char *before, int column, const char *after) {
  buffer message = {0};
  append_text(&message, before), append_text(&message, " '"), append_text(&message, work->self->columns[column]);
  append_text(&message, "' "), append_text(&message, after);
  refuse_row(work, index, message.bytes);
  free(message.bytes);
}

/// The result of an expression; NULL if the file does not set the parameter.
static const rxd_value *argument(const rxd_input *input, size_t place) {
  bool is_there = place < input->argument_count && host->kind(&input->arguments[place]) != RXD_ABSENT;
  return is_there ? &input->arguments[place] : NULL;
}

/// Fills `self->values[column]`; `*is_null`: the value is SQL's NULL. False: the row was refused.
static bool fill_column(work *work, size_t index, const rxd_value *whole, int column, bool *is_null) {
  insert *self = work->self;
  rxd_value value = *whole;
  for (char **part = self->paths[column]; *part != NULL; part++) value = host->member(work->scope, &value, text_of(*part));
  buffer *to = &self->values[column];
  to->count = 0;
  if (text_of_value(work->scope, self->types[column], &value, to, is_null)) return true;
  refuse_column(work, index, "the text for column", column, "has a zero byte, which PostgreSQL cannot store");
  return false;
}

/// Fills the parameters from the columns, or from the key columns. False: the row was refused.
static bool fill_row(work *work, size_t index, bool is_key_only, statement *made) {
  insert *self = work->self;
  const rxd_input *input = input_at(work, index);
  const rxd_value *row = argument(input, argument_row), *whole = row == NULL ? &input->event : row;
  made->count = 0;
  for (int column = 0; column < self->column_count; column++) {
    if (is_key_only && !self->is_key[column]) continue;
    bool is_null;
    if (!fill_column(work, index, whole, column, &is_null)) return false;
    if (is_null && is_key_only) {
      // NULL equals no value, so no row would be deleted.
      refuse_column(work, index, "the row cannot be retracted: column", column, "of its key is NULL");
      return false;
    }
    made->texts[made->count++] = is_null ? NULL : self->values[column].bytes;
  }
  return true;
}

/// Whether the event retracts its row. False: the row was refused.
static bool look_at_retraction(work *work, size_t index, bool *is_retracted) {
  const rxd_value *value = argument(input_at(work, index), argument_retracted);
  int kind = value == NULL ? RXD_NULL : host->kind(value);
  *is_retracted = kind == RXD_BOOL && host->boolean(value) != 0;
  if (kind != RXD_NULL && kind != RXD_BOOL) {
    refuse_row(work, index, "'retracted' must be true, false or null, and is something else for this event");
    return false;
  }
  if (*is_retracted && work->self->delete == NULL) {
    // This rxd does not report at the opening which expressions are set.
    refuse_row(work, index, no_key_for_retraction);
    return false;
  }
  return true;
}

/// Makes the statement for the input at `index`. False: there is none; the input is not an event, or was refused.
static bool make_statement(work *work, size_t index, statement *made) {
  if (input_at(work, index)->kind != RXD_EVENT || work->rows[index] == row_refused) return false;
  bool is_retracted;
  if (!look_at_retraction(work, index, &is_retracted)) return false;
  made->name = is_retracted ? "back" : "row";
  return fill_row(work, index, is_retracted, made);
}

static bool send_statement(session *session, const statement *made) {
  return PQsendQueryPrepared(session->connection, made->name, made->count, made->texts, NULL, NULL, 0) != 0;
}

static bool lost(work *work) {
  if (work->self->session.connection != NULL && work->self->session.error.count == 0)
    take_error(&work->self->session, NULL);
  disconnect(&work->self->session);
  work->fault = fault_passing;
  return false;
}

static bool has_state(const PGresult *result, const char *state) {
  const char *has = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  return has != NULL && strcmp(has, state) == 0;
}

/// Writing to an object that cannot be written to, such as a view or a key with a deferrable constraint, is not a
/// temporary failure.
static fault fault_of_row(const PGresult *result) { return has_state(result, "55000") ? fault_setting : fault_of(result); }

static void take_row_error(work *work, const PGresult *result) {
  session *session = &work->self->session;
  take_error(session, result);
  work->at = "table";
  if (!has_state(result, "42P10")) return;
  work->at = "key";
  buffer message = {0};
  append_text(&message, "the table needs a PRIMARY KEY or UNIQUE constraint on exactly these columns: ");
  append(&message, session->error.bytes, session->error.count);
  set_error(session, message.bytes);
  free(message.bytes);
}

/// Handles the answer to one command of a pipeline. `*fault` and the error describe the first failure.
static bool take_answer(work *work, int64_t deadline, fault *fault) {
  session *session = &work->self->session;
  for (;;) {
    bool ok;
    PGresult *result = next_result(session, deadline, &ok);
    if (!ok) return false;
    if (result == NULL) return true;
    ExecStatusType status = PQresultStatus(result);
    if (*fault == fault_none && status != PGRES_PIPELINE_ABORTED && (*fault = fault_of_row(result)) != fault_none)
      take_row_error(work, result);
    PQclear(result);
    if (status == PGRES_PIPELINE_SYNC) return true;
  }
}

/// Inserts all rows in one transaction, in pipeline mode. False with `fault`.
static bool insert_all(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  PGconn *connection = session->connection;
  int64_t deadline = now() + session->timeout;
  statement made = {.texts = allocate((size_t)self->column_count * sizeof(char *))};
  int sent = 0;
  session->error.count = 0;
  bool is_good = PQenterPipelineMode(connection) && PQsendQueryParams(connection, "BEGIN", 0, NULL, NULL, NULL, NULL, 0);
  for (size_t index = 0; is_good && index < work->batch->count; index++) {
    if (!make_statement(work, index, &made)) continue;
    is_good = send_statement(session, &made);
    // Sends regularly, so that data does not pile up here.
    if (is_good && ++sent % 64 == 0) {
      deadline = now() + session->timeout;
      is_good = flush_session(session, deadline);
    }
  }
  free(made.texts);
  is_good = is_good && PQsendQueryParams(connection, "COMMIT", 0, NULL, NULL, NULL, NULL, 0) &&
            PQpipelineSync(connection) && flush_session(session, deadline);
  work->fault = fault_none;
  // BEGIN, the rows, COMMIT, the end of the pipeline.
  for (int answer = 0; is_good && answer < sent + 3; answer++) {
    fault before = work->fault;
    is_good = take_answer(work, now() + session->timeout, &work->fault);
    // An error that appears only at COMMIT comes from a deferred constraint.
    if (answer == sent + 1 && before == fault_none && work->fault == fault_row) self->checks_at_commit = true;
  }
  if (!is_good) return lost(work);
  if (!PQexitPipelineMode(connection)) return lost(work);
  if (work->fault == fault_none) return true;
  fault fault = work->fault;
  buffer error = {0};
  append(&error, session->error.bytes, session->error.count);
  if (fault != fault_passing && !run_simple(session, "ROLLBACK", &fault)) lost(work);
  if (work->fault == fault_passing) disconnect(session);
  set_error(session, error.bytes);
  free(error.bytes);
  return false;
}

/// Appends a row in COPY's text format.
static void append_copy_row(insert *self, const char *const *texts, buffer *to) {
  for (int column = 0; column < self->column_count; column++) {
    if (column > 0) append_text(to, "\t");
    if (texts[column] == NULL) {
      append_text(to, "\\N");
      continue;
    }
    for (const char *at = texts[column]; *at != 0; at++) {
      switch (*at) {
        case '\\': append_text(to, "\\\\"); break;
        case '\n': append_text(to, "\\n"); break;
        case '\r': append_text(to, "\\r"); break;
        case '\t': append_text(to, "\\t"); break;
        default: append(to, at, 1);
      }
    }
  }
  append_text(to, "\n");
}

static bool put_copy(work *work, const buffer *rows) {
  session *session = &work->self->session;
  int64_t deadline = now() + session->timeout;
  int status;
  while ((status = PQputCopyData(session->connection, rows->bytes, (int)rows->count)) == 0) {
    if (!wait_for(session, true, deadline) || !PQconsumeInput(session->connection)) return false;
  }
  return status == 1 && flush_session(session, deadline);
}

/// Inserts all rows in one transaction, with COPY. False with `fault`.
static bool copy_all(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  session->error.count = 0;
  if (!run_simple(session, "BEGIN", &work->fault)) return false;
  PGresult *result = run_command(session, self->copy, 0, NULL);
  work->fault = fault_of(result);
  PQclear(result);
  if (work->fault == fault_none) {
    statement made = {.texts = allocate((size_t)self->column_count * sizeof(char *))};
    buffer rows = {0};
    bool is_good = true;
    for (size_t index = 0; is_good && index < work->batch->count; index++) {
      if (make_statement(work, index, &made)) append_copy_row(self, made.texts, &rows);
      if (rows.count < 65536 && index + 1 < work->batch->count) continue;
      if (rows.count > 0) is_good = put_copy(work, &rows);
      rows.count = 0;
    }
    free(made.texts);
    free(rows.bytes);
    if (!is_good) return lost(work);
    while ((is_good = PQputCopyEnd(session->connection, NULL)) == 0) {
      if (!wait_for(session, true, now() + session->timeout)) return lost(work);
    }
    if (!flush_session(session, now() + session->timeout)) return lost(work);
    if (!take_answer(work, now() + session->timeout, &work->fault)) return lost(work);
  }
  if (work->fault == fault_none) {
    if (run_simple(session, "COMMIT", &work->fault)) return true;
    if (work->fault == fault_row) self->checks_at_commit = true;
    return false;
  }
  fault ignored;
  buffer error = {0};
  append(&error, session->error.bytes, session->error.count);
  if (session->connection != NULL && !run_simple(session, "ROLLBACK", &ignored)) disconnect(session);
  set_error(session, error.bytes);
  free(error.bytes);
  return false;
}

/// Inserts row by row with savepoints and refuses offending rows. False with `fault`.
static bool insert_each(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  statement made = {.texts = allocate((size_t)self->column_count * sizeof(char *))};
  bool is_good = run_simple(session, "BEGIN", &work->fault);
  for (size_t index = 0; is_good && index < work->batch->count; index++) {
    if (!make_statement(work, index, &made)) continue;
    is_good = run_simple(session, "SAVEPOINT one", &work->fault);
    if (!is_good) break;
    int64_t deadline = now() + session->timeout;
    work->fault = fault_none;
    if (!send_statement(session, &made) || !flush_session(session, deadline) ||
        !take_answer(work, deadline, &work->fault)) {
      is_good = lost(work);
      break;
    }
    if (work->fault == fault_none && self->checks_at_commit)
      run_simple(session, "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED", &work->fault);
    if (work->fault == fault_none) {
      is_good = run_simple(session, "RELEASE one", &work->fault);
    } else if (work->fault == fault_row) {
      buffer message = {0};
      append_text(&message, "the database refuses the row: ");
      append(&message, session->error.bytes, session->error.count);
      is_good = run_simple(session, "ROLLBACK TO one; RELEASE one", &work->fault);
      // Reported only now: after a lost connection the row is repeated.
      if (is_good) refuse_row(work, index, message.bytes);
      free(message.bytes);
    } else {
      is_good = false;
    }
  }
  free(made.texts);
  if (is_good) return run_simple(session, "COMMIT", &work->fault);
  disconnect(session);
  return false;
}

/// Prepares a named statement; `types` may be NULL. False with `fault`.
static bool prepare_statement(work *work, const char *name, const char *text, int count, const Oid *types) {
  session *session = &work->self->session;
  int64_t deadline = now() + session->timeout;
  work->fault = fault_none;
  if (!PQsendPrepare(session->connection, name, text, count, types) || !flush_session(session, deadline) ||
      !take_answer(work, deadline, &work->fault))
    return lost(work);
  return work->fault == fault_none;
}

/// Gets the types of the columns. False with `fault`.
static bool describe_columns(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  int64_t deadline = now() + session->timeout;
  if (!PQsendDescribePrepared(session->connection, "row") || !flush_session(session, deadline)) return lost(work);
  bool ok = true;
  PGresult *result;
  while ((result = next_result(session, deadline, &ok)) != NULL) {
    for (int column = 0; column < self->column_count && column < PQnparams(result); column++)
      self->types[column] = PQparamtype(result, column);
    PQclear(result);
  }
  return ok || lost(work);
}

/// The key of a deleted row has the same types as when the row is written. False with `fault`.
static bool prepare_delete(work *work) {
  insert *self = work->self;
  Oid *types = allocate((size_t)self->key_count * sizeof(Oid));
  int count = 0;
  for (int column = 0; column < self->column_count; column++) {
    if (self->is_key[column]) types[count++] = self->types[column];
  }
  bool is_good = prepare_statement(work, "back", self->delete, count, types);
  free(types);
  return is_good;
}

/// Connects and prepares the statements. False with `fault`.
static bool prepare(work *work) {
  insert *self = work->self;
  work->fault = fault_passing;
  if (self->session.connection != NULL) return true;
  if (!connect_session(&self->session)) return false;
  if (prepare_statement(work, "row", self->insert, 0, NULL) && describe_columns(work) &&
      (self->delete == NULL || prepare_delete(work)))
    return true;
  disconnect(&self->session);
  return false;
}

static int insert_write(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  insert *self = instance;
  work work = {.self = self, .scope = scope, .batch = batch, .verdicts = verdicts, .good = (int)batch->count,
               .at = "table"};
  work.rows = allocate(batch->count);
  bool had_connection = self->session.connection != NULL;
  for (;;) {
    bool is_done = prepare(&work);
    if (is_done) is_done = self->copy == NULL ? insert_all(&work) : copy_all(&work);
    if (!is_done && work.fault == fault_row) is_done = insert_each(&work);
    if (is_done) {
      free(work.rows);
      return RXD_OK;
    }
    // An idle connection may have been closed long ago, and a changed table needs a new statement: tries a new
    // connection immediately.
    if (!had_connection || self->session.is_stopping) break;
    had_connection = false;
    disconnect(&self->session);
  }
  free(work.rows);
  host->fail(scope, text_of(self->session.error.bytes), text_of(work.fault == fault_setting ? work.at : ""));
  return work.fault == fault_setting ? RXD_FAILED : RXD_RETRY;
}

const rxd_component insert_component = {
    .size = sizeof(rxd_component), .name = {"postgresInsert", 14}, .kind = {"sink", 4},
    .open = insert_open, .close = insert_close, .write = insert_write};
