/* Helpers for the native plugins of this repository: parameters, addresses, texts, pauses, waiting. Header only, C11 and C++17.
 *
 * A plugin sets `host` in rxd_plugin_init, before any other call. */
#ifndef PLUGIN_UTIL_H
#define PLUGIN_UTIL_H
#include "include_file.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <rxd_plugin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

extern const rxd_host *host;

/* ---- Texts ---- */

static inline UNUSED rxd_text text_of(const char *string) { return (rxd_text){string, strlen(string)}; }

static inline UNUSED bool text_is(rxd_text a, rxd_text b) {
  return a.count == b.count && (a.count == 0 || memcmp(a.bytes, b.bytes, a.count) == 0);
}

/* Aborts if an allocation has failed: a plugin cannot continue without memory, and Linux hardly ever refuses it. */
static inline UNUSED void *need(void *memory) {
  if (memory == NULL) abort();
  return memory;
}

static inline UNUSED char *copy_text(rxd_text text) {
  char *copy = (char *)need(malloc(text.count + 1));
  if (text.count > 0) memcpy(copy, text.bytes, text.count);
  copy[text.count] = 0;
  return copy;
}

static inline UNUSED void free_secret(char *secret) {
  if (secret == NULL) return;
  explicit_bzero(secret, strlen(secret));
  free(secret);
}

static inline UNUSED bool is_utf8(const char *bytes, size_t count) {
  const unsigned char *at = (const unsigned char *)bytes, *end = at + count;
  while (at < end) {
    uint64_t eight;
    if (end - at >= 8 && (memcpy(&eight, at, 8), (eight & 0x8080808080808080) == 0)) { /* ASCII */
      at += 8;
      continue;
    }
    unsigned char first = *at;
    size_t length = first < 0x80                    ? 1
                    : first >= 0xc2 && first < 0xe0 ? 2
                    : (first & 0xf0) == 0xe0        ? 3
                    : first >= 0xf0 && first < 0xf5 ? 4
                                                    : 0;
    if (length == 0 || (size_t)(end - at) < length) return false;
    for (size_t i = 1; i < length; i++)
      if ((at[i] & 0xc0) != 0x80) return false;
    if (first == 0xe0 && at[1] < 0xa0) return false;  /* overlong */
    if (first == 0xed && at[1] >= 0xa0) return false; /* surrogates */
    if (first == 0xf0 && at[1] < 0x90) return false;
    if (first == 0xf4 && at[1] >= 0x90) return false;
    at += length;
  }
  return true;
}

/* A value of external bytes: a text if they are UTF-8, else raw bytes. */
static inline UNUSED rxd_value value_of_bytes(rxd_scope *scope, const char *bytes, size_t count) {
  rxd_text text = {bytes, count};
  return is_utf8(bytes, count) ? host->make_text(scope, text) : host->make_bytes(scope, text);
}

/* Decodes a JSON document. False: the bytes are not one, and `value` is a text or raw bytes. Zero bytes are an empty
 * text. */
static inline UNUSED bool decode_json(rxd_scope *scope, const char *bytes, size_t count, rxd_value *value) {
  if (count > 0 && is_utf8(bytes, count) && host->parse_json(scope, (rxd_text){bytes, count}, value) == RXD_OK) return true;
  *value = value_of_bytes(scope, bytes, count);
  return count == 0;
}

/* The bytes to send for a value: texts and bytes unchanged, everything else as JSON. */
static inline UNUSED rxd_text bytes_of_value(rxd_scope *scope, const rxd_value *value) {
  int kind = host->kind(value);
  return kind == RXD_TEXT || kind == RXD_BYTES ? host->text(scope, value) : host->json(scope, value);
}

/* The result of a template; false if the parameter was not given. */
static inline UNUSED bool argument(rxd_scope *scope, const rxd_input *input, uint32_t index, rxd_text *text) {
  if (index >= input->argument_count || host->kind(&input->arguments[index]) == RXD_ABSENT) return false;
  *text = bytes_of_value(scope, &input->arguments[index]);
  return true;
}

/* ---- Reports ---- */

__attribute__((format(printf, 3, 4)))
static inline UNUSED int fail_at(rxd_scope *scope, const char *at, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  host->fail(scope, text_of(message), text_of(at));
  return RXD_FAILED;
}

__attribute__((format(printf, 3, 4)))
static inline UNUSED void report(rxd_instance *instance, const char *level, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  host->log(instance, text_of(level), text_of(message));
}

/* ---- Parameters, during `open` ---- */

