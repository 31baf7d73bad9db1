// systemd's journal, read by libsystemd, which is loaded at its first use.
#ifndef RX_JOURNAL_H
#define RX_JOURNAL_H
#include <stddef.h>
#include <stdint.h>

/// Journal files that are read together. Used by one thread at a time.
typedef struct rx_journal rx_journal;

/// Whether libsystemd is installed with all functions that are needed; it stays loaded.
int rx_journal_is_available(void);

/// Opens the journal of this machine, or the files of a directory. Null: `error` is an errno.
rx_journal *rx_journal_open(const char *directory, int *error);
void rx_journal_close(rx_journal *journal);

// These return 0, or a negative errno; `next` and `previous` return 1, or 0 if there is no further entry.
int rx_journal_match(rx_journal *journal, const char *field_and_value);
/// The following matches are an alternative to those since the last `and`.
int rx_journal_or(rx_journal *journal);
/// The following matches must hold, too.
int rx_journal_and(rx_journal *journal);
void rx_journal_flush_matches(rx_journal *journal);
int rx_journal_seek_head(rx_journal *journal);
int rx_journal_seek_tail(rx_journal *journal);
/// In microseconds since 1970.
int rx_journal_seek_time(rx_journal *journal, uint64_t microseconds);
int rx_journal_seek_cursor(rx_journal *journal, const char *cursor);
int rx_journal_next(rx_journal *journal);
int rx_journal_previous(rx_journal *journal);

/// The cursor of the current entry, which the caller frees; null: it cannot be read.
char *rx_journal_cursor(rx_journal *journal);
/// Whether the current entry has that cursor.
int rx_journal_is_at(rx_journal *journal, const char *cursor);

/// The descriptor to wait for before looking for further entries; negative: the journal cannot be watched.
int rx_journal_descriptor(rx_journal *journal);
/// The longest time to wait, in milliseconds; -1: no limit.
int rx_journal_timeout(rx_journal *journal);
/// Processes changes of the files, after the wait.
int rx_journal_process(rx_journal *journal);

/// A growing buffer. Freed with `rx_journal_free`.
typedef struct {
  uint8_t *start;
  size_t count;
  size_t capacity;
} rx_journal_bytes;
void rx_journal_free(rx_journal_bytes *bytes);

/// The header of an entry in the buffer; followed by its cursor, then `fields` fields.
typedef struct {
  uint64_t realtime;
  uint64_t monotonic;
  uint32_t cursor_length;
  uint32_t fields;
} rx_journal_entry_head;
/// The header of a field; followed by its name, then the first `length` bytes of its value.
typedef struct {
  uint32_t name_length;
  uint32_t length;
  /// Bytes of the value are missing.
  uint32_t is_cut;
} rx_journal_field_head;

/// Appends the current entry to the buffer: at most `most_field` bytes of each value, about `most_entry` bytes of all.
/// Returns 1 if fields could not be read because the file is damaged. On a negative errno, nothing is appended.
int rx_journal_read(rx_journal *journal, size_t most_field, size_t most_entry, rx_journal_bytes *bytes);

#endif
