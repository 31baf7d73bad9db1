// postgresNotify: LISTEN and NOTIFY.
#include <stdlib.h>
#include <string.h>

#include "postgres.h"

typedef struct {
  session session;
  char *command;  // LISTEN ...; LISTEN ...
  bool is_json;
} notify;

static void notify_close(void *instance) {
  notify *self = instance;
  close_session(&self->session);
  free(self->command);
  free(self);
}

static int notify_open(const rxd_opening *opening, void **instance) {
  notify *self = allocate(sizeof *self);
  char **channels = list_parameter(opening, "channels");
  buffer command = {0};
  int status = channels == NULL || channels[0] == NULL ? refuse_opening(opening, "name a channel", "channels") : RXD_OK;
  for (char **channel = channels; channel != NULL && *channel != NULL; channel++) {
    if (**channel == 0 || strlen(*channel) > 63) {
      status = refuse_opening(opening, "the name of a channel has 1 to 63 bytes", "channels");
    }
    append_text(&command, "LISTEN ");
    append_identifier(&command, *channel);
    append_text(&command, ";");
  }
  free_list(channels);
  self->command = command.bytes;
  self->is_json = is_choice(opening, "decode", "json");
  if (status == RXD_OK) status = open_session(&self->session, opening);
  if (status != RXD_OK) {
    notify_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

static int send_notification(notify *self, rxd_source *source, const PGnotify *notification) {
  rxd_scope *scope = host->source_scope(source);
  const rxd_text names[] = {RXD_TEXT_OF("channel"), RXD_TEXT_OF("payload"), RXD_TEXT_OF("process")};
  rxd_value values[3] = {host->make_text(scope, text_of(notification->relname)), host->make_null(),
                         host->make_int(notification->be_pid)};
  rxd_text payload = text_of(notification->extra);
  if (!self->is_json) {
    values[1] = host->make_text(scope, payload);
  } else if (host->parse_json(scope, payload, &values[1]) != RXD_OK) {
    buffer message = {0};
    append_text(&message, "a notification of channel '"), append_text(&message, notification->relname);
    append_text(&message, "' is not JSON");
    host->reject_input(source, payload, (rxd_text){message.bytes, message.count}, 0);
    free(message.bytes);
    return RXD_OK;
  }
  rxd_value event = host->make_object(scope, names, values, 3);
  return host->add(source, &event, 0);
}

static int notify_run(void *instance, rxd_scope *scope, rxd_source *source) {
  notify *self = instance;
  session *session = &self->session;
  session->source = source;
  int64_t delay = 500000000;
  while (!session->is_stopping) {
    if (session->connection == NULL) {
      bool is_again = session->was_connected;
      if (connect_session(session)) {
        fault fault;
        if (!run_simple(session, self->command, &fault)) {
          if (fault != fault_passing) {
            host->fail(scope, text_of(session->error.bytes), text_of("channels"));
            return RXD_FAILED;
          }
          disconnect(session);
        } else if (is_again) {
          log_message(session, "warning", "notifications sent while there was no connection are lost");
        }
      }
      if (session->is_stopping) break;
      if (session->connection == NULL) {
        report_down(session);
        if (!pause_source(session, delay)) break;
        if (delay < 30000000000) delay *= 2;
        continue;
      }
      delay = 500000000;
    }
    // Wakes after an hour or at a notification; the server's keepalives detect a dead connection.
    PGnotify *notification;
    while ((notification = PQnotifies(session->connection)) != NULL) {
      int status = send_notification(self, source, notification);
      PQfreemem(notification);
      if (status == RXD_STOP) return RXD_OK;
    }
    if (host->flush(source) == RXD_STOP) return RXD_OK;
    int64_t deadline = now() + 3600000000000;
    if (!wait_for(session, false, deadline)) continue;
    if (!PQconsumeInput(session->connection) || PQstatus(session->connection) != CONNECTION_OK) {
      set_error(session, PQerrorMessage(session->connection));
      disconnect(session);
      report_down(session);
    }
  }
  return RXD_OK;
}

const rxd_component notify_component = {
    .size = sizeof(rxd_component), .name = {"postgresNotify", 14}, .kind = {"source", 6},
    .open = notify_open, .close = notify_close, .run = notify_run};
