/* The source `mqtt`.
 *
 * libmosquitto creates the PUBACK of a message before it delivers the message, and offers no alternative. But if it is
 * told that other threads write (mosquitto_threaded_set), it only queues the packet and sends it with the next
 * mosquitto_loop_write. So this source reads the available messages, passes them to rxd as a window, and writes
 * nothing until rxd has acknowledged all of them. If the process or the connection ends earlier, the queue is lost
 * too, and the broker sends those messages again. Meanwhile PINGREQs that bypass the queue keep the connection alive:
 * they are allowed between any two packets, and during a window no packet is half written. */
#include "client.h"

typedef struct source {
  client client; /* must be first: callbacks receive it */
  attempts attempts;
  settings settings;
  char **topics;
  size_t topic_count;
  int qos;
  bool as_json;
  uint32_t expiry; /* session expiry in seconds */
  int window;
  /* Set while the source runs. */
  rxd_source *source;
  uint64_t generation; /* number of the window, used as the token of its events */
  uint32_t under_way;  /* events of the window without rxd's answer */
  uint32_t added;      /* at least the events since the last flush */
  bool has_failed;     /* rxd could not deliver an event of the window */
  bool is_told_to_stop;
  unsigned windows_failed; /* failed windows in a row */
  size_t subscribed;
  bool was_subscribed; /* the broker has accepted all subscriptions once, and may do so again */
  char refused[300];   /* a refused subscription */
  char suspect[200];   /* see `attempts` */
} source;

static void source_close(void *opaque) {
  source *self = opaque;
  settings_close(&self->settings);
  for (size_t i = 0; i < self->topic_count; i++) free(self->topics[i]);
  free(self->topics);
  free(self);
}

