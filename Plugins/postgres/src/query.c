// postgresQuery: polls a table or a query by a growing key.
//
// A row whose transaction commits late can have a smaller key than rows that were already read. So a table is read only
// up to the greatest visible key, and only when every transaction that was writing to the table at that moment has
// ended: INSERT locks the table before it takes a number from the sequence.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres.h"

typedef struct {
  session session;
  char *limit_query;   // selects the current greatest key and the writers; NULL: rows are read without waiting
  char *first_query, *next_query;
  char *writers_query;
  char *last;          // the key after which it continues; NULL: from the first row
  bool has_begun;      // `last` is valid
  bool only_new;
  bool is_once;
  int64_t every, batch;
} query;

static void query_close(void *instance) {
  query *self = instance;
  close_session(&self->session);
  free(self->limit_query);
  free(self->first_query);
  free(self->next_query);
  free(self->writers_query);
  free(self->last);
  free(self);
}

static char *make(const char *format, const char *a, const char *b, const char *c, const char *d) {
  char *made = NULL;
  if (asprintf(&made, format, a, b, c, d) < 0) abort();
  return made;
}

static int prepare_queries(query *self, const rxd_opening *opening) {
  char *table = text_parameter(opening, "table"), *sql = text_parameter(opening, "query");
  char *key = text_parameter(opening, "key");
  char **columns = list_parameter(opening, "columns");
  buffer from = {0}, quoted = {0};
  int status = RXD_OK;
  if ((table == NULL) == (sql == NULL)) {
    status = refuse_opening(opening, "give either a table or a query", table == NULL ? "" : "query");
  } else if (columns != NULL && table == NULL) {
    status = refuse_opening(opening, "columns belong to a table; name them in the query", "columns");
  } else {
    append_identifier(&quoted, key == NULL ? "" : key);
    if (table != NULL) {
      append_text(&from, "SELECT ");
      bool has_key = columns == NULL;
      for (char **column = columns; column != NULL && *column != NULL; column++) {
        if (strcmp(*column, key) == 0) has_key = true;
        append_identifier(&from, *column);
        append_text(&from, ", ");
      }
      if (columns == NULL) append_text(&from, "*, ");
      if (has_key) from.count -= 2;
      else append_text(&from, quoted.bytes);
      from.bytes[from.count] = 0;
      append_text(&from, " FROM ");
      append_name(&from, table);
    } else {
      append_text(&from, sql);
      while (from.count > 0 && strchr("; \n\t\r", from.bytes[from.count - 1])) from.bytes[--from.count] = 0;
    }
    char limit[32];
    snprintf(limit, sizeof limit, "%" PRId64, self->batch + 1);
    // Adds the key again as the last column, in text format. The empty line ends a comment of the query.
    const char *ending = table != NULL && is_choice(opening, "writers", "wait") ? "<= $1" : "IS NOT NULL";
    bool has_limit = ending[0] == '<';
    self->first_query = make("SELECT q.*, q.%1$s::text FROM (%2$s\n) AS q WHERE q.%1$s %4$s ORDER BY q.%1$s LIMIT %3$s",
                             quoted.bytes, from.bytes, limit, ending);
    self->next_query = make(has_limit ? "SELECT q.*, q.%1$s::text FROM (%2$s\n) AS q WHERE q.%1$s <= $1 AND q.%1$s > $2 "
                                        "ORDER BY q.%1$s LIMIT %3$s"
                                      : "SELECT q.*, q.%1$s::text FROM (%2$s\n) AS q WHERE q.%1$s > $1 "
                                        "ORDER BY q.%1$s LIMIT %3$s%4$s",
                            quoted.bytes, from.bytes, limit, "");
    // The snapshot is older than the check of the locks, so no writer of a smaller key is overlooked.
    buffer name = {0}, literal = {0};
    if (table != NULL) {
      append_name(&name, table);
      append_text(&literal, "'");
      for (const char *at = name.bytes; *at != 0; at++) append(&literal, *at == '\'' ? "''" : at, *at == '\'' ? 2 : 1);
      append_text(&literal, "'");
    }
    self->limit_query = make(
        table == NULL ? "SELECT (SELECT q.%1$s::text FROM (%2$s\n) AS q WHERE q.%1$s IS NOT NULL ORDER BY q.%1$s DESC "
                        "LIMIT 1), ''%3$s%4$s"
                      : "SELECT (SELECT q.%1$s::text FROM (%2$s\n) AS q WHERE q.%1$s IS NOT NULL ORDER BY q.%1$s DESC "
                        "LIMIT 1), (SELECT coalesce(string_agg(virtualtransaction, ','), '') FROM pg_locks WHERE locktype = 'relation' AND relation = "
                        "%4$s::regclass AND mode = 'RowExclusiveLock' AND granted AND database = (SELECT oid FROM "
                        "pg_database WHERE datname = current_database()))%3$s",
        quoted.bytes, from.bytes, "", literal.bytes == NULL ? "" : literal.bytes);
    if (has_limit) {
      self->writers_query = make(
          "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND relation = %1$s::regclass AND mode = "
          "'RowExclusiveLock' AND granted AND virtualtransaction = ANY (string_to_array($1, ','))%2$s%3$s%4$s",
          literal.bytes, "", "", "");
    }
    free(name.bytes);
    free(literal.bytes);
  }
  free(table);
  free(sql);
  free(key);
  free_list(columns);
  free(from.bytes);
  free(quoted.bytes);
  return status;
}