static inline UNUSED rxd_value parameter(const rxd_opening *opening, const char *name) {
  return host->member(opening->scope, &opening->parameters, text_of(name));
}

/* A copy of a text, or NULL if it was not given. RXD_FAILED: it contains a zero byte, at which C libraries would cut
 * it off. */
static inline UNUSED int text_parameter(const rxd_opening *opening, const char *name, char **copy) {
  rxd_value value = parameter(opening, name);
  *copy = NULL;
  if (host->kind(&value) != RXD_TEXT) return RXD_OK;
  rxd_text text = host->text(opening->scope, &value);
  if (text.count > 0 && memchr(text.bytes, 0, text.count) != NULL)
    return fail_at(opening->scope, name, "must not contain a zero byte");
  *copy = copy_text(text);
  return RXD_OK;
}

/* The same for the path of a file, which must be readable. */
static inline UNUSED int file_parameter(const rxd_opening *opening, const char *name, char **path) {
  int status = text_parameter(opening, name, path);
  if (status == RXD_OK && *path != NULL && access(*path, R_OK) != 0)
    return fail_at(opening->scope, name, "cannot read the file: %s", strerror(errno));
  return status;
}

static inline UNUSED bool is_given(const rxd_opening *opening, const char *name) {
  rxd_value value = parameter(opening, name);
  int kind = host->kind(&value);
  return kind != RXD_ABSENT && kind != RXD_NULL;
}

static inline UNUSED int64_t integer_parameter(const rxd_opening *opening, const char *name, int64_t otherwise) {
  rxd_value value = parameter(opening, name);
  int kind = host->kind(&value);
  return kind == RXD_ABSENT || kind == RXD_NULL ? otherwise : host->integer(&value);
}

static inline UNUSED bool boolean_parameter(const rxd_opening *opening, const char *name) {
  rxd_value value = parameter(opening, name);
  return host->boolean(&value) != 0;
}

static inline UNUSED bool choice_is(const rxd_opening *opening, const char *name, const char *choice) {
  rxd_value value = parameter(opening, name);
  return text_is(host->text(opening->scope, &value), text_of(choice));
}

static inline UNUSED int64_t milliseconds_parameter(const rxd_opening *opening, const char *name, int64_t otherwise) {
  int64_t nanoseconds = integer_parameter(opening, name, otherwise * 1000000);
  return nanoseconds / 1000000;
}

/* ---- Addresses ---- */

typedef struct address {
  char name[256]; /* host name, without brackets */
  char path[108]; /* path of a Unix socket, if not empty */
  int port;
  bool is_secure; /* the scheme requires TLS */
} address;

typedef struct address_form {
  const char *plain, *secure; /* schemes, such as "redis" and "rediss" */
  int plain_port, secure_port;
  bool allows_unix; /* "unix:/path" */
} address_form;

/* Parses HOST, HOST:PORT, [IPv6]:PORT, SCHEME://..., unix:/path. Returns the problem, or NULL. A message never repeats
 * the text before an @: it may be a password. */
