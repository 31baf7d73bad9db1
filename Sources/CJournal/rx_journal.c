#define _GNU_SOURCE
#include "rx_journal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The used part of libsystemd's stable interface (sd-journal.h), declared here so that its headers are not needed to
// build.
typedef rx_journal J;
#define FUNCTIONS(X)                                                           \
  X(int, open, (J **, int))                                                    \
  X(int, open_directory, (J **, const char *, int))                            \
  X(void, close, (J *))                                                        \
  X(int, add_match, (J *, const void *, size_t))                               \
  X(int, add_disjunction, (J *))                                               \
  X(int, add_conjunction, (J *))                                               \
  X(void, flush_matches, (J *))                                                \
  X(int, seek_head, (J *))                                                     \
  X(int, seek_tail, (J *))                                                     \
  X(int, seek_realtime_usec, (J *, uint64_t))                                  \
  X(int, seek_cursor, (J *, const char *))                                     \
  X(int, next, (J *))                                                          \
  X(int, previous, (J *))                                                      \
  X(int, get_cursor, (J *, char **))                                           \
  X(int, test_cursor, (J *, const char *))                                     \
  X(int, get_realtime_usec, (J *, uint64_t *))                                 \
  X(int, get_monotonic_usec, (J *, uint64_t *, void *))                        \
  X(int, set_data_threshold, (J *, size_t))                                    \
  X(void, restart_data, (J *))                                                 \
  X(int, enumerate_available_data, (J *, const void **, size_t *))             \
  X(int, get_fd, (J *))                                                        \
  X(int, get_timeout, (J *, uint64_t *))                                       \
  X(int, process, (J *))

static struct {
#define DECLARE(result, name, arguments) result(*name) arguments;
  FUNCTIONS(DECLARE)
#undef DECLARE
  int is_loaded;
} lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  void *handle = dlopen("libsystemd.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return;
  int found = 1;
#define LOAD(result, name, arguments)                                   \
  lib.name = (__typeof__(lib.name))dlsym(handle, "sd_journal_" #name);  \
  found = found && lib.name;
  FUNCTIONS(LOAD)
#undef LOAD
  lib.is_loaded = found;
}

int rx_journal_is_available(void) {
  pthread_once(&once, load);
  return lib.is_loaded;
}

enum { LOCAL_ONLY = 1 };

J *rx_journal_open(const char *directory, int *error) {
  J *journal = NULL;
  *error = ENOSYS;
  if (!rx_journal_is_available()) return NULL;
  int code = directory ? lib.open_directory(&journal, directory, 0) : lib.open(&journal, LOCAL_ONLY);
  if (code >= 0) return journal;
  *error = -code;
  return NULL;
}

void rx_journal_close(J *journal) {
  if (journal) lib.close(journal);
}

int rx_journal_match(J *journal, const char *text) { return lib.add_match(journal, text, strlen(text)); }
int rx_journal_or(J *journal) { return lib.add_disjunction(journal); }
int rx_journal_and(J *journal) { return lib.add_conjunction(journal); }
void rx_journal_flush_matches(J *journal) { lib.flush_matches(journal); }
int rx_journal_seek_head(J *journal) { return lib.seek_head(journal); }
int rx_journal_seek_tail(J *journal) { return lib.seek_tail(journal); }
int rx_journal_seek_time(J *journal, uint64_t time) { return lib.seek_realtime_usec(journal, time); }
int rx_journal_seek_cursor(J *journal, const char *cursor) { return lib.seek_cursor(journal, cursor); }
int rx_journal_next(J *journal) { return lib.next(journal); }
int rx_journal_previous(J *journal) { return lib.previous(journal); }

char *rx_journal_cursor(J *journal) {
  char *cursor = NULL;
  return lib.get_cursor(journal, &cursor) < 0 ? NULL : cursor;
}

int rx_journal_is_at(J *journal, const char *cursor) { return lib.test_cursor(journal, cursor) > 0; }
int rx_journal_descriptor(J *journal) { return lib.get_fd(journal); }
int rx_journal_process(J *journal) { return lib.process(journal); }

int rx_journal_timeout(J *journal) {
  uint64_t due = UINT64_MAX;
  if (lib.get_timeout(journal, &due) < 0 || due == UINT64_MAX) return -1;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t at = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
  if (due <= at) return 0;
  uint64_t left = (due - at + 999) / 1000;
  return left > 3600000 ? 3600000 : (int)left;
}

static int add(rx_journal_bytes *bytes, const void *start, size_t count) {
  if (count > bytes->capacity - bytes->count) {
    size_t wanted = bytes->count + count;
    size_t capacity = bytes->capacity ? bytes->capacity : 1 << 16;
    while (capacity < wanted) capacity *= 2;
    uint8_t *larger = realloc(bytes->start, capacity);
    if (!larger) return -ENOMEM;
    bytes->start = larger;
    bytes->capacity = capacity;
  }
  if (count) memcpy(bytes->start + bytes->count, start, count);
  bytes->count += count;
  return 0;
}

void rx_journal_free(rx_journal_bytes *bytes) {
  free(bytes->start);
  *bytes = (rx_journal_bytes){0};
}

int rx_journal_read(J *journal, size_t most_field, size_t most_entry, rx_journal_bytes *bytes) {
  size_t start = bytes->count;
  rx_journal_entry_head head = {0};
  // A name has at most 64 bytes.
  int code = lib.set_data_threshold(journal, most_field + 66);
  if (code >= 0) code = lib.get_realtime_usec(journal, &head.realtime);
  // Entries of another boot have a time of that boot.
  uint64_t boot[2];
  if (code >= 0) code = lib.get_monotonic_usec(journal, &head.monotonic, boot);
  if (code < 0) return code;
  char *cursor = NULL;
  code = lib.get_cursor(journal, &cursor);
  if (code < 0) return code;
  head.cursor_length = (uint32_t)strlen(cursor);
  code = add(bytes, &head, sizeof head);
  if (code >= 0) code = add(bytes, cursor, head.cursor_length);
  free(cursor);
  int is_damaged = 0;
  lib.restart_data(journal);
  while (code >= 0) {
    const void *data = NULL;
    size_t length = 0;
    int found = lib.enumerate_available_data(journal, &data, &length);
    if (found == 0) break;
    if (found < 0) {
      is_damaged = 1;
      break;
    }
    const char *equals = memchr(data, '=', length);
    if (!equals) {
      is_damaged = 1;
      continue;
    }
    size_t name = (size_t)(equals - (const char *)data);
    rx_journal_field_head field = {.name_length = (uint32_t)name};
    size_t value = length - name - 1;
    size_t most = bytes->count - start >= most_entry ? 0 : most_field;
    field.length = (uint32_t)(value > most ? most : value);
    field.is_cut = value > most;
    head.fields++;
    code = add(bytes, &field, sizeof field);
    if (code >= 0) code = add(bytes, data, name);
    if (code >= 0) code = add(bytes, equals + 1, field.length);
  }
  if (code < 0) {
    bytes->count = start;
    return code;
  }
  memcpy(bytes->start + start, &head, sizeof head);
  return is_damaged;
}
