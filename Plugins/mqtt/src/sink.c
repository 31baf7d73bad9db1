/* The sink `mqtt`. A thread reads, writes and keeps the connection alive; `write` publishes a batch and waits for its
 * acknowledgements. After a failure the client is discarded with its queue, because libmosquitto would send the queue
 * again on the next connection, in addition to the events that rxd repeats. */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

typedef struct sink {
  client client; /* must be first: callbacks receive it */
  rxd_instance *instance;
  settings settings;
  int qos, window;
  bool retain;
  int64_t expiry; /* message expiry in seconds; 0: none */
  char *content_type;
  pthread_t thread;
  bool has_thread;
  int wake; /* eventfd: there is data to write, or the thread must stop */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  /* Protected by the mutex. */
  bool is_broken, is_ending;
  uint32_t answered;    /* answered messages of the batch */
  uint8_t state[65536]; /* by message id: 0 not answered, 1 accepted, otherwise the refusal's code */
} sink;

enum { UNANSWERED = 0, TAKEN = 1 };

static void sink_leave(sink *self);

static void sink_close(void *opaque) {
  sink *self = opaque;
  sink_leave(self);
  settings_close(&self->settings);
  free(self->content_type);
  if (self->wake >= 0) close(self->wake);
  pthread_mutex_destroy(&self->mutex);
  pthread_cond_destroy(&self->changed);
  free(self);
}

