// RocksDB, loaded when a pipeline first keeps keys on the disk: few pipelines do, and the library is large.
#ifndef RX_ROCKS_H
#define RX_ROCKS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/// Loads the library. False: it is not installed, or lacks a function; `why` has the reason.
bool rx_rocks_load(char *why, size_t size);

/// A directory of keys with values, each of which belongs to an owner. One thread at a time may put and write; the other
/// functions may be called by any thread meanwhile.
typedef struct rx_rocks rx_rocks;

/// Opens the directory; creates it if there is none. `memory`: the bytes that the library may use for what it caches and for
/// what it has not written to its files yet. NULL: it cannot be opened; `why` has the reason.
rx_rocks *rx_rocks_open(const char *path, size_t memory, char *why, size_t size);
/// `removes`: deletes the directory, too.
void rx_rocks_close(rx_rocks *keys, bool removes);

/// The reason of the last failure of the calling thread.
const char *rx_rocks_failure(void);

/// The bytes at the start of each value: a rank and a time, both as 8 bytes of this machine.
enum { RX_ROCKS_HEAD = 16 };

/// Copies as many bytes of a key's value to `value` as there is room for; `length` is the size of the value.
/// 1: it is there; 0: it is not; -1: it cannot be read.
int rx_rocks_find(
  rx_rocks *keys, uint32_t owner, const void *key, size_t key_length, void *value, size_t capacity, size_t *length);

/// Adds a key with its value, of at least `RX_ROCKS_HEAD` bytes, to the batch. The batch is not visible to
/// `rx_rocks_find` yet.
void rx_rocks_put(
  rx_rocks *keys, uint32_t owner, const void *key, size_t key_length, const void *value, size_t value_length);
/// Adds to the batch that a key and its value are removed.
void rx_rocks_delete(rx_rocks *keys, uint32_t owner, const void *key, size_t key_length);
/// Adds to the batch that a key has a mark: it is in an index, at a time; or that it has it no longer.
void rx_rocks_mark(
  rx_rocks *keys, uint32_t owner, uint8_t index, int64_t time, const void *key, size_t key_length, bool is_there);
/// Writes the batch, and `top` as the highest rank of the owner; a crash of the machine may still lose both. False: nothing was
/// written, and the batch is empty again.
bool rx_rocks_write(rx_rocks *keys, uint32_t owner, uint64_t top);
/// Makes sure that no crash loses what was written before the call.
bool rx_rocks_sync(rx_rocks *keys);

/// Walks over the marks of an index, in the order of their times and of equal ones in the order of the keys' bytes, from the mark with this
/// time and key on. No other walk may begin, and nothing may be found, before it has ended.
typedef struct rx_rocks_walk rx_rocks_walk;
rx_rocks_walk *rx_rocks_begin_walk(
  rx_rocks *keys, uint32_t owner, uint8_t index, int64_t time, const void *key, size_t key_length);
/// The next mark; `key` is valid until the next call. False: there is none, or it cannot be read.
bool rx_rocks_next(rx_rocks_walk *walk, int64_t *time, const void **key, size_t *key_length);
/// Ends the walk. False: some marks could not be read.
bool rx_rocks_end_walk(rx_rocks_walk *walk);

/// The highest rank that was written for an owner. 1: it is there; 0: the owner has none; -1: it cannot be read.
int rx_rocks_top(rx_rocks *keys, uint32_t owner, uint64_t *top);
/// The owners in ascending order, at most `capacity` of them. Returns how many there are, or -1.
long rx_rocks_owners(rx_rocks *keys, uint32_t *owners, size_t capacity);
/// Removes all keys of an owner.
bool rx_rocks_remove(rx_rocks *keys, uint32_t owner);

/// The lower bounds of the keys that an owner still needs: keys with a lower rank or time may be removed at any time.
typedef struct {
  uint32_t owner;
  uint64_t rank;
  int64_t time;
} rx_rocks_floor;
/// Replaces the floors of all owners.
void rx_rocks_set_floors(rx_rocks *keys, const rx_rocks_floor *floors, size_t count);
#ifdef __cplusplus
}
#endif
#endif