static int query_open(const rxd_opening *opening, void **instance) {
  query *self = allocate(sizeof *self);
  self->every = integer_parameter(opening, "every");
  self->batch = integer_parameter(opening, "batch");
  self->only_new = is_choice(opening, "start", "new");
  self->is_once = bool_parameter(opening, "once");
  // "-": from the first row; "=KEY": after that row.
  if (opening->position.bytes != NULL && opening->position.count > 0) {
    self->has_begun = true;
    if (opening->position.bytes[0] == '=')
      self->last = copy_text((rxd_text){opening->position.bytes + 1, opening->position.count - 1});
  }
  if (open_session(&self->session, opening) != RXD_OK || prepare_queries(self, opening) != RXD_OK) {
    query_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static void save_position(query *self, rxd_source *source) {
  buffer position = {0};
  append_text(&position, self->last == NULL ? "-" : "=");
  if (self->last != NULL) append_text(&position, self->last);
  host->position(source, (rxd_text){position.bytes, position.count});
  free(position.bytes);
}

typedef enum { poll_all, poll_some, poll_failed, poll_stopped, poll_fatal } outcome;

static outcome failure(query *self, rxd_scope *scope, const PGresult *result) {
  if (self->session.is_stopping) return poll_stopped;
  if (fault_of(result) == fault_passing) return poll_failed;
  host->fail(scope, text_of(self->session.error.bytes), text_of(""));
  return poll_fatal;
}

/// Waits until the transactions that were writing have ended. If another one has got the same number since, this
/// waits for it too.
static outcome wait_for_writers(query *self, rxd_scope *scope, const char *writers) {
  int64_t delay = 1000000;
  while (writers[0] != 0) {
    PGresult *result = run_command(&self->session, self->writers_query, 1, &writers);
    if (fault_of(result) != fault_none) {
      outcome outcome = failure(self, scope, result);
      PQclear(result);
      return outcome;
    }
    bool is_over = strcmp(PQgetvalue(result, 0, 0), "0") == 0;
    PQclear(result);
    if (is_over) break;
    if (!pause_source(&self->session, delay)) return poll_stopped;
    if (delay < 250000000) delay *= 2;
  }
  return poll_some;
}

/// Sends the rows as events, with the position after them.
static outcome send_rows(query *self, rxd_scope *scope, rxd_source *source, const PGresult *result) {
  int rows = PQntuples(result), columns = PQnfields(result) - 1;
  if (rows > self->batch) {
    // Rows with the same key stay together: those with the last key are left to the next batch.
    const char *beyond = PQgetvalue(result, rows - 1, columns);
    while (rows > 0 && strcmp(PQgetvalue(result, rows - 1, columns), beyond) == 0) rows--;
    if (rows == 0) {
      buffer message = {0};
      append_format(&message, "more than %lld rows have the key %.100s; raise 'batch' or choose a key without duplicates",
                    (long long)self->batch, beyond);
      host->fail(scope, text_of(message.bytes), text_of("batch"));
      free(message.bytes);
      return poll_fatal;
    }
  }
  rxd_text *names = allocate((size_t)columns * sizeof *names);
  rxd_value *values = allocate((size_t)columns * sizeof *values);
  for (int column = 0; column < columns; column++) names[column] = text_of(PQfname(result, column));
  outcome outcome = rows < PQntuples(result) ? poll_some : poll_all;
  for (int row = 0; row < rows; row++) {
    if (row > 0 && row % 1000 == 0 && host->flush(source) == RXD_STOP) {
      outcome = poll_stopped;
      break;
    }
    rxd_scope *at = host->source_scope(source);
    for (int column = 0; column < columns; column++) {
      values[column] = PQgetisnull(result, row, column)
                           ? host->make_null()
                           : value_of_text(at, PQftype(result, column), PQgetvalue(result, row, column),
                                           (size_t)PQgetlength(result, row, column));
    }
    rxd_value event = host->make_object(at, names, values, (size_t)columns);
    if (host->add(source, &event, 0) == RXD_STOP) {
      outcome = poll_stopped;
      break;
    }
    // The position follows the last row with a key.
    const char *key = PQgetvalue(result, row, columns);
    if (row + 1 == rows || strcmp(PQgetvalue(result, row + 1, columns), key) != 0) {
      free(self->last);
      self->last = copy_text(text_of(key));
      save_position(self, source);
    }
  }
  free(names);
  free(values);
  if (outcome != poll_stopped && host->flush(source) == RXD_STOP) outcome = poll_stopped;
  return outcome;
}

static outcome poll_rows(query *self, rxd_scope *scope, rxd_source *source) {
  session *session = &self->session;
  if (session->connection == NULL && !connect_session(session)) return session->is_stopping ? poll_stopped : poll_failed;
  char *limit = NULL;
  bool begins = !self->has_begun && self->only_new;
  if (self->writers_query != NULL || begins) {
    PGresult *result = run_command(session, self->limit_query, 0, NULL);
    if (fault_of(result) != fault_none) {
      outcome outcome = failure(self, scope, result);
      PQclear(result);
      return outcome;
    }
    if (!PQgetisnull(result, 0, 0)) limit = copy_text(text_of(PQgetvalue(result, 0, 0)));
    char *writers = copy_text(text_of(PQgetvalue(result, 0, 1)));
    PQclear(result);
    outcome waited = poll_some;
    if (begins) {
      // Starts after the current greatest key.
      self->has_begun = true;
      self->last = limit == NULL ? NULL : copy_text(text_of(limit));
      save_position(self, source);
      waited = host->flush(source) == RXD_STOP ? poll_stopped : poll_all;
    } else if (limit == NULL || (self->last != NULL && strcmp(limit, self->last) == 0)) {
      waited = poll_all;
    } else {
      waited = wait_for_writers(self, scope, writers);
    }
    free(writers);
    if (waited != poll_some) {
      free(limit);
      return waited;
    }
  }
  self->has_begun = true;
  const char *values[2];
  int count = 0;
  if (self->writers_query != NULL) values[count++] = limit;
  if (self->last != NULL) values[count++] = self->last;
  PGresult *result = run_command(session, self->last == NULL ? self->first_query : self->next_query, count, values);
  free(limit);
  outcome outcome;
  if (fault_of(result) != fault_none) outcome = failure(self, scope, result);
  else if (PQntuples(result) == 0) outcome = poll_all;
  else outcome = send_rows(self, scope, source, result);
  PQclear(result);
  return outcome;
}

static int query_run(void *instance, rxd_scope *scope, rxd_source *source) {
  query *self = instance;
  self->session.source = source;
  int64_t delay = 500000000;
  for (;;) {
    int64_t due = now() + self->every;
    switch (poll_rows(self, scope, source)) {
      case poll_some: continue;  // more rows may follow
      case poll_stopped: return RXD_OK;
      case poll_fatal: return RXD_FAILED;
      case poll_all:
        delay = 500000000;
        self->session.is_down = false;
        if (self->is_once) return RXD_OK;
        if (!pause_source(&self->session, due - now())) return RXD_OK;
        break;
      case poll_failed:
        report_down(&self->session);
        if (!pause_source(&self->session, delay)) return RXD_OK;
        if (delay < 30000000000) delay *= 2;
        break;
    }
  }
}

const rxd_component query_component = {
    .size = sizeof(rxd_component), .name = {"postgresQuery", 13}, .kind = {"source", 6},
    .open = query_open, .close = query_close, .run = query_run};
