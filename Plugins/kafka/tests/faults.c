/* Preloaded by a test: makes the first KAFKA_FAILED_SEEKS seeks of each partition fail without effect, as they do
 * while librdkafka is busy with the partition. */
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <stdlib.h>

rd_kafka_error_t *rd_kafka_seek_partitions(rd_kafka_t *client, rd_kafka_topic_partition_list_t *list, int timeout_ms) {
  static int left = -1;
  const char *given = getenv("KAFKA_FAILED_SEEKS");
  if (left < 0) left = given != NULL ? atoi(given) : 0;
  if (left > 0) {
    left--;
    for (int i = 0; i < list->cnt; i++) list->elems[i].err = RD_KAFKA_RESP_ERR__STATE;
    return NULL;
  }
  rd_kafka_error_t *(*seek)(rd_kafka_t *, rd_kafka_topic_partition_list_t *, int);
  *(void **)&seek = dlsym(RTLD_NEXT, "rd_kafka_seek_partitions");
  return seek(client, list, timeout_ms);
}