static int sink_open(const rxd_opening *opening, void **instance) {
  sink *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  init_condition(&self->changed);
  pthread_mutex_init(&self->mutex, NULL);
  self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int status = settings_open(opening, &self->settings);
  if (status == RXD_OK && self->wake < 0)
    status = fail_at(opening->scope, "", "no descriptor is left: %s", strerror(errno));
  if (status == RXD_OK) status = text_parameter(opening, "contentType", &self->content_type);
  self->qos = (int)integer_parameter(opening, "qos", 1);
  self->window = (int)integer_parameter(opening, "window", 1000);
  self->retain = boolean_parameter(opening, "retain");
  self->expiry = milliseconds_parameter(opening, "expire", 0) / 1000;
  if (status == RXD_OK && !self->settings.is_v5 && (self->expiry > 0 || self->content_type != NULL))
    status = fail_at(opening->scope, self->expiry > 0 ? "expire" : "contentType", "needs 'version: 5'");
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

/* ---- The thread ---- */

static void on_publish(struct mosquitto *mosquitto, void *owner, int id, int code,
                       const mosquitto_property *properties) {
  (void)mosquitto;
  (void)properties;
  sink *self = owner;
  pthread_mutex_lock(&self->mutex);
  if (self->state[id & 0xffff] == UNANSWERED) {
    /* 16: accepted, without a subscriber. */
    self->state[id & 0xffff] = code >= 128 ? (uint8_t)code : TAKEN;
    self->answered++;
  }
  pthread_mutex_unlock(&self->mutex);
}

static void *serve(void *opaque) {
  sink *self = opaque;
  for (;;) {
    pthread_mutex_lock(&self->mutex);
    bool ends = self->is_ending;
    uint32_t before = self->answered;
    pthread_mutex_unlock(&self->mutex);
    if (ends) break;
    int events = client_wait(&self->client, self->wake, 1000);
    uint64_t seen;
    if (read(self->wake, &seen, sizeof seen) < 0 && errno != EAGAIN) break;
    bool is_alive = true;
    /* Many packets may be waiting, and each call reads one. */
    for (int i = 0; i < 1000 && is_alive && (events & ~POLLOUT) != 0; i++) {
      is_alive = client_read(&self->client);
      events = is_alive ? client_wait(&self->client, -1, 0) : 0;
    }
    if (is_alive && mosquitto_want_write(self->client.mosquitto)) {
      int status = mosquitto_loop_write(self->client.mosquitto, 1);
      if (status != MOSQ_ERR_SUCCESS) {
        snprintf(self->client.problem, sizeof self->client.problem, "%s",
                 status == MOSQ_ERR_ERRNO ? strerror(errno) : mosquitto_strerror(status));
        is_alive = false;
      }
    }
    if (is_alive && mosquitto_loop_misc(self->client.mosquitto) != MOSQ_ERR_SUCCESS) is_alive = false;
    pthread_mutex_lock(&self->mutex);
    if (!is_alive) self->is_broken = true;
    if (!is_alive || self->answered != before) pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    if (!is_alive) break;
  }
  return NULL;
}

static void wake_thread(sink *self) {
  uint64_t one = 1;
  ssize_t written = write(self->wake, &one, sizeof one);
  (void)written; /* the counter is full, so the thread is awake */
}

/* Ends the thread and the connection, with a DISCONNECT if the connection still works. */
static void sink_leave(sink *self) {
  if (self->has_thread) {
    pthread_mutex_lock(&self->mutex);
    self->is_ending = true;
    pthread_mutex_unlock(&self->mutex);
    wake_thread(self);
    pthread_join(self->thread, NULL);
    self->has_thread = false;
  }
  if (self->client.mosquitto != NULL && self->client.is_connected && !self->is_broken) {
    if (client_flush(&self->client, 1000)) client_leave(&self->client);
  }
  client_destroy(&self->client);
}

static int is_closing(void *instance) { return host->is_closing(instance); }

static outcome join(sink *self) {
  stopping stop = {is_closing, self->instance};
  sink_leave(self);
  self->is_broken = self->is_ending = false;
  client_make(&self->client, &self->settings, true, self->window, self);
  mosquitto_publish_v5_callback_set(self->client.mosquitto, on_publish);
  outcome outcome = client_connect(&self->client, &self->settings, true, 0, &stop);
  if (outcome != DONE) return outcome;
  if (pthread_create(&self->thread, NULL, serve, self) != 0) {
    snprintf(self->client.problem, sizeof self->client.problem, "no thread can be started");
    return UNREACHABLE;
  }
  self->has_thread = true;
  return DONE;
}

/* ---- Batches ---- */

/* Publishes an event. Returns MOSQ_ERR_SUCCESS or an error; `*problem` is set if the event can never be published. */
static int publish(sink *self, rxd_scope *scope, const rxd_input *input, int *id, const mosquitto_property *properties,
                   const char **problem) {
  rxd_text text = {NULL, 0}, payload = {NULL, 0};
  if (!argument(scope, input, 0, &text) || text.count == 0) {
    *problem = "'topic' is empty for this event";
    return MOSQ_ERR_INVAL;
  }
  if (!argument(scope, input, 1, &payload)) payload = bytes_of_value(scope, &input->event);
  char *topic = copy_text(text);
  int status = MOSQ_ERR_INVAL;
  if (text.count > 65535 || strlen(topic) != text.count || mosquitto_pub_topic_check(topic) != MOSQ_ERR_SUCCESS)
    *problem = "'topic' is not a topic to publish to: it has a '+', a '#' or a zero byte, or is too long";
  else if (payload.count > MQTT_MAX_PAYLOAD) *problem = "the payload is above 256 MiB";
  else
    status = mosquitto_publish_v5(self->client.mosquitto, id, topic, (int)payload.count, payload.bytes, self->qos,
                                  self->retain, properties);
  free(topic);
  if (status == MOSQ_ERR_MALFORMED_UTF8) *problem = "'topic' has control characters";
  if (status == MOSQ_ERR_OVERSIZE_PACKET) *problem = "the message is above the largest that the broker takes";
  if (status == MOSQ_ERR_QOS_NOT_SUPPORTED) *problem = "the broker does not support this QoS";
  return status;
}

/* rxd logs the failure, and its end. */
static int again(const sink *self, rxd_scope *scope, const char *problem) {
  fail_at(scope, "", "%s: %s", self->settings.server_text, problem[0] == 0 ? "the connection is lost" : problem);
  return RXD_RETRY;
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  pthread_mutex_lock(&self->mutex);
  bool is_usable = self->has_thread && !self->is_broken;
  pthread_mutex_unlock(&self->mutex);
  if (!is_usable) {
    outcome outcome = join(self);
    if (outcome != DONE) host->count_up(self->instance, RXD_TEXT_OF("connectionErrors"), 1);
    if (outcome == REFUSED) return fail_at(scope, "server", "%s: %s", self->settings.server_text, self->client.problem);
    if (outcome != DONE) return again(self, scope, self->client.problem);
  }
  mosquitto_property *properties = NULL;
  if (self->expiry > 0)
    mosquitto_property_add_int32(&properties, MQTT_PROP_MESSAGE_EXPIRY_INTERVAL, (uint32_t)self->expiry);
  if (self->content_type != NULL)
    mosquitto_property_add_string(&properties, MQTT_PROP_CONTENT_TYPE, self->content_type);
  /* No message of an earlier batch is outstanding on this client. */
  pthread_mutex_lock(&self->mutex);
  memset(self->state, UNANSWERED, sizeof self->state);
  self->answered = 0;
  pthread_mutex_unlock(&self->mutex);
  int *ids = need(calloc(batch->count + 1, sizeof *ids)); /* 0: not published */
  uint32_t published = 0, end = batch->count;
  bool is_lost = false;
  for (uint32_t i = 0; i < end && !is_lost; i++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + i * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    const char *problem = NULL;
    int status = publish(self, scope, input, &ids[i], properties, &problem);
    if (status == MOSQ_ERR_SUCCESS) {
      published++;
    } else if (problem != NULL) {
      ids[i] = 0;
      host->refuse(verdicts, i, text_of(problem));
    } else {
      ids[i] = 0;
      is_lost = true;
      end = i;
    }
  }
  mosquitto_property_free_all(&properties);
  wake_thread(self);
  pthread_mutex_lock(&self->mutex);
  /* While acknowledgements arrive, the broker may be slow. */
  int64_t deadline = now_ms() + self->settings.timeout;
  uint32_t seen = self->answered;
  while (self->answered < published && !self->is_broken && now_ms() < deadline && !is_closing(self->instance)) {
    wait_at_most(&self->changed, &self->mutex, 1000);
    if (self->answered != seen) deadline = now_ms() + self->settings.timeout;
    seen = self->answered;
  }
  bool is_broken = self->is_broken || is_lost;
  bool timed_out = !is_broken && self->answered < published;
  /* If some are missing, all messages after the first missing one are repeated, to preserve the order. */
  uint32_t through = 0;
  char problem[256] = "";
  for (; through < end; through++) {
    int state = ids[through] == 0 ? TAKEN : self->state[ids[through] & 0xffff];
    if (state == UNANSWERED) break;
    if (state == TAKEN) continue;
    if (state == MQTT_RC_QUOTA_EXCEEDED || state == MQTT_RC_SERVER_BUSY || state == MQTT_RC_UNSPECIFIED
        || state == MQTT_RC_IMPLEMENTATION_SPECIFIC) {
      snprintf(problem, sizeof problem, "the broker does not take a message now: %s", mosquitto_reason_string(state));
      break;
    }
    snprintf(problem, sizeof problem, "the broker refuses the message: %s", mosquitto_reason_string(state));
    size_t count = strlen(problem);
    if (problem[count - 1] == '.') count--;
    host->refuse(verdicts, through, (rxd_text){problem, count});
    problem[0] = 0;
  }
  pthread_mutex_unlock(&self->mutex);
  free(ids);
  if (through == batch->count) return RXD_OK;
  host->delivered(verdicts, through);
  if (problem[0] == 0) {
    host->count_up(self->instance, RXD_TEXT_OF("connectionErrors"), 1);
    if (timed_out) snprintf(problem, sizeof problem, "no acknowledgement in time");
    pthread_mutex_lock(&self->mutex);
    self->is_broken = true;
    pthread_mutex_unlock(&self->mutex);
    sink_leave(self);
    if (problem[0] == 0) snprintf(problem, sizeof problem, "%.200s", self->client.problem);
  }
  return again(self, scope, problem);
}

const rxd_component mqtt_sink = {
  .size = sizeof(rxd_component),
  .name = {"mqtt", 4},
  .kind = {"sink", 4},
  .open = sink_open,
  .close = sink_close,
  .write = sink_write,
};
