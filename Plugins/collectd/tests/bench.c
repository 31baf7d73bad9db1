/* A plain loop of libcollectdclient, which copies each list of values for its writer. */
#include <collectd/network_parse.h>

#define DECODES_ONLY
#include "../../testing/bench_format.h"

static size_t written;
static int write_list(lcc_value_list_t const *list) {
  written += list->values_len;
  return 0;
}

static int plain_decode(const char *bytes, size_t count) {
  lcc_network_parse_options_t options = {.writer = write_list, .security_level = NONE};
  written = 0;
  return lcc_network_parse((void *)(uintptr_t)bytes, count, options) == 0 && written > 0;
}
