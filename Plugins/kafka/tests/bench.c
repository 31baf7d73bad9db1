/* A plain client to compare with: bench produce|consume BROKERS TOPIC COUNT. Prints messages per second; for a consumer,
 * from the first message on. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static rd_kafka_t *new_client(rd_kafka_type_t type, const char *settings[][2]) {
  char problem[256];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  for (size_t i = 0; settings[i][0] != NULL; i++)
    if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], problem, sizeof problem) != RD_KAFKA_CONF_OK) exit(1);
  rd_kafka_t *client = rd_kafka_new(type, conf, problem, sizeof problem);
  if (client == NULL) exit(1);
  return client;
}

static double produce(const char *brokers, const char *topic, long count) {
  const char *settings[][2] = {{"bootstrap.servers", brokers}, {"enable.idempotence", "true"}, {NULL, NULL}};
  rd_kafka_t *client = new_client(RD_KAFKA_PRODUCER, settings);
  rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
  char value[64];
  double begin = now();
  for (long n = 0; n < count; n++) {
    int length = snprintf(value, sizeof value, "message %ld", n);
    while (rd_kafka_produce(handle, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, value, (size_t)length, NULL, 0, NULL) != 0)
      rd_kafka_poll(client, 10);
    if (n % 1000 == 0) rd_kafka_poll(client, 0);
  }
  while (rd_kafka_flush(client, 1000) != RD_KAFKA_RESP_ERR_NO_ERROR) {}
  double took = now() - begin;
  rd_kafka_topic_destroy(handle);
  rd_kafka_destroy(client);
  return took;
}

static double consume(const char *brokers, const char *topic, long count) {
  const char *settings[][2] = {{"bootstrap.servers", brokers}, {"group.id", "plain"}, {"auto.offset.reset", "earliest"},
                               {NULL, NULL}};
  rd_kafka_t *client = new_client(RD_KAFKA_CONSUMER, settings);
  rd_kafka_poll_set_consumer(client);
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
  if (rd_kafka_subscribe(client, topics) != RD_KAFKA_RESP_ERR_NO_ERROR) exit(1);
  double begin = 0;
  for (long n = 0; n < count;) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 100);
    if (message == NULL) continue;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && n++ == 0) begin = now();
    rd_kafka_message_destroy(message);
  }
  double took = now() - begin;
  rd_kafka_topic_partition_list_destroy(topics);
  rd_kafka_consumer_close(client);
  rd_kafka_destroy(client);
  return took;
}

int main(int count, char **arguments) {
  if (count != 5) return 64;
  long messages = atol(arguments[4]);
  double took = strcmp(arguments[1], "produce") == 0 ? produce(arguments[2], arguments[3], messages)
                                                     : consume(arguments[2], arguments[3], messages);
  printf("%.0f\n", (double)messages / took);
  return 0;
}
