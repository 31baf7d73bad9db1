#include "settings.h"

#include <errno.h>

void no_log(const rd_kafka_t *client, int level, const char *facility, const char *message) {
  (void)client, (void)level, (void)facility, (void)message;
}

int setting(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *at, const char *name, const char *value) {
  char problem[256];
  rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, name, value, problem, sizeof problem);
  if (result == RD_KAFKA_CONF_OK) return RXD_OK;
  /* librdkafka's message may contain the value, so it is reported only for unknown option names. */
  return fail_at(opening->scope, at,
                 result == RD_KAFKA_CONF_UNKNOWN ? "librdkafka has no option '%.100s'"
                                                 : "librdkafka refuses the value of '%.100s'",
                 name);
}

static int brokers_parameter(const rxd_opening *opening, char **brokers) {
  rxd_value list = parameter(opening, "brokers");
  size_t count = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0, length = 0;
  *brokers = NULL;
  if (count == 0) return fail_at(opening->scope, "brokers", "needs a broker");
  char *all = need(calloc(1, 1));
  for (size_t i = 0; i < count; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    char *text = copy_text(host->text(opening->scope, &element)), at[32], problem[200];
    static const address_form form = {"kafka", "kafkas", 9092, 9092, false};
    address address;
    const char *wrong = strstr(text, "://") != NULL ? "must be HOST or HOST:PORT, without a scheme"
                                                    : parse_address(text, &form, &address, problem, sizeof problem);
    if (wrong != NULL) {
      snprintf(at, sizeof at, "brokers.%zu", i);
      free(text);
      free(all);
      return fail_at(opening->scope, at, "%s", wrong);
    }
    size_t more = strlen(text);
    all = need(realloc(all, length + more + 2));
    if (length > 0) all[length++] = ',';
    memcpy(all + length, text, more + 1);
    length += more;
    free(text);
  }
  *brokers = all;
  return RXD_OK;
}

static int text_setting(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *parameter_name,
                        const char *name, bool is_file) {
  char *value;
  int status = text_parameter(opening, parameter_name, &value);
  if (status == RXD_OK && value != NULL) {
    if (is_file && access(value, R_OK) != 0)
      status = fail_at(opening->scope, parameter_name, "cannot read the file: %s", strerror(errno));
    else status = setting(opening, conf, parameter_name, name, value);
  }
  free_secret(value);
  return status;
}

static int options_open(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *const *fixed) {
  static const char *const common[] = {"bootstrap.servers", "metadata.broker.list", "security.protocol",
                                       "sasl.username", "sasl.password", "ssl.key.password", "ssl.keystore.password",
                                       "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
                                       "plugin.library.paths", NULL};
  rxd_value options = parameter(opening, "options");
  int kind = host->kind(&options);
  if (kind == RXD_ABSENT || kind == RXD_NULL) return RXD_OK;
  if (kind != RXD_OBJECT) return fail_at(opening->scope, "options", "must be a mapping of options of librdkafka");
  for (size_t i = 0; i < host->count(opening->scope, &options); i++) {
    rxd_text name_text;
    rxd_value value = host->entry(opening->scope, &options, i, &name_text);
    char *name = copy_text(name_text), *text = copy_text(bytes_of_value(opening->scope, &value)), at[160];
    snprintf(at, sizeof at, "options.%.140s", name);
    bool is_fixed = false;
    for (const char *const *one = common; *one != NULL; one++) is_fixed = is_fixed || strcmp(*one, name) == 0;
    for (const char *const *one = fixed; *one != NULL; one++) is_fixed = is_fixed || strcmp(*one, name) == 0;
    int status = is_fixed ? fail_at(opening->scope, at, "'%.100s' cannot be set here", name)
                          : setting(opening, conf, at, name, text);
    free(name);
    free_secret(text);
    if (status != RXD_OK) return status;
  }
  return RXD_OK;
}

int settings_open(const rxd_opening *opening, rd_kafka_conf_t *conf, const char *const *fixed, char **brokers) {
  int status = brokers_parameter(opening, brokers);
  if (status != RXD_OK) return status;
  bool is_secure = boolean_parameter(opening, "tls"), has_user = is_given(opening, "user");
  static const char *const tls_only[] = {"ca", "certificate", "certificateKey"};
  for (size_t i = 0; i < 3 && !is_secure; i++)
    if (is_given(opening, tls_only[i]))
      return fail_at(opening->scope, tls_only[i], "has no effect without 'tls: true'");
  if (is_given(opening, "password") != has_user)
    return fail_at(opening->scope, has_user ? "user" : "password", "'user' and 'password' belong together");
  status = setting(opening, conf, "brokers", "bootstrap.servers", *brokers);
  const char *protocol = has_user ? (is_secure ? "sasl_ssl" : "sasl_plaintext") : (is_secure ? "ssl" : "plaintext");
  if (status == RXD_OK) status = setting(opening, conf, "tls", "security.protocol", protocol);
  if (status == RXD_OK) status = text_setting(opening, conf, "ca", "ssl.ca.location", true);
  if (status == RXD_OK) status = text_setting(opening, conf, "certificate", "ssl.certificate.location", true);
  if (status == RXD_OK) status = text_setting(opening, conf, "certificateKey", "ssl.key.location", true);
  if (status == RXD_OK && is_secure && boolean_parameter(opening, "dangerouslySkipVerification"))
    status = setting(opening, conf, "tls", "enable.ssl.certificate.verification", "false");
  if (status == RXD_OK && has_user) status = text_setting(opening, conf, "mechanism", "sasl.mechanism", false);
  if (status == RXD_OK) status = text_setting(opening, conf, "user", "sasl.username", false);
  if (status == RXD_OK) status = text_setting(opening, conf, "password", "sasl.password", false);
  if (status == RXD_OK) status = options_open(opening, conf, fixed);
  rd_kafka_conf_set_log_cb(conf, no_log);
  return status;
}
