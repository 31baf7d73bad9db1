/* The sink `kafka`. `write` produces a batch and waits for the report of each message. After a temporary failure, all
 * messages in flight are purged, so that none is delivered before an earlier one, and the client is discarded: rxd then
 * repeats the events after the last delivered message.
 *
 * The time limit is enforced here, not by librdkafka: librdkafka lets each message expire on its own, so a later one
 * could still be delivered. */
#include "settings.h"

#include <broker_sink.h>

typedef struct sink {
  sending sending; /* `missing` counts missing reports */
  rd_kafka_conf_t *conf;
  rd_kafka_t *client; /* NULL: the next batch creates it */
  char *brokers;
  char reason[200]; /* librdkafka's last message about its connections */
} sink;

/* The delivery report of a message. */
typedef struct delivery {
  sink *sink;
  rd_kafka_resp_err_t error;
  const char *problem; /* replaces the text of `error` */
  rd_kafka_topic_t *topic; /* destination; valid as long as the client */
  int32_t partition;
  bool is_sent, has_key;
} delivery;

static const char *const fixed[] = {"acks", "request.required.acks", "enable.idempotence", "delivery.timeout.ms",
                                    "message.timeout.ms", "linger.ms", "queue.buffering.max.ms", "compression.codec",
                                    "compression.type", "transactional.id", NULL};

/* The template and expression parameters, in the order of the spec. */
enum { TOPIC, KEY, VALUE, RETRACTED };
enum { PURGE_MS = 5000 };

/* ---- Errors ---- */

/* Whether a retry cannot help. */
static bool is_permanent(rd_kafka_resp_err_t error) {
  switch (error) {
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR__INVALID_ARG: return true;
    default: return false;
  }
}

/* Errors that brokers report for all messages of a request because of one message, or of all together. */
static bool is_of_request(const delivery *delivery) {
  return delivery->is_sent
         && (delivery->error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
             || delivery->error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE
             || delivery->error == RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE
             || delivery->error == RD_KAFKA_RESP_ERR_INVALID_RECORD);
}

static bool may_pass(rd_kafka_resp_err_t error) {
  return error != RD_KAFKA_RESP_ERR_NO_ERROR && !is_permanent(error);
}

/* ---- Callbacks, during `write` ---- */

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
  (void)client, (void)opaque;
  delivery *delivery = message->_private;
  sink *self = delivery->sink;
  delivery->error = message->err;
  delivery->topic = message->rkt;
  delivery->partition = message->partition;
  if (may_pass(message->err)) self->sending.has_failed = true;
  self->sending.missing--;
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
  (void)client;
  sink *self = opaque;
  snprintf(self->reason, sizeof self->reason, "%s", reason != NULL && *reason != 0 ? reason : rd_kafka_err2str(error));
}

/* ---- Opening ---- */

static void sink_close(void *opaque) {
  sink *self = opaque;
  if (self->client != NULL) rd_kafka_destroy(self->client);
  if (self->conf != NULL) rd_kafka_conf_destroy(self->conf);
  free(self->brokers);
  free(self);
}

static int new_client(sink *self, rxd_scope *scope) {
  char problem[300];
  rd_kafka_conf_t *copy = rd_kafka_conf_dup(self->conf);
  self->client = rd_kafka_new(RD_KAFKA_PRODUCER, copy, problem, sizeof problem);
  if (self->client != NULL) return RXD_OK;
  rd_kafka_conf_destroy(copy);
  return fail_at(scope, "", "%s", problem);
}

static int number_setting(const rxd_opening *opening, sink *self, const char *at, const char *name, int64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)number);
  return setting(opening, self->conf, at, name, text);
}

static int compression_parameter(const rxd_opening *opening, sink *self) {
  char *compression;
  int status = text_parameter(opening, "compression", &compression);
  if (status == RXD_OK && compression != NULL)
    status = setting(opening, self->conf, "compression", "compression.codec", compression);
  free(compression);
  return status;
}