static inline UNUSED const char *parse_address(const char *text, const address_form *form, address *result,
                                               char *problem, size_t capacity) {
  memset(result, 0, sizeof *result);
  if (strncmp(text, "unix:", 5) == 0) {
    const char *path = text + 5;
    if (strncmp(path, "//", 2) == 0) path += 2;
    if (!form->allows_unix) snprintf(problem, capacity, "must be HOST or HOST:PORT, not a Unix socket");
    else if (*path != '/') snprintf(problem, capacity, "the path behind 'unix:' must begin with '/'");
    else if (strlen(path) >= sizeof result->path)
      snprintf(problem, capacity, "the path of a Unix socket has at most %zu bytes", sizeof result->path - 1);
    else {
      strcpy(result->path, path);
      return NULL;
    }
    return problem;
  }
  const char *scheme = strstr(text, "://");
  if (scheme != NULL) {
    size_t count = (size_t)(scheme - text);
    if (count == strlen(form->secure) && strncasecmp(text, form->secure, count) == 0) result->is_secure = true;
    else if (count != strlen(form->plain) || strncasecmp(text, form->plain, count) != 0) {
      bool is_word = count > 0 && count < 16;
      for (size_t i = 0; i < count; i++) is_word = is_word && isalnum((unsigned char)text[i]);
      if (is_word)
        snprintf(problem, capacity, "unknown scheme '%.*s'; use %s:// or %s://", (int)count, text, form->plain,
                 form->secure);
      else snprintf(problem, capacity, "unknown scheme; use %s:// or %s://", form->plain, form->secure);
      return problem;
    }
    text = scheme + 3;
  }
  result->port = result->is_secure ? form->secure_port : form->plain_port;
  if (strchr(text, '@') != NULL) {
    snprintf(problem, capacity, "must not contain a user or a password; use 'user' and 'password'");
    return problem;
  }
  size_t length = strlen(text);
  if (length > 0 && text[length - 1] == '/' && scheme != NULL) length--;
  const char *name = text, *end = text + length, *port = NULL;
  size_t count;
  if (length > 0 && *text == '[') {
    const char *closing = (const char *)memchr(text, ']', length);
    if (closing == NULL) {
      snprintf(problem, capacity, "the closing bracket of the IPv6 address is missing");
      return problem;
    }
    name = text + 1;
    count = (size_t)(closing - name);
    if (closing + 1 < end) {
      if (closing[1] != ':') {
        snprintf(problem, capacity, "behind the bracket must stand ':' and the port");
        return problem;
      }
      port = closing + 2;
    }
  } else {
    const char *colon = (const char *)memchr(text, ':', length);
    count = colon == NULL ? length : (size_t)(colon - text);
    if (colon != NULL) {
      port = colon + 1;
      if (memchr(port, ':', (size_t)(end - port)) != NULL) {
        snprintf(problem, capacity, "an IPv6 address must stand in brackets: [::1]:%d", result->port);
        return problem;
      }
    }
  }
  if (count == 0) {
    snprintf(problem, capacity, "the name of the host is missing");
    return problem;
  }
  if (count >= sizeof result->name) {
    snprintf(problem, capacity, "the name of the host has more than %zu characters", sizeof result->name - 1);
    return problem;
  }
  for (size_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)name[i];
    if (isalnum(c) || c == '.' || c == '-' || c == '_' || (*text == '[' && (c == ':' || c == '%'))) continue;
    if (c == '/') snprintf(problem, capacity, "must be HOST or HOST:PORT, without a path");
    else if (c > ' ' && c < 127)
      snprintf(problem, capacity, "the name of the host contains '%c' at character %zu", c, i + 1);
    else
      snprintf(problem, capacity, "the name of the host contains a character that names cannot have, at character %zu",
               i + 1);
    return problem;
  }
  memcpy(result->name, name, count);
  if (port != NULL) {
    long value = 0;
    bool is_number = port < end && end - port <= 5;
    for (const char *digit = port; digit < end && is_number; digit++) {
      is_number = isdigit((unsigned char)*digit);
      value = value * 10 + (*digit - '0');
    }
    if (!is_number || value < 1 || value > 65535) {
      snprintf(problem, capacity,
               memchr(port, '/', (size_t)(end - port)) != NULL ? "must be HOST or HOST:PORT, without a path"
                                                               : "the port must be a number from 1 to 65535");
      return problem;
    }
    result->port = (int)value;
  }
  return NULL;
}

/* "HOST:PORT" or the path of the socket, for messages. */
static inline UNUSED const char *address_text(const address *address, char *text, size_t capacity) {
  if (address->path[0] != 0) snprintf(text, capacity, "%s", address->path);
  else snprintf(text, capacity, strchr(address->name, ':') != NULL ? "[%s]:%d" : "%s:%d", address->name, address->port);
  return text;
}

/* ---- Time ---- */

static inline UNUSED int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* The pause before attempt `failures` + 1: 100 ms, doubled up to 10 s, shortened by a random part of up to half. */
static inline UNUSED int64_t backoff_ms(unsigned failures) {
  int64_t pause = failures >= 8 ? 10000 : (int64_t)100 << failures;
  if (pause > 10000) pause = 10000;
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return pause - (time.tv_nsec / 1000) % (pause / 2);
}

/* ---- Waiting ---- */

/* Initializes a condition for `wait_at_most`. */
static inline UNUSED void init_condition(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* Waits until the condition is signalled or the time has passed; may wake spuriously, so the caller must check. */
static inline UNUSED void wait_at_most(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += milliseconds / 1000;
  until.tv_nsec += milliseconds % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(condition, mutex, &until);
}

/* Waits on the thread of a source without events to acknowledge, at most until the source must stop. */
static inline UNUSED void pause_source(rxd_source *running, int64_t milliseconds) {
  rxd_ack ignored;
  int64_t end = now_ms() + milliseconds;
  for (int64_t left; (left = end - now_ms()) > 0 && host->is_stopping(running) == 0;)
    host->acks(running, &ignored, 1, left * 1000000);
}

#endif
