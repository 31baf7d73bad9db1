/* The settings of the source and the sink, as librdkafka configurations. */
#ifndef SETTINGS_H
#define SETTINGS_H
#include <librdkafka/rdkafka.h>
#include <broker_source.h>

extern const rxd_component kafka_source, kafka_sink;

/* Applies the common settings, then `options`. `fixed` is a NULL-terminated list of options that parameters or the
 * component control. Returns RXD_OK, or RXD_FAILED with the reason reported. */
int settings_open(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *const *fixed, char **brokers);
/* The setting must exist in librdkafka; `at` names the parameter. */
int setting(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *at, const char *name, const char *value);
/* Keeps librdkafka from writing to standard error. */
void no_log(const rd_kafka_t *client, int level, const char *facility, const char *message);

#endif
