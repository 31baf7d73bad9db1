/* The sink `kafka`. `write` produces a batch and waits for the delivery report of each message. After a failure that
 * may pass, the client is given up with everything in it, since librdkafka would send it again beside what rxd hands
 * over again. */
#include "settings.h"

typedef struct sink {
  rxd_instance *instance;
  rd_kafka_conf_t *conf;
  rd_kafka_t *client; /* NULL: made by the next batch */
  char *brokers;
} sink;

/* The report of a message; the batch waits until all have one. */
typedef struct report_of {
  rd_kafka_resp_err_t error;
  size_t *missing;
} report_of;

static const char *const fixed[] = {"acks", "request.required.acks", "enable.idempotence", "delivery.timeout.ms",
                                    "message.timeout.ms", "linger.ms", "queue.buffering.max.ms", "compression.codec",
                                    "compression.type", NULL};

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
  (void)client, (void)opaque;
  report_of *report = message->_private;
  report->error = message->err;
  --*report->missing;
}

static void sink_close(void *opaque) {
  sink *self = opaque;
  if (self->client != NULL) rd_kafka_destroy(self->client);
  if (self->conf != NULL) rd_kafka_conf_destroy(self->conf);
  free(self->brokers);
  free(self);
}

static int sink_open(const rxd_opening *opening, void **instance) {
  sink *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  self->conf = rd_kafka_conf_new();
  char text[32], *compression = NULL;
  int status = setting(opening, self->conf, "brokers", "partitioner", "murmur2_random");
  if (status == RXD_OK) status = settings_open(opening, self->conf, fixed, &self->brokers);
  if (status == RXD_OK) status = setting(opening, self->conf, "brokers", "acks", "all");
  if (status == RXD_OK)
    status = setting(opening, self->conf, "idempotence", "enable.idempotence",
                     boolean_parameter(opening, "idempotence") ? "true" : "false");
  snprintf(text, sizeof text, "%lld", (long long)milliseconds_parameter(opening, "timeout", 30000));
  if (status == RXD_OK) status = setting(opening, self->conf, "timeout", "message.timeout.ms", text);
  snprintf(text, sizeof text, "%lld", (long long)milliseconds_parameter(opening, "linger", 5));
  if (status == RXD_OK) status = setting(opening, self->conf, "linger", "linger.ms", text);
  if (status == RXD_OK) status = text_parameter(opening, "compression", &compression);
  if (status == RXD_OK && compression != NULL)
    status = setting(opening, self->conf, "compression", "compression.codec", compression);
  free(compression);
  rd_kafka_conf_set_dr_msg_cb(self->conf, on_report);
  /* What only a whole configuration shows, such as a key that does not fit the certificate. */
  if (status == RXD_OK) {
    char problem[300];
    rd_kafka_conf_t *copy = rd_kafka_conf_dup(self->conf);
    self->client = rd_kafka_new(RD_KAFKA_PRODUCER, copy, problem, sizeof problem);
    if (self->client == NULL) {
      rd_kafka_conf_destroy(copy);
      status = fail_at(opening->scope, "", "%s", problem);
    }
  }
  if (status != RXD_OK) {
    sink_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

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

static rd_kafka_resp_err_t produce(sink *self, rxd_scope *scope, const rxd_input *input, report_of *report,
                                   const char **problem) {
  rxd_text topic, key = {NULL, 0}, value;
  if (!argument(scope, input, 0, &topic) || topic.count == 0 || topic.count > 249
      || memchr(topic.bytes, 0, topic.count) != NULL) {
    *problem = "'topic' must have 1 to 249 bytes, and no zero byte";
    return RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION;
  }
  bool has_key = argument(scope, input, 1, &key);
  if (!argument(scope, input, 2, &value)) value = bytes_of_value(scope, &input->event);
  char *name = copy_text(topic);
  rd_kafka_resp_err_t error;
  for (;;) {
    error = rd_kafka_producev(self->client, RD_KAFKA_V_TOPIC(name), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                              RD_KAFKA_V_KEY(has_key ? (key.count > 0 ? key.bytes : "") : NULL, has_key ? key.count : 0),
                              RD_KAFKA_V_VALUE((void *)(value.count > 0 ? value.bytes : ""), value.count),
                              RD_KAFKA_V_OPAQUE(report), RD_KAFKA_V_END);
    /* The queue gets room when reports are taken. */
    if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || host->is_closing(self->instance)) break;
    rd_kafka_poll(self->client, 100);
  }
  free(name);
  return error;
}

static int sink_write(void *opaque, rxd_scope *scope, const rxd_batch *batch, rxd_verdicts *verdicts) {
  sink *self = opaque;
  if (self->client == NULL) {
    char problem[300];
    rd_kafka_conf_t *copy = rd_kafka_conf_dup(self->conf);
    self->client = rd_kafka_new(RD_KAFKA_PRODUCER, copy, problem, sizeof problem);
    if (self->client == NULL) {
      rd_kafka_conf_destroy(copy);
      fail_at(scope, "", "%s", problem);
      return RXD_RETRY;
    }
  }
  report_of *reports = need(calloc(batch->count + 1, sizeof *reports));
  const char **problems = need(calloc(batch->count + 1, sizeof *problems));
  size_t missing = 0;
  uint32_t end = 0;
  for (; end < batch->count; end++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + end * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    reports[end].missing = &missing;
    missing++;
    rd_kafka_resp_err_t error = produce(self, scope, input, &reports[end], &problems[end]);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    missing--;
    reports[end].error = error;
    if (!is_permanent(error)) break;
  }
  /* Each message gets its report: librdkafka gives up after `timeout`, and a close purges. */
  bool is_purged = false;
  while (missing > 0) {
    rd_kafka_poll(self->client, 100);
    if (is_purged || !host->is_closing(self->instance)) continue;
    rd_kafka_purge(self->client, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    is_purged = true;
  }
  /* What stands behind the first that failed comes again with it: the order is worth more. */
  uint32_t through = 0;
  for (; through < batch->count; through++) {
    rd_kafka_resp_err_t error = reports[through].error;
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && through < end) continue;
    if (!is_permanent(error)) break;
    const char *problem = problems[through] != NULL ? problems[through] : rd_kafka_err2str(error);
    host->refuse(verdicts, through, text_of(problem));
  }
  int status = RXD_OK;
  if (through < batch->count) {
    host->delivered(verdicts, through);
    char fatal[256];
    rd_kafka_resp_err_t error = rd_kafka_fatal_error(self->client, fatal, sizeof fatal);
    fail_at(scope, "", "%.200s: %s", self->brokers, error != 0 ? fatal : rd_kafka_err2str(reports[through].error));
    rd_kafka_destroy(self->client);
    self->client = NULL;
    status = RXD_RETRY;
  }
  free(problems);
  free(reports);
  return status;
}

const rxd_component kafka_sink = {
  .size = sizeof(rxd_component),
  .name = {"kafka", 5},
  .kind = {"sink", 4},
  .open = sink_open,
  .close = sink_close,
  .write = sink_write,
};
