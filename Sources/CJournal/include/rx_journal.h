// The journal of systemd, read by libsystemd, which is loaded when it is first used.
#ifndef RX_JOURNAL_H
#define RX_JOURNAL_H
#include <stddef.h>
#include <stdint.h>

/// Journal files that are read together. Used by one thread at a time.
typedef struct rx_journal rx_journal;

/// Whether libsystemd is there, with all that is needed of it; it stays loaded.
int rx_journal_is_available(void);

/// Opens the journal of this machine, or the files of a directory. Null: `error` is an errno.
rx_journal *rx_journal_open(const char *directory, int *error);
void rx_journal_close(rx_journal *journal);

// These return 0, or a negative errno; `next` and `previous` return 1, or 0 where there is no further entry.
int rx_journal_match(rx_journal *journal, const char *field_and_value);
/// What follows is an alternative to the matches since the last `and`.
int rx_journal_or(rx_journal *journal);
/// What follows must hold, too.
int rx_journal_and(rx_journal *journal);
void rx_journal_flush_matches(rx_journal *journal);
int rx_journal_seek_head(rx_journal *journal);
int rx_journal_seek_tail(rx_journal *journal);
/// In microseconds since 1970.
int rx_journal_seek_time(rx_journal *journal, uint64_t microseconds);
int rx_journal_seek_cursor(rx_journal *journal, const char *cursor);
int rx_journal_next(rx_journal *journal);
int rx_journal_previous(rx_journal *journal);

/// The cursor of the current entry, to be freed; null: it cannot be read.
char *rx_journal_cursor(rx_journal *journal);
/// Whether the current entry has that cursor.
int rx_journal_is_at(rx_journal *journal, const char *cursor);

/// What to wait for before further entries are looked for; -1 or less: it cannot be watched.
int rx_journal_descriptor(rx_journal *journal);
/// How long to wait at most, in milliseconds; -1: for ever.
int rx_journal_timeout(rx_journal *journal);
/// Takes note of changed files, after the wait.
int rx_journal_process(rx_journal *journal);

/// Bytes that grow. Freed with `rx_journal_free`.
typedef struct {
  uint8_t *start;
  size_t count;
  size_t capacity;
} rx_journal_bytes;
void rx_journal_free(rx_journal_bytes *bytes);

/// What begins an entry in the bytes; its cursor follows, then `fields` fields.
typedef struct {
  uint64_t realtime;
  uint64_t monotonic;
  uint32_t cursor_length;
  uint32_t fields;
} rx_journal_entry_head;
/// What begins a field; its name follows, then the first `length` bytes of its value.
typedef struct {
  uint32_t name_length;
  uint32_t length;
  /// Bytes of the value are missing.
  uint32_t is_cut;
} rx_journal_field_head;

/// Adds the current entry to the bytes: of each value at most `most_field` bytes, of all together about `most_entry`. Returns 1 where
/// fields could not be read, because the file is damaged. On a negative errno nothing is added.
int rx_journal_read(rx_journal *journal, size_t most_field, size_t most_entry, rx_journal_bytes *bytes);

#endif
