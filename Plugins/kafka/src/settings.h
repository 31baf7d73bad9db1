/* Settings of the source and the sink, as configurations of librdkafka. */
#ifndef SETTINGS_H
#define SETTINGS_H
#include <librdkafka/rdkafka.h>
#include <plugin_util.h>

extern const rxd_component kafka_source, kafka_sink;

/* Sets what source and sink have in common, then `options`. `fixed` ends with NULL: options that belong to parameters
 * or to the component. RXD_OK, or RXD_FAILED with the reason given. */
int settings_open(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *const *fixed, char **brokers);
/* Must be a setting that librdkafka has; `at` names the parameter. */
int setting(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *at, const char *name, const char *value);
/* librdkafka must not write to standard error. */
void no_log(const rd_kafka_t *client, int level, const char *facility, const char *message);

#endif