static int topics_parameter(const rxd_opening *opening, source *self) {
  rxd_value list = parameter(opening, "topics");
  size_t given = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  if (given == 0) return fail_at(opening->scope, "topics", "needs a topic");
  self->topics = need(calloc(given, sizeof *self->topics));
  for (size_t i = 0; i < given; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    rxd_text text = host->text(opening->scope, &element);
    char at[32];
    snprintf(at, sizeof at, "topics.%zu", i);
    char *topic = self->topics[self->topic_count++] = copy_text(text);
    if (text.count == 0) return fail_at(opening->scope, at, "must not be empty");
    if (strlen(topic) != text.count || text.count > 65535 || mosquitto_sub_topic_check(topic) != MOSQ_ERR_SUCCESS)
      return fail_at(opening->scope, at,
                     "is not a topic filter: '+' stands for one whole level, '#' for all at the end");
    if (strncmp(topic, "$share/", 7) != 0) continue;
    const char *group = topic + 7, *filter = strchr(group, '/');
    if (filter == group || filter == NULL || filter[1] == 0 || memchr(group, '+', (size_t)(filter - group))
        || memchr(group, '#', (size_t)(filter - group)))
      return fail_at(opening->scope, at, "a shared subscription has the form $share/GROUP/FILTER");
  }
  return RXD_OK;
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->attempts = (attempts){.instance = opening->instance, .counter = "connectionErrors", .again = "reconnecting",
                              .works = "connected again"};
  int status = settings_open(opening, &self->settings);
  if (self->settings.client_id != NULL) {
    snprintf(self->suspect, sizeof self->suspect, " (is another client connected as '%.150s'?)", self->settings.client_id);
    self->attempts.suspect = self->suspect;
  }
  if (status == RXD_OK) status = topics_parameter(opening, self);
  self->qos = (int)integer_parameter(opening, "qos", 1);
  self->as_json = choice_is(opening, "decode", "json");
  self->window = (int)integer_parameter(opening, "window", 1000);
  self->expiry = (uint32_t)(milliseconds_parameter(opening, "sessionExpiry", 604800000) / 1000);
  if (status == RXD_OK && self->qos > 0 && self->settings.client_id == NULL)
    status = fail_at(opening->scope, "clientID",
                     "is needed with 'qos: 1': the broker keeps messages for a client that it knows again");
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

/* ---- Messages ---- */

static void on_message(struct mosquitto *mosquitto, void *owner, const struct mosquitto_message *message,
                       const mosquitto_property *properties) {
  (void)mosquitto;
  source *self = owner;
  if (self->is_told_to_stop) {
    /* The message was not passed on, so it must not be acknowledged. */
    self->has_failed = self->has_failed || message->qos > 0;
    return;
  }
  rxd_scope *scope = host->source_scope(self->source);
  const char *payload = message->payloadlen > 0 ? message->payload : "";
  size_t payload_count = (size_t)message->payloadlen;
  uint64_t token = message->qos > 0 ? self->generation : 0;
  if (message->qos > 0) self->under_way++;
  rxd_text names[10] = {RXD_TEXT_OF("topic"), RXD_TEXT_OF("payload"), RXD_TEXT_OF("qos"), RXD_TEXT_OF("retained")};
  rxd_value values[10] = {
    host->make_text(scope, text_of(message->topic)),
    value_of_bytes(scope, payload, payload_count),
    host->make_int(message->qos),
    host->make_bool(message->retain),
  };
  size_t count = 4;
  if (self->as_json && !decode_json(scope, payload, payload_count, &values[1])) {
    host->reject_input(self->source, (rxd_text){payload, payload_count}, RXD_TEXT_OF("the payload is not a JSON document"),
                       token);
    return;
  }
  static const struct {
    int property;
    const char *name;
  } texts[] = {{MQTT_PROP_CONTENT_TYPE, "contentType"}, {MQTT_PROP_RESPONSE_TOPIC, "responseTopic"}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    char *text = NULL;
    if (mosquitto_property_read_string(properties, texts[i].property, &text, false) == NULL) continue;
    names[count] = text_of(texts[i].name);
    values[count++] = host->make_text(scope, text_of(text));
    free(text);
  }
  void *binary = NULL;
  uint16_t binary_count;
  if (mosquitto_property_read_binary(properties, MQTT_PROP_CORRELATION_DATA, &binary, &binary_count, false) != NULL) {
    names[count] = RXD_TEXT_OF("correlationData");
    values[count++] = value_of_bytes(scope, binary == NULL ? "" : binary, binary_count);
    free(binary);
  }
  /* A name may be repeated; the last one wins. */
  rxd_text keys[64];
  rxd_value contents[64];
  size_t pairs = 0;
  char *key = NULL, *content = NULL;
  const mosquitto_property *pair =
    mosquitto_property_read_string_pair(properties, MQTT_PROP_USER_PROPERTY, &key, &content, false);
  while (pair != NULL) {
    rxd_value name = host->make_text(scope, text_of(key));
    rxd_text text = host->text(scope, &name);
    size_t place = 0;
    while (place < pairs && !text_is(keys[place], text)) place++;
    if (place < sizeof keys / sizeof keys[0]) {
      keys[place] = text;
      contents[place] = host->make_text(scope, text_of(content));
      if (place == pairs) pairs++;
    }
    free(key);
    free(content);
    key = content = NULL;
    pair = mosquitto_property_read_string_pair(pair, MQTT_PROP_USER_PROPERTY, &key, &content, true);
  }
  if (pairs > 0) {
    names[count] = RXD_TEXT_OF("properties");
    values[count++] = host->make_object(scope, keys, contents, pairs);
  }
  rxd_value event = host->make_object(scope, names, values, count);
  if (host->add(self->source, &event, token) == RXD_STOP) self->is_told_to_stop = true;
  if (++self->added < 1000) return;
  self->added = 0;
  if (host->flush(self->source) == RXD_STOP) self->is_told_to_stop = true;
}

/* The broker confirms subscriptions in the order of the requests. */
static void on_subscribe(struct mosquitto *mosquitto, void *owner, int id, int count, const int *granted) {
  (void)mosquitto;
  (void)id;
  source *self = owner;
  const char *topic = self->subscribed < self->topic_count ? self->topics[self->subscribed] : "";
  self->subscribed++;
  int code = count > 0 ? granted[0] : 128;
  if (code >= 128)
    snprintf(self->refused, sizeof self->refused, "the broker refuses the subscription to '%.200s'%s%s", topic,
             self->settings.is_v5 ? ": " : "", self->settings.is_v5 ? mosquitto_reason_string(code) : "");
  else if (code < self->qos)
    report(self->attempts.instance, "warning", "%s grants QoS %d instead of %d for '%s': messages can be lost",
           self->settings.server_text, code, self->qos, topic);
}

/* ---- The window ---- */

static void judge(void *opaque, const rxd_ack *ack) {
  source *self = opaque;
  if (ack->token != self->generation || self->under_way == 0) return; /* QoS 0, or from an earlier connection */
  self->under_way--;
  if (ack->is_failed) self->has_failed = true;
}

static void take_acks(source *self, int64_t wait_ms) { take_all_acks(self->source, wait_ms, judge, self, NULL); }

/* Waits until rxd has answered for the whole window. False: the window must not be acknowledged. */
static bool settle(source *self) {
  int64_t half = self->client.keep_alive > 0 ? self->client.keep_alive * 500 : INT64_MAX / 2;
  int64_t ping_at = now_ms() + half, end = 0;
  while (self->under_way > 0) {
    if (host->is_stopping(self->source) != 0) {
      /* A stop leaves it some time; unsettled messages are sent again later. */
      bool is_over = host->is_stopping(self->source) == 2;
      if (end == 0) end = now_ms() + 30000;
      if (is_over) take_acks(self, 0);
      if (self->under_way > 0 && (is_over || now_ms() >= end)) return false;
      if (is_over) break;
    }
    int64_t now = now_ms();
    if (now >= ping_at) {
      /* If this fails, the connection is lost, which is noticed when the window is acknowledged. */
      client_send_raw(&self->client, PINGREQ);
      ping_at = now + half;
    }
    int64_t wait = ping_at - now;
    take_acks(self, wait > 1000 ? 1000 : wait);
  }
  return !self->has_failed;
}

/* ---- Running ---- */

static int asks(void *argument) { return host->is_stopping(argument); }

__attribute__((format(printf, 3, 4))) static void trouble(source *self, const char *at, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  attempt_trouble(&self->attempts, self->settings.server_text, at, format, arguments);
  va_end(arguments);
}

static outcome lose(source *self) {
  trouble(self, "", "%s", self->client.problem[0] != 0 ? self->client.problem : "the connection is lost");
  return UNREACHABLE;
}

/* Makes a new connection; the broker repeats messages that were not acknowledged on the last one. */
static outcome join(void *opaque) {
  source *self = opaque;
  stopping stop = {asks, self->source};
  bool clean = self->qos == 0;
  self->generation++;
  self->under_way = 0;
  self->has_failed = false;
  self->subscribed = 0;
  client_make(&self->client, &self->settings, clean, self->window, self);
  mosquitto_message_v5_callback_set(self->client.mosquitto, on_message);
  mosquitto_subscribe_callback_set(self->client.mosquitto, on_subscribe);
  outcome outcome = client_connect(&self->client, &self->settings, clean, self->expiry, &stop);
  if (outcome == REFUSED) trouble(self, "server", "%s", self->client.problem);
  for (size_t i = 0; i < self->topic_count && outcome == DONE; i++)
    if (mosquitto_subscribe(self->client.mosquitto, NULL, self->topics[i], self->qos) != MOSQ_ERR_SUCCESS)
      outcome = UNREACHABLE;
  return outcome == UNREACHABLE ? lose(self) : outcome;
}

/* Reads at most a window of messages and passes it to rxd. A busy broker sends messages in many segments, and each
 * window costs a round trip through rxd, so it is worth a short wait for the next segment. */
static bool read_window(source *self) {
  int64_t end = now_ms() + 20;
  bool is_alive = client_read(&self->client);
  while (is_alive && self->under_way < (uint32_t)self->window && !self->is_told_to_stop && now_ms() < end
         && client_has_input(&self->client, self->under_way > 0 ? 1 : 0))
    is_alive = client_read(&self->client);
  self->added = 0;
  if (host->flush(self->source) == RXD_STOP) self->is_told_to_stop = true;
  return is_alive;
}

/* Writes pending packets and reads a window if data is available. False: the connection is lost. */
static bool exchange(source *self) {
  client *client = &self->client;
  /* No message is outstanding, so everything may be written. */
  if (!client_flush(client, self->settings.timeout)) return false;
  if (client->keep_alive > 0 && mosquitto_loop_misc(client->mosquitto) != MOSQ_ERR_SUCCESS) return false;
  int64_t wait = client->keep_alive > 0 ? client->keep_alive * 250 : 60000;
  if (client_wait(client, host->wake_descriptor(self->source), wait) != 0) return read_window(self);
  take_acks(self, 0);
  return true;
}

static outcome serve(void *opaque) {
  source *self = opaque;
  bool is_alive = true;
  /* With TLS, messages of the session may arrive together with the CONNACK. */
  if (self->under_way == 0) is_alive = exchange(self);
  else if (host->flush(self->source) == RXD_STOP) self->is_told_to_stop = true;
  /* Queued messages of a session may arrive before the SUBACK. */
  bool has_events = self->under_way > 0;
  bool is_usable = is_alive && (has_events || self->subscribed == self->topic_count) && self->refused[0] == 0;
  if (is_usable && self->attempts.connected_at == 0) attempt_works(&self->attempts, self->settings.server_text);
  /* Messages already passed on are settled first, even if the connection is lost: otherwise the next one would
   * repeat them while they are still outstanding. */
  bool is_settled = settle(self);
  if (self->refused[0] != 0) {
    snprintf(self->attempts.problem, sizeof self->attempts.problem, "%s", self->refused);
    snprintf(self->attempts.at, sizeof self->attempts.at, "topics");
    self->refused[0] = 0;
    return self->was_subscribed ? UNREACHABLE : REFUSED;
  }
  self->was_subscribed = self->was_subscribed || self->subscribed == self->topic_count;
  if (!is_alive) return lose(self);
  if (is_settled && has_events) self->windows_failed = 0;
  if (is_settled) return DONE;
  /* rxd could not deliver an event, so the broker must send it again on a new connection. A DISCONNECT that
   * overtakes the queue discards the acknowledgements in it and keeps the last will from being published. */
  host->count_up(self->attempts.instance, RXD_TEXT_OF("failedWindows"), 1);
  client_leave(&self->client);
  self->attempts.connected_at = 0;
  pause_source(self->source, backoff_ms(2 + self->windows_failed++));
  return host->is_stopping(self->source) != 0 ? DONE : join(self);
}

static void leave(void *opaque, bool is_lost) {
  source *self = opaque;
  if (!is_lost && self->client.mosquitto != NULL && !self->has_failed && self->client.is_connected
      && client_flush(&self->client, 1000))
    client_leave(&self->client);
  client_destroy(&self->client);
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  static const reader reader = {join, serve, leave};
  source *self = opaque;
  self->source = running;
  return reader_run(&reader, self, &self->attempts, scope, running);
}

const rxd_component mqtt_source = {
  .size = sizeof(rxd_component),
  .name = {"mqtt", 4},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
