/* A mock cluster of librdkafka for the tests. Prints its bootstrap address; then each line of standard input is a
 * command, which is answered with "ok" or "failed":
 *
 *   topic NAME PARTITIONS
 *   unknown NAME                  a topic that the brokers do not know
 *   down, up                      all brokers
 *   down N, up N                  one of them, from 1
 *   leader TOPIC PARTITION N
 *   errors API COUNT CODE         the next COUNT requests of this kind fail
 *   fill TOPIC FIRST COUNT SIZE   JSON numbers from FIRST on, padded with spaces to SIZE bytes, with the keys k0 to k12
 *   odd TOPIC                     messages of every odd kind, into partition 0
 *   committed GROUP TOPIC COUNT   waits until the group has committed an offset in each of so many partitions
 *
 * Ends with its input. */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BROKERS = 3, LARGEST = 900000 };

static int missing, failed;

static void no_log(const rd_kafka_t *client, int level, const char *facility, const char *message) {
  (void)client, (void)level, (void)facility, (void)message;
}

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
  (void)client, (void)opaque;
  missing--;
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) failed++;
}

static rd_kafka_t *new_consumer(const char *brokers, const char *group) {
  char problem[256];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set_log_cb(conf, no_log);
  rd_kafka_conf_set(conf, "bootstrap.servers", brokers, problem, sizeof problem);
  rd_kafka_conf_set(conf, "group.id", group, problem, sizeof problem);
  return rd_kafka_new(RD_KAFKA_CONSUMER, conf, problem, sizeof problem);
}

static rd_kafka_t *new_client(const char *brokers) {
  char problem[256];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set_log_cb(conf, no_log);
  rd_kafka_conf_set_dr_msg_cb(conf, on_report);
  if (brokers != NULL) {
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, problem, sizeof problem);
    rd_kafka_conf_set(conf, "enable.idempotence", "true", problem, sizeof problem);
    rd_kafka_conf_set(conf, "partitioner", "murmur2_random", problem, sizeof problem);
  }
  rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, problem, sizeof problem);
  if (client != NULL) return client;
  fprintf(stderr, "%s\n", problem);
  exit(1);
}

static int sent(rd_kafka_t *client, rd_kafka_resp_err_t error) {
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) missing++;
  rd_kafka_poll(client, 0);
  return error;
}

static int wait_for_reports(rd_kafka_t *client) {
  while (missing > 0) rd_kafka_flush(client, 100);
  return failed;
}

static int fill(rd_kafka_t *client, const char *topic, int first, int count, int size) {
  static char value[LARGEST + 1];
  char key[16];
  if (size > LARGEST) return 1;
  for (int n = first; n < first + count; n++) {
    int length = snprintf(value, sizeof value, "%d", n), padded = length < size ? size : length;
    memset(value + length, ' ', (size_t)(padded - length));
    snprintf(key, sizeof key, "k%d", n % 13);
    rd_kafka_resp_err_t error;
    do {
      error = rd_kafka_producev(client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                RD_KAFKA_V_KEY(key, strlen(key)), RD_KAFKA_V_VALUE(value, (size_t)padded), RD_KAFKA_V_END);
      if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL) rd_kafka_poll(client, 10);
    } while (error == RD_KAFKA_RESP_ERR__QUEUE_FULL);
    if (sent(client, error) != 0) return 1;
  }
  return wait_for_reports(client);
}

#define ODD(...)                                                                                          \
  sent(client, rd_kafka_producev(client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0),                \
                                 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), __VA_ARGS__, RD_KAFKA_V_END))

static int odd(rd_kafka_t *client, const char *topic) {
  int error = ODD(RD_KAFKA_V_VALUE("no key", 6), RD_KAFKA_V_TIMESTAMP(1700000000000));
  error |= ODD(RD_KAFKA_V_KEY("", 0), RD_KAFKA_V_VALUE("empty key", 9));
  error |= ODD(RD_KAFKA_V_KEY("tombstone", 9), RD_KAFKA_V_VALUE(NULL, 0));
  error |= ODD(RD_KAFKA_V_KEY("empty value", 11), RD_KAFKA_V_VALUE("", 0));
  error |= ODD(RD_KAFKA_V_KEY("\xff\xfe", 2), RD_KAFKA_V_VALUE("\xff\x00", 2));
  error |= ODD(RD_KAFKA_V_VALUE("headers", 7), RD_KAFKA_V_HEADER("b", "1", 1), RD_KAFKA_V_HEADER("a", "2", 1),
               RD_KAFKA_V_HEADER("b", "3", 1), RD_KAFKA_V_HEADER("none", NULL, 0), RD_KAFKA_V_HEADER("empty", "", 0));
  rd_kafka_headers_t *headers = rd_kafka_headers_new(200);
  for (int i = 0; i < 200; i++) {
    char name[16];
    snprintf(name, sizeof name, "h%d", i);
    rd_kafka_header_add(headers, name, -1, "x", 1);
  }
  int many = ODD(RD_KAFKA_V_VALUE("many headers", 12), RD_KAFKA_V_HEADERS(headers));
  if (many != 0) rd_kafka_headers_destroy(headers);
  return error | many | wait_for_reports(client);
}

