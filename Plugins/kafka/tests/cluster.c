/* A mock cluster of librdkafka for the tests. Prints its bootstrap address; then each line of standard input is a
 * command, which is answered with "ok": "down" and "up" (all brokers), "topic NAME PARTITIONS". Ends with its input. */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <string.h>

static void no_log(const rd_kafka_t *client, int level, const char *facility, const char *message) {
  (void)client, (void)level, (void)facility, (void)message;
}

int main(void) {
  enum { BROKERS = 3 };
  char problem[256], line[256], name[200];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set_log_cb(conf, no_log);
  rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, problem, sizeof problem);
  if (client == NULL) {
    fprintf(stderr, "%s\n", problem);
    return 1;
  }
  rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(client, BROKERS);
  if (cluster == NULL) return 1;
  printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    int partitions = 0, error = 0;
    if (strcmp(line, "down\n") == 0 || strcmp(line, "up\n") == 0) {
      for (int broker = 1; broker <= BROKERS; broker++)
        error |= line[0] == 'd' ? rd_kafka_mock_broker_set_down(cluster, broker)
                                : rd_kafka_mock_broker_set_up(cluster, broker);
    } else if (sscanf(line, "topic %199s %d", name, &partitions) == 2) {
      error = rd_kafka_mock_topic_create(cluster, name, partitions, 1);
    } else {
      error = 1;
    }
    puts(error == 0 ? "ok" : "failed");
    fflush(stdout);
  }
  rd_kafka_mock_cluster_destroy(cluster);
  rd_kafka_destroy(client);
  return 0;
}