static int sink_open(const rxd_opening *opening, void **instance) {
  sink *self = need(calloc(1, sizeof *self));
  self->sending.instance = opening->instance;
  self->conf = need(rd_kafka_conf_new());
  self->sending.timeout = milliseconds_parameter(opening, "timeout", 30000);
  const char *is_idempotent = boolean_parameter(opening, "idempotence") ? "true" : "false";
  int status = setting(opening, self->conf, "options", "partitioner", "murmur2_random");
  /* An unknown topic fails before the deadline, so that it does not delay the others. */
  if (status == RXD_OK)
    status = number_setting(opening, self, "timeout", "topic.metadata.propagation.max.ms", self->sending.timeout / 2);
  if (status == RXD_OK) status = settings_open(opening, self->conf, fixed, &self->brokers);
  if (status == RXD_OK) status = setting(opening, self->conf, "options", "acks", "all");
  if (status == RXD_OK) status = setting(opening, self->conf, "idempotence", "enable.idempotence", is_idempotent);
  if (status == RXD_OK) status = setting(opening, self->conf, "timeout", "message.timeout.ms", "0");
  if (status == RXD_OK)
    status = number_setting(opening, self, "linger", "linger.ms", milliseconds_parameter(opening, "linger", 5));
  if (status == RXD_OK) status = compression_parameter(opening, self);
  rd_kafka_conf_set_opaque(self->conf, self);
  rd_kafka_conf_set_dr_msg_cb(self->conf, on_report);
  rd_kafka_conf_set_error_cb(self->conf, on_error);
  /* Creating a client checks the settings together, such as whether the key matches the certificate. */
  if (status == RXD_OK) status = new_client(self, opening->scope);
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

/* ---- Messages ---- */

static void refuse(delivery *delivery, rd_kafka_resp_err_t error, const char *problem) {
  delivery->error = error;
  delivery->problem = problem;
}

/* Handling reports makes room in librdkafka's queue. */
static rd_kafka_resp_err_t enqueue(sink *self, const char *topic, rxd_text key, rxd_text value, delivery *delivery) {
  for (;;) {
    rd_kafka_resp_err_t error = rd_kafka_producev(
      self->client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
      RD_KAFKA_V_KEY(key.bytes, key.count), RD_KAFKA_V_VALUE((void *)value.bytes, value.count),
      RD_KAFKA_V_OPAQUE(delivery), RD_KAFKA_V_END);
    if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || self->sending.has_failed || sending_is_over(&self->sending))
      return error;
    rd_kafka_poll(self->client, 100);
  }
}

/* A non-NULL text, even if it is empty. */
static rxd_text not_null(rxd_text text) { return (rxd_text){text.count > 0 ? text.bytes : "", text.count}; }

static void produce(sink *self, uint32_t index, delivery *delivery) {
  rxd_scope *scope = self->sending.scope;
  const rxd_input *input = sending_input(&self->sending, index);
  rxd_text topic, key = {NULL, 0}, value = {NULL, 0};
  bool is_retracted;
  *delivery = (struct delivery){.sink = self};
  if (!argument(scope, input, TOPIC, &topic) || topic.count == 0 || topic.count > 249
      || memchr(topic.bytes, 0, topic.count) != NULL) {
    refuse(delivery, RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, "'topic' must have 1 to 249 bytes, and no zero byte");
    return;
  }
  const char *problem = retraction_problem(input, RETRACTED, &is_retracted);
  if (problem != NULL) {
    refuse(delivery, RD_KAFKA_RESP_ERR__INVALID_ARG, problem);
    return;
  }
  delivery->has_key = argument(scope, input, KEY, &key);
  if (delivery->has_key) key = not_null(key);
  if (!is_retracted) {
    if (!argument(scope, input, VALUE, &value)) value = bytes_of_value(scope, &input->event);
    value = not_null(value);
  }
  char *name = copy_text(topic);
  self->sending.missing++;
  delivery->is_sent = true;
  rd_kafka_resp_err_t error = enqueue(self, name, key, value, delivery);
  delivery->error = error == RD_KAFKA_RESP_ERR_NO_ERROR ? RD_KAFKA_RESP_ERR__IN_PROGRESS : error;
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    delivery->is_sent = false;
    self->sending.missing--;
    if (may_pass(error)) self->sending.has_failed = true;
  }
  free(name);
}

/* Discards the client. No report arrives afterwards, so deliveries are not written any more. */
static void give_up_client(sink *self) {
  rd_kafka_destroy(self->client);
  self->client = NULL;
  self->sending.missing = 0;
}

