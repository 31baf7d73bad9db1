// postgresInsert: rows from events, one transaction for each batch.
//
// The batch is sent in one go (libpq's pipeline mode, or COPY) and confirmed behind COMMIT. If the server refuses a
// value, the batch is sent again row by row with savepoints, so that only the rows at fault are refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres.h"

typedef struct {
  session session;
  char **columns;  // quoted nowhere
  char ***paths;   // of each column the members that lead to its value; an empty one is the whole event
  int column_count;
  char *insert, *copy;  // statements; `copy` is NULL in mode insert
  Oid *types;
  buffer *values;       // of one row
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
  free(self->insert);
  free(self->copy);
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
      refuse_opening(opening, "this is no path of a member, such as customer.name, nor '.' for the whole event", at.bytes);
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

static int make_statements(insert *self, const rxd_opening *opening, const char *table, char **keys) {
  bool updates = is_choice(opening, "conflict", "update"), ignores = is_choice(opening, "conflict", "ignore");
  if (updates && (keys == NULL || keys[0] == NULL))
    return refuse_opening(opening, "'conflict: update' needs the keys that tell rows apart", "keys");
  if (keys != NULL && !updates && !ignores)
    return refuse_opening(opening, "keys belong to 'conflict: update' or 'conflict: ignore'", "keys");
  for (char **key = keys; key != NULL && *key != NULL; key++) {
    if (!contains(self->columns, *key)) return refuse_opening(opening, "each key must be one of the columns", "keys");
  }
  bool copies = is_choice(opening, "mode", "copy");
  if (copies && (updates || ignores))
    return refuse_opening(opening, "COPY cannot resolve conflicts; use 'mode: insert'", "mode");
  buffer names = {0}, marks = {0}, statement = {0};
  for (int column = 0; column < self->column_count; column++) {
    if (column > 0) append_text(&names, ", "), append_text(&marks, ", ");
    append_identifier(&names, self->columns[column]);
    append_format(&marks, "$%d", column + 1);
  }
  append_text(&statement, "INSERT INTO ");
  append_name(&statement, table);
  append_text(&statement, " ("), append_text(&statement, names.bytes);
  append_text(&statement, ") VALUES ("), append_text(&statement, marks.bytes);
  append_text(&statement, ")");
  if (updates || ignores) {
    append_text(&statement, " ON CONFLICT ");
    for (char **key = keys; key != NULL && *key != NULL; key++) {
      append_text(&statement, key == keys ? "(" : ", ");
      append_identifier(&statement, *key);
    }
    if (keys != NULL && keys[0] != NULL) append_text(&statement, ") ");
    bool is_first = true;
    for (int column = 0; updates && column < self->column_count; column++) {
      if (contains(keys, self->columns[column])) continue;
      append_text(&statement, is_first ? "DO UPDATE SET " : ", ");
      is_first = false;
      append_identifier(&statement, self->columns[column]);
      append_text(&statement, " = excluded.");
      append_identifier(&statement, self->columns[column]);
    }
    if (is_first) append_text(&statement, "DO NOTHING");
  }
  self->insert = statement.bytes;
  if (copies) {
    buffer copy = {0};
    append_text(&copy, "COPY ");
    append_name(&copy, table);
    append_text(&copy, " ("), append_text(&copy, names.bytes), append_text(&copy, ") FROM STDIN");
    self->copy = copy.bytes;
  }
  free(names.bytes);
  free(marks.bytes);
  return RXD_OK;
}

static int insert_open(const rxd_opening *opening, void **instance) {
  insert *self = allocate(sizeof *self);
  char *table = text_parameter(opening, "table");
  char **keys = list_parameter(opening, "keys");
  int status = table == NULL || *table == 0 ? refuse_opening(opening, "the name of the table is empty", "table") : RXD_OK;
  if (status == RXD_OK) status = take_columns(self, opening);
  if (status == RXD_OK) status = make_statements(self, opening, table, keys);
  if (status == RXD_OK) status = open_session(&self->session, opening);
  free(table);
  free_list(keys);
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
  row_refused,  // said in the verdicts, now or before
} row_state;

typedef struct {
  insert *self;
  rxd_scope *scope;
  const rxd_batch *batch;
  rxd_verdicts *verdicts;
  char *rows;  // a row_state each
  int good;    // how many
  fault fault;  // of what has failed last
} work;

static const rxd_input *input_at(const work *work, size_t index) {
  return (const rxd_input *)((const char *)work->batch->inputs + index * work->batch->input_size);
}

static void refuse_row(work *work, size_t index, const char *message) {
  host->refuse(work->verdicts, index, text_of(message));
  work->rows[index] = row_refused;
  work->good--;
}

/// Fills `self->values`, and `texts` with NULL for SQL's NULL. False: the row was refused.
static bool fill_row(work *work, size_t index, const char **texts) {
  insert *self = work->self;
  const rxd_input *input = input_at(work, index);
  rxd_value whole = input->event;
  // The parameter `row`, if the file has one.
  if (input->argument_count > 0 && host->kind(&input->arguments[0]) != RXD_ABSENT) whole = input->arguments[0];
  for (int column = 0; column < self->column_count; column++) {
    rxd_value value = whole;
    for (char **part = self->paths[column]; *part != NULL; part++)
      value = host->member(work->scope, &value, text_of(*part));
    buffer *to = &self->values[column];
    to->count = 0;
    bool is_null;
    if (!text_of_value(work->scope, self->types[column], &value, to, &is_null)) {
      buffer message = {0};
      append_text(&message, "the text for column '"), append_text(&message, self->columns[column]);
      append_text(&message, "' has a zero byte, which PostgreSQL cannot store");
      refuse_row(work, index, message.bytes);
      free(message.bytes);
      return false;
    }
    texts[column] = is_null ? NULL : to->bytes;
  }
  return true;
}

static bool lost(work *work) {
  if (work->self->session.connection != NULL && work->self->session.error.count == 0)
    take_error(&work->self->session, NULL);
  disconnect(&work->self->session);
  work->fault = fault_passing;
  return false;
}

/// Takes the answer to one command in a pipeline. `*fault` and the error are of the first one that fails.
static bool take_answer(work *work, int64_t deadline, fault *fault) {
  session *session = &work->self->session;
  for (;;) {
    bool ok;
    PGresult *result = next_result(session, deadline, &ok);
    if (!ok) return false;
    if (result == NULL) return true;
    ExecStatusType status = PQresultStatus(result);
    if (*fault == fault_none && status != PGRES_PIPELINE_ABORTED && (*fault = fault_of(result)) != fault_none)
      take_error(session, result);
    PQclear(result);
    if (status == PGRES_PIPELINE_SYNC) return true;
  }
}

/// All rows in one transaction, by a pipeline. False with `fault`.
static bool insert_all(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  PGconn *connection = session->connection;
  int64_t deadline = now() + session->timeout;
  const char **texts = allocate((size_t)self->column_count * sizeof(char *));
  int sent = 0;
  session->error.count = 0;
  bool is_good = PQenterPipelineMode(connection) && PQsendQueryParams(connection, "BEGIN", 0, NULL, NULL, NULL, NULL, 0);
  for (size_t index = 0; is_good && index < work->batch->count; index++) {
    if (input_at(work, index)->kind != RXD_EVENT || work->rows[index] == row_refused || !fill_row(work, index, texts)) continue;
    is_good = PQsendQueryPrepared(connection, "row", self->column_count, texts, NULL, NULL, 0);
    // Written as it comes, so that it does not pile up here.
    if (is_good && ++sent % 64 == 0) {
      deadline = now() + session->timeout;
      is_good = flush_session(session, deadline);
    }
  }
  free(texts);
  is_good = is_good && PQsendQueryParams(connection, "COMMIT", 0, NULL, NULL, NULL, NULL, 0) &&
            PQpipelineSync(connection) && flush_session(session, deadline);
  work->fault = fault_none;
  // BEGIN, the rows, COMMIT, the end of the pipeline.
  for (int answer = 0; is_good && answer < sent + 3; answer++) {
    fault before = work->fault;
    is_good = take_answer(work, now() + session->timeout, &work->fault);
    // Only now: a deferred constraint.
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

/// COPY's text form of a row.
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

/// All rows in one transaction, by COPY. False with `fault`.
static bool copy_all(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  session->error.count = 0;
  if (!run_simple(session, "BEGIN", &work->fault)) return false;
  PGresult *result = run_command(session, self->copy, 0, NULL);
  work->fault = fault_of(result);
  PQclear(result);
  if (work->fault == fault_none) {
    const char **texts = allocate((size_t)self->column_count * sizeof(char *));
    buffer rows = {0};
    bool is_good = true;
    for (size_t index = 0; is_good && index < work->batch->count; index++) {
      if (input_at(work, index)->kind == RXD_EVENT && work->rows[index] != row_refused && fill_row(work, index, texts))
        append_copy_row(self, texts, &rows);
      if (rows.count < 65536 && index + 1 < work->batch->count) continue;
      if (rows.count > 0) is_good = put_copy(work, &rows);
      rows.count = 0;
    }
    free(texts);
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

/// Row by row with savepoints: rows that are at fault are refused. False with `fault`.
static bool insert_each(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  const char **texts = allocate((size_t)self->column_count * sizeof(char *));
  bool is_good = run_simple(session, "BEGIN", &work->fault);
  for (size_t index = 0; is_good && index < work->batch->count; index++) {
    if (input_at(work, index)->kind != RXD_EVENT || work->rows[index] == row_refused || !fill_row(work, index, texts)) continue;
    is_good = run_simple(session, "SAVEPOINT one", &work->fault);
    if (!is_good) break;
    int64_t deadline = now() + session->timeout;
    work->fault = fault_none;
    if (!PQsendQueryPrepared(session->connection, "row", self->column_count, texts, NULL, NULL, 0) ||
        !flush_session(session, deadline) || !take_answer(work, deadline, &work->fault)) {
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
      // Said only now: after a lost connection the row comes again.
      if (is_good) refuse_row(work, index, message.bytes);
      free(message.bytes);
    } else {
      is_good = false;
    }
  }
  free(texts);
  if (is_good) return run_simple(session, "COMMIT", &work->fault);
  disconnect(session);
  return false;
}

/// Connects and prepares the statement. False with `fault`.
static bool prepare(work *work) {
  insert *self = work->self;
  session *session = &self->session;
  work->fault = fault_passing;
  if (session->connection != NULL) return true;
  if (!connect_session(session)) return false;
  int64_t deadline = now() + session->timeout;
  work->fault = fault_none;
  if (!PQsendPrepare(session->connection, "row", self->insert, 0, NULL) || !flush_session(session, deadline) ||
      !take_answer(work, deadline, &work->fault))
    return lost(work);
  if (work->fault == fault_none &&
      (!PQsendDescribePrepared(session->connection, "row") || !flush_session(session, deadline)))
    return lost(work);
  bool ok = true;
  PGresult *result;
  while (work->fault == fault_none && (result = next_result(session, deadline, &ok)) != NULL) {
    for (int column = 0; column < self->column_count && column < PQnparams(result); column++)
      self->types[column] = PQparamtype(result, column);
    PQclear(result);
  }
  if (!ok) return lost(work);
  if (work->fault == fault_none) return true;
  disconnect(session);
  return false;
}

static int insert_write(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  insert *self = instance;
  work work = {.self = self, .scope = scope, .batch = batch, .verdicts = verdicts, .good = (int)batch->count};
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
    // A connection that was idle may have been closed long ago, and a changed table needs a new statement: try a new
    // connection at once.
    if (!had_connection || self->session.is_stopping) break;
    had_connection = false;
    disconnect(&self->session);
  }
  free(work.rows);
  host->fail(scope, text_of(self->session.error.bytes), text_of(work.fault == fault_setting ? "table" : ""));
  return work.fault == fault_setting ? RXD_FAILED : RXD_RETRY;
}

const rxd_component insert_component = {
    .size = sizeof(rxd_component), .name = {"postgresInsert", 14}, .kind = {"sink", 4},
    .open = insert_open, .close = insert_close, .write = insert_write};