static int wait_for_commits(const char *brokers, const char *group, const char *topic, int count) {
  enum { ATTEMPTS = 200, PAUSE_MS = 100 };
  rd_kafka_t *client = new_consumer(brokers, group);
  if (client == NULL) return 1;
  int committed = 0;
  for (int attempt = 0; attempt < ATTEMPTS && committed < count; attempt++) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
    rd_kafka_topic_partition_list_add_range(list, topic, 0, count - 1);
    committed = 0;
    if (rd_kafka_committed(client, list, 1000) == RD_KAFKA_RESP_ERR_NO_ERROR)
      for (int i = 0; i < list->cnt; i++) committed += list->elems[i].offset >= 0;
    rd_kafka_topic_partition_list_destroy(list);
    if (committed < count) usleep(PAUSE_MS * 1000);
  }
  rd_kafka_destroy(client);
  return committed < count;
}

static int fail_requests(rd_kafka_mock_cluster_t *cluster, int api, int count, int code) {
  rd_kafka_resp_err_t errors[1000];
  if (count < 0 || count > 1000) return 1;
  for (int i = 0; i < count; i++) errors[i] = code;
  if (count == 0) rd_kafka_mock_clear_request_errors(cluster, (int16_t)api);
  else rd_kafka_mock_push_request_errors_array(cluster, (int16_t)api, (size_t)count, errors);
  return 0;
}

static int set_all(rd_kafka_mock_cluster_t *cluster, bool is_up) {
  int error = 0;
  for (int broker = 1; broker <= BROKERS; broker++)
    error |= is_up ? rd_kafka_mock_broker_set_up(cluster, broker) : rd_kafka_mock_broker_set_down(cluster, broker);
  return error;
}

static int obey(rd_kafka_mock_cluster_t *cluster, rd_kafka_t *client, const char *line) {
  char name[200], group[200];
  int a, b, c;
  if (strcmp(line, "down\n") == 0) return set_all(cluster, false);
  if (strcmp(line, "up\n") == 0) return set_all(cluster, true);
  if (sscanf(line, "down %d", &a) == 1) return rd_kafka_mock_broker_set_down(cluster, a);
  if (sscanf(line, "up %d", &a) == 1) return rd_kafka_mock_broker_set_up(cluster, a);
  if (sscanf(line, "leader %199s %d %d", name, &a, &b) == 3) return rd_kafka_mock_partition_set_leader(cluster, name, a, b);
  if (sscanf(line, "topic %199s %d", name, &a) == 2) return rd_kafka_mock_topic_create(cluster, name, a, 1);
  if (sscanf(line, "unknown %199s", name) == 1) {
    rd_kafka_mock_topic_set_error(cluster, name, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    return 0;
  }
  if (sscanf(line, "errors %d %d %d", &a, &b, &c) == 3) return fail_requests(cluster, a, b, c);
  if (sscanf(line, "fill %199s %d %d %d", name, &a, &b, &c) == 4) return fill(client, name, a, b, c);
  if (sscanf(line, "committed %199s %199s %d", group, name, &a) == 3)
    return wait_for_commits(rd_kafka_mock_cluster_bootstraps(cluster), group, name, a);
  if (sscanf(line, "odd %199s", name) == 1) return odd(client, name);
  return 1;
}

int main(void) {
  char line[256];
  rd_kafka_t *mock = new_client(NULL);
  rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(mock, BROKERS);
  if (cluster == NULL) return 1;
  rd_kafka_t *client = new_client(rd_kafka_mock_cluster_bootstraps(cluster));
  printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    puts(obey(cluster, client, line) == 0 ? "ok" : "failed");
    fflush(stdout);
  }
  rd_kafka_destroy(client);
  rd_kafka_mock_cluster_destroy(cluster);
  rd_kafka_destroy(mock);
  return 0;
}