/* Waits for all reports. After a failure or at the deadline, purges the remaining messages, which reports them too. */
static void wait_for_reports(sink *self) {
  int64_t purged_by = 0;
  while (self->sending.missing > 0) {
    rd_kafka_flush(self->client, 10); /* flushes immediately: nothing follows */
    if (purged_by == 0 && (self->sending.has_failed || sending_is_over(&self->sending))) {
      rd_kafka_purge(self->client, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
      purged_by = now_ms() + PURGE_MS;
    }
    if (purged_by != 0 && self->sending.missing > 0 && now_ms() > purged_by) give_up_client(self);
    self->sending.has_failed = self->sending.has_failed || self->client == NULL;
  }
}

/* Returns how many events of the batch were tried: all, unless one could not be sent. */
static uint32_t send_all(sink *self, delivery *deliveries) {
  uint32_t index = 0, count = self->sending.batch->count;
  for (; index < count && !self->sending.has_failed; index++)
    if (sending_is_event(&self->sending, index)) produce(self, index, &deliveries[index]);
  wait_for_reports(self);
  return index;
}

/* Whether an earlier message of the same partition is sent again, in which case this one must follow it. */
static bool follows(const delivery *deliveries, const uint32_t *again, size_t count, const delivery *one) {
  if (!one->is_sent || !one->has_key || one->error != RD_KAFKA_RESP_ERR_NO_ERROR) return false;
  for (size_t i = 0; i < count; i++)
    if (deliveries[again[i]].topic == one->topic && deliveries[again[i]].partition == one->partition) return true;
  return false;
}

/* Sends the messages of a refused request again, each alone. */
static void send_singly(sink *self, delivery *deliveries) {
  uint32_t all = self->sending.batch->count, *again = need(calloc(all + 1, sizeof *again));
  size_t count = 0;
  for (uint32_t i = 0; i < all; i++)
    if (is_of_request(&deliveries[i]) || follows(deliveries, again, count, &deliveries[i])) again[count++] = i;
  host->count_up(self->sending.instance, RXD_TEXT_OF("sentSingly"), (int64_t)count);
  for (size_t i = 0; i < count && !self->sending.has_failed; i++) {
    self->sending.end = now_ms() + self->sending.timeout;
    produce(self, again[i], &deliveries[again[i]]);
    wait_for_reports(self);
    /* If this message fails, later ones are not delivered yet. */
    for (size_t behind = i + 1; self->sending.has_failed && behind < count; behind++)
      deliveries[again[behind]].error = RD_KAFKA_RESP_ERR__PURGE_QUEUE;
  }
  free(again);
}

/* Converts delivery reports to verdicts. */
static void judge(sink *self, const delivery *deliveries, uint32_t tried) {
  for (uint32_t i = 0; i < tried; i++) {
    const delivery *one = &deliveries[i];
    if (one->error == RD_KAFKA_RESP_ERR_NO_ERROR) sending_mark(&self->sending, i, DELIVERED);
    else if (!may_pass(one->error))
      sending_refuse(&self->sending, i, one->problem != NULL ? one->problem : rd_kafka_err2str(one->error));
  }
}

/* Messages with a key must stay in order within their partition. */
static uint64_t order_of(const void *closure, size_t index) {
  const delivery *one = (const delivery *)closure + index;
  /* The message was not tried, or has no report. */
  if (one->topic == NULL || one->partition < 0) return one->sink != NULL && !one->has_key && one->is_sent ? order_none : order_all;
  if (!one->has_key) return order_none;
  uint64_t hash = order_hash(0, &one->topic, sizeof one->topic);
  return order_hash(hash, &one->partition, sizeof one->partition);
}

static int try_again(sink *self, rxd_scope *scope, rd_kafka_resp_err_t error) {
  char fatal[256];
  bool is_late = error == RD_KAFKA_RESP_ERR__PURGE_QUEUE || error == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT
                 || error == RD_KAFKA_RESP_ERR__IN_PROGRESS;
  if (self->client != NULL && rd_kafka_fatal_error(self->client, fatal, sizeof fatal) != RD_KAFKA_RESP_ERR_NO_ERROR)
    fail_at(scope, "", "%.200s: %s", self->brokers, fatal);
  else if (is_late)
    fail_at(scope, "", "%.200s: not delivered within %lld ms%s%s", self->brokers, (long long)self->sending.timeout,
            self->reason[0] != 0 ? ": " : "", self->reason);
  else fail_at(scope, "", "%.200s: %s", self->brokers, rd_kafka_err2str(error));
  if (self->client != NULL) give_up_client(self);
  return RXD_RETRY;
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  if (self->client == NULL && new_client(self, scope) != RXD_OK) return RXD_RETRY;
  delivery *deliveries = need(calloc(batch->count + 1, sizeof *deliveries));
  sending_begin(&self->sending, scope, batch);
  self->reason[0] = 0;
  uint32_t tried = send_all(self, deliveries);
  bool is_refused = false;
  for (uint32_t i = 0; i < tried && !is_refused; i++) is_refused = is_of_request(&deliveries[i]);
  if (is_refused && !self->sending.has_failed) send_singly(self, deliveries);
  /* After a temporary failure it is unknown which message caused the refusal. */
  else if (is_refused)
    for (uint32_t i = 0; i < tried; i++)
      if (is_of_request(&deliveries[i])) deliveries[i].error = RD_KAFKA_RESP_ERR__PURGE_QUEUE;
  judge(self, deliveries, tried);
  size_t through = sending_report(&self->sending, verdicts);
  sending_report_later(&self->sending, verdicts, through, order_of, deliveries);
  rd_kafka_resp_err_t error = through < tried ? deliveries[through].error : RD_KAFKA_RESP_ERR__PURGE_QUEUE;
  sending_end(&self->sending);
  free(deliveries);
  return through == batch->count ? RXD_OK : try_again(self, scope, error);
}

const rxd_component kafka_sink = {
  .size = sizeof(rxd_component),
  .name = {"kafka", 5},
  .kind = {"sink", 4},
  .open = sink_open,
  .close = sink_close,
  .write = sink_write,
};
