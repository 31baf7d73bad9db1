/* The components of the plugin. */
#include "gelf.h"

RXD_PLUGIN_MAGIC;
const rxd_host *host;
INCLUDE_FILE(spec, "spec.json");

_Thread_local char refusal[512];

int refuse(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(refusal, sizeof refusal, format, arguments);
  va_end(arguments);
  return RXD_FAILED;
}

static int failed(rxd_scope *scope) {
  host->fail(scope, text_of(refusal), text_of(""));
  return RXD_FAILED;
}

/* ---- Parameters ---- */

int open_reading(const rxd_opening *opening, reading *to) {
  int64_t limit = integer_parameter(opening, "limit", 8 << 20);
  if (limit < 1 || limit > 1 << 30) return fail_at(opening->scope, "limit", "must be from 1B to 1GiB");
  *to = (reading){.limit = (size_t)limit, .is_strict = boolean_parameter(opening, "strict")};
  return RXD_OK;
}

int open_writing(const rxd_opening *opening, writing *to) {
  *to = (writing){.compression = choice_is(opening, "compress", "gzip")   ? COMPRESS_GZIP
                                 : choice_is(opening, "compress", "zlib") ? COMPRESS_ZLIB
                                                                          : COMPRESS_NONE};
  if (text_parameter(opening, "host", &to->host) != RXD_OK) return RXD_FAILED;
  if (to->host != NULL && to->host[0] == 0) return fail_at(opening->scope, "host", "must not be empty");
  if (to->host != NULL) return RXD_OK;
  char name[256];
  if (gethostname(name, sizeof name) != 0 || name[0] == 0) return fail_at(opening->scope, "host", "must be given: this machine has no name");
  name[sizeof name - 1] = 0;
  to->host = copy_text(text_of(name));
  return RXD_OK;
}

/* ---- The decoder ---- */

static int decoder_open(const rxd_opening *opening, void **instance) {
  reading *self = need(calloc(1, sizeof *self));
  int status = open_reading(opening, self);
  if (status == RXD_OK) *instance = self;
  else free(self);
  return status;
}

static int decoder_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  rxd_text input = host->text(scope, event);
  if (is_chunk(input)) {
    refuse("the input is a chunk of a message; the step 'gelfDatagrams' joins chunks");
    return failed(scope);
  }
  value_stack events = {0};
  int status = decode_gelf(instance, scope, input, &events);
  if (status == RXD_OK) *event = pop_list(scope, &events, 0);
  free_values(&events);
  return status == RXD_OK ? RXD_OK : failed(scope);
}

/* ---- The encoder ---- */

static void encoder_close(void *instance) {
  writing *self = instance;
  free(self->host);
  free(self);
}

static int encoder_open(const rxd_opening *opening, void **instance) {
  writing *self = need(calloc(1, sizeof *self));
  int status = open_writing(opening, self);
  if (status == RXD_OK) *instance = self;
  else encoder_close(self);
  return status;
}

static int encoder_row(void *instance, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
  (void)arguments;
  const writing *self = instance;
  output_bytes output;
  begin_output(&output);
  int status = encode_gelf(self, scope, event, &output);
  rxd_text all = {output.bytes, output.count};
  if (status == RXD_OK) *event = self->compression == COMPRESS_NONE ? host->make_text(scope, all) : host->make_bytes(scope, all);
  free_output(&output);
  return status == RXD_OK ? RXD_OK : failed(scope);
}

/* ---- The plugin ---- */

static rxd_component components[] = {
    {NAMED("decoder", "gelf"), .open = decoder_open, .close = free, .row = decoder_row},
    {NAMED("encoder", "gelf"), .open = encoder_open, .close = encoder_close, .row = encoder_row},
    {0}, {0},
};

__attribute__((constructor)) static void add_operators(void) {
  components[2] = join_component;
  components[3] = split_component;
}

#include "format_entry.h"
