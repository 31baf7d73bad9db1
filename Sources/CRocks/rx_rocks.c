#include "rx_rocks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The functions of the library, with the types from its header.
#define FUNCTIONS(X) \
  X(open) X(close) X(destroy_db) X(free) X(get_pinned) X(pinnableslice_value) X(pinnableslice_destroy) X(write) X(flush_wal) \
  X(options_create) X(options_destroy) X(options_set_create_if_missing) X(options_set_compression) \
  X(options_set_write_buffer_size) X(options_set_max_write_buffer_number) X(options_set_info_log_level) \
  X(options_set_keep_log_file_num) X(options_set_compaction_filter) X(options_set_block_based_table_factory) \
  X(options_set_level_compaction_dynamic_level_bytes) X(options_set_max_open_files) X(options_set_bytes_per_sync) \
  X(options_set_max_total_wal_size) X(options_set_memtable_prefix_bloom_size_ratio) \
  X(options_set_memtable_whole_key_filtering) \
  X(block_based_options_create) X(block_based_options_destroy) X(block_based_options_set_block_cache) \
  X(block_based_options_set_filter_policy) X(block_based_options_set_format_version) \
  X(block_based_options_set_index_type) X(block_based_options_set_partition_filters) \
  X(block_based_options_set_cache_index_and_filter_blocks) \
  X(block_based_options_set_cache_index_and_filter_blocks_with_high_priority) \
  X(block_based_options_set_pin_top_level_index_and_filter) \
  X(block_based_options_set_pin_l0_filter_and_index_blocks_in_cache) \
  X(filterpolicy_create_bloom_full) X(cache_create_lru) X(cache_destroy) X(compactionfilter_create) \
  X(compactionfilter_destroy) X(readoptions_create) X(readoptions_destroy) X(writeoptions_create) \
  X(writeoptions_destroy) X(writebatch_create) X(writebatch_destroy) X(writebatch_clear) X(writebatch_put) \
  X(writebatch_delete) X(writebatch_delete_range) X(create_iterator) X(iter_destroy) X(iter_seek) X(iter_next) \
  X(iter_valid) X(iter_key) X(iter_get_error)
#define FIELD(name) __typeof__(&rocksdb_##name) name;
static struct { FUNCTIONS(FIELD) } lib;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;
// The library names of Debian 12 and Ubuntu 24.04, which have the same functions.
static const char *const names[] = {"librocksdb.so.7.8", "librocksdb.so.8.9"};

bool rx_rocks_load(char *why, size_t size) {
  pthread_mutex_lock(&lock);
  if (!is_loaded) {
    const char *fault = NULL;
    void *handle = NULL;
    for (size_t index = 0; !handle && index < sizeof names / sizeof *names; index++)
      handle = dlopen(names[index], RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
      fault = dlerror();
    } else {
#define FIND(name) \
  if (!fault && !(lib.name = (__typeof__(lib.name))dlsym(handle, "rocksdb_" #name))) fault = "it lacks rocksdb_" #name;
      FUNCTIONS(FIND)
    }
    is_loaded = !fault;
    if (fault && size) snprintf(why, size, "%s", fault);
  }
  bool loaded = is_loaded;
  pthread_mutex_unlock(&lock);
  return loaded;
}

struct rx_rocks {
  rocksdb_t *db;
  char *path;
  rocksdb_readoptions_t *reading;
  rocksdb_writeoptions_t *writing;
  rocksdb_writebatch_t *batch;
  rocksdb_compactionfilter_t *filter;
  rocksdb_options_t *options;
  rocksdb_cache_t *cache;
  pthread_rwlock_t floors_lock;
  rx_rocks_floor *floors;
  size_t floor_count;
  // Buffers for the library's keys: one for `find`, one for `put`.
  struct key { char *bytes; size_t capacity; } found, added;
};

static _Thread_local char failure[512];
const char *rx_rocks_failure(void) { return failure; }

// Keeps the reason; true: there was none.
static bool is_fine(char *error) {
  if (!error) return true;
  snprintf(failure, sizeof failure, "%s", error);
  lib.free(error);
  return false;
}

// The first byte of the library's keys: the marks of owners' keys, the keys, and the owners themselves, which have their highest rank as
// value. A mark has the number of its index and its time before the key, so that the marks of an index are in the order of times.
enum { MARK = 'i', KEY = 'k', OWNER = 'o', HEAD = 5, MARK_HEAD = HEAD + 9 };

static void put_head(char *bytes, char kind, uint32_t owner) {
  bytes[0] = kind;
  for (int index = 0; index < 4; index++) bytes[1 + index] = (char)(owner >> (24 - 8 * index));
}

static uint32_t owner_of(const char *key) {
  uint32_t owner = 0;
  for (int index = 0; index < 4; index++) owner = owner << 8 | (unsigned char)key[1 + index];
  return owner;
}

static void make_room(struct key *made, size_t length) {
  if (made->capacity >= length) return;
  char *grown = realloc(made->bytes, 2 * length);
  if (!grown) abort();
  made->bytes = grown;
  made->capacity = 2 * length;
}

static size_t make_key(struct key *made, uint32_t owner, const void *key, size_t length) {
  make_room(made, HEAD + length);
  put_head(made->bytes, KEY, owner);
  if (length) memcpy(made->bytes + HEAD, key, length);
  return HEAD + length;
}

static size_t make_mark(struct key *made, uint32_t owner, uint8_t index, int64_t time, const void *key, size_t length) {
  make_room(made, MARK_HEAD + length);
  put_head(made->bytes, MARK, owner);
  made->bytes[HEAD] = (char)index;
  // The library compares bytes as unsigned numbers, the first one first.
  const uint64_t order = (uint64_t)time ^ UINT64_C(1) << 63;
  for (int at = 0; at < 8; at++) made->bytes[HEAD + 1 + at] = (char)(order >> (56 - 8 * at));
  if (length) memcpy(made->bytes + MARK_HEAD, key, length);
  return MARK_HEAD + length;
}

static const char *filter_name(void *state) {
  (void)state;
  return "rxd.floors";
}

// Called by the library's threads for each key of the files that it merges; not 0: the key is removed.
static unsigned char is_below_floor(
  void *state, int level, const char *key, size_t key_length, const char *value, size_t value_length, char **new_value,
  size_t *new_length, unsigned char *has_changed) {
  (void)level, (void)new_value, (void)new_length;
  rx_rocks *keys = state;
  *has_changed = 0;
  if (key_length < HEAD || key[0] != KEY || value_length < RX_ROCKS_HEAD) return 0;
  const uint32_t owner = owner_of(key);
  uint64_t rank;
  int64_t time;
  memcpy(&rank, value, sizeof rank);
  memcpy(&time, value + sizeof rank, sizeof time);
  bool is_below = false;
  pthread_rwlock_rdlock(&keys->floors_lock);
  for (size_t index = 0; index < keys->floor_count; index++) {
    const rx_rocks_floor *floor = &keys->floors[index];
    if (floor->owner == owner) is_below = rank < floor->rank || time < floor->time;
  }
  pthread_rwlock_unlock(&keys->floors_lock);
  return is_below;
}

static void nothing(void *state) { (void)state; }

// The minimum and maximum size of each of the two write buffers, in bytes.
enum { LEAST_BUFFER = 1 << 20, MOST_BUFFER = 32 << 20 };

static void set_options(rx_rocks *keys, size_t memory) {
  rocksdb_options_t *options = keys->options;
  lib.options_set_create_if_missing(options, 1);
  // Only what is wrong; its files are of no use to those who run the pipeline.
  lib.options_set_info_log_level(options, 3);
  lib.options_set_keep_log_file_num(options, 1);
  lib.options_set_compression(options, rocksdb_lz4_compression);
  size_t buffer = memory / 8;
  if (buffer < LEAST_BUFFER) buffer = LEAST_BUFFER;
  if (buffer > MOST_BUFFER) buffer = MOST_BUFFER;
  lib.options_set_write_buffer_size(options, buffer);
  lib.options_set_max_write_buffer_number(options, 2);
  lib.options_set_max_total_wal_size(options, 4 * buffer);
  // Most lookups miss the write buffer: a bloom filter answers them.
  lib.options_set_memtable_prefix_bloom_size_ratio(options, 0.1);
  lib.options_set_memtable_whole_key_filtering(options, 1);
  lib.options_set_level_compaction_dynamic_level_bytes(options, 1);
  lib.options_set_max_open_files(options, 256);
  lib.options_set_bytes_per_sync(options, 1 << 20);
  lib.options_set_compaction_filter(options, keys->filter);
  // Filters and indexes are read in parts through the cache, so that any number of keys stays within the memory.
  rocksdb_block_based_table_options_t *table = lib.block_based_options_create();
  const size_t rest = memory > 2 * buffer ? memory - 2 * buffer : 0;
  keys->cache = lib.cache_create_lru(rest > LEAST_BUFFER ? rest : LEAST_BUFFER);
  lib.block_based_options_set_block_cache(table, keys->cache);
  lib.block_based_options_set_format_version(table, 5);
  lib.block_based_options_set_filter_policy(table, lib.filterpolicy_create_bloom_full(10));
  lib.block_based_options_set_index_type(table, rocksdb_block_based_table_index_type_two_level_index_search);
  lib.block_based_options_set_partition_filters(table, 1);
  lib.block_based_options_set_cache_index_and_filter_blocks(table, 1);
  lib.block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
  lib.block_based_options_set_pin_top_level_index_and_filter(table, 1);
  lib.block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
  lib.options_set_block_based_table_factory(options, table);
  lib.block_based_options_destroy(table);
}

rx_rocks *rx_rocks_open(const char *path, size_t memory, char *why, size_t size) {
  if (!rx_rocks_load(why, size)) return NULL;
  rx_rocks *keys = calloc(1, sizeof *keys);
  if (!keys) {
    if (size) snprintf(why, size, "there is not enough memory");
    return NULL;
  }
  pthread_rwlock_init(&keys->floors_lock, NULL);
  keys->path = strdup(path);
  keys->filter = lib.compactionfilter_create(keys, nothing, is_below_floor, filter_name);
  keys->options = lib.options_create();
  set_options(keys, memory);
  keys->reading = lib.readoptions_create();
  keys->writing = lib.writeoptions_create();
  keys->batch = lib.writebatch_create();
  char *error = NULL;
  keys->db = lib.open(keys->options, path, &error);
  if (is_fine(error)) return keys;
  if (size) snprintf(why, size, "%s", failure);
  keys->db = NULL;
  rx_rocks_close(keys, false);
  return NULL;
}

void rx_rocks_close(rx_rocks *keys, bool removes) {
  if (!keys) return;
  if (keys->db) lib.close(keys->db);
  char *error = NULL;
  if (removes) lib.destroy_db(keys->options, keys->path, &error);
  is_fine(error);
  free(keys->path);
  lib.writebatch_destroy(keys->batch);
  lib.writeoptions_destroy(keys->writing);
  lib.readoptions_destroy(keys->reading);
  lib.options_destroy(keys->options);
  lib.cache_destroy(keys->cache);
  lib.compactionfilter_destroy(keys->filter);
  pthread_rwlock_destroy(&keys->floors_lock);
  free(keys->floors);
  free(keys->found.bytes);
  free(keys->added.bytes);
  free(keys);
}

// Copies the value of a key of the library, or as much as there is room for.
static int find(rx_rocks *keys, const char *key, size_t key_length, void *value, size_t capacity, size_t *length) {
  char *error = NULL;
  rocksdb_pinnableslice_t *found = lib.get_pinned(keys->db, keys->reading, key, key_length, &error);
  if (!is_fine(error)) return -1;
  if (!found) return 0;
  const char *bytes = lib.pinnableslice_value(found, length);
  if (bytes) memcpy(value, bytes, *length < capacity ? *length : capacity);
  lib.pinnableslice_destroy(found);
  return bytes ? 1 : 0;
}

int rx_rocks_find(
  rx_rocks *keys, uint32_t owner, const void *key, size_t key_length, void *value, size_t capacity, size_t *length) {
  const size_t made = make_key(&keys->found, owner, key, key_length);
  const int result = find(keys, keys->found.bytes, made, value, capacity, length);
  if (result != 1 || *length >= RX_ROCKS_HEAD) return result;
  snprintf(failure, sizeof failure, "a value has %zu bytes", *length);
  return -1;
}

void rx_rocks_put(
  rx_rocks *keys, uint32_t owner, const void *key, size_t key_length, const void *value, size_t value_length) {
  const size_t made = make_key(&keys->added, owner, key, key_length);
  lib.writebatch_put(keys->batch, keys->added.bytes, made, value, value_length);
}

void rx_rocks_delete(rx_rocks *keys, uint32_t owner, const void *key, size_t key_length) {
  const size_t made = make_key(&keys->added, owner, key, key_length);
  lib.writebatch_delete(keys->batch, keys->added.bytes, made);
}

void rx_rocks_mark(
  rx_rocks *keys, uint32_t owner, uint8_t index, int64_t time, const void *key, size_t key_length, bool is_there) {
  const size_t made = make_mark(&keys->added, owner, index, time, key, key_length);
  if (is_there)
    lib.writebatch_put(keys->batch, keys->added.bytes, made, "", 0);
  else
    lib.writebatch_delete(keys->batch, keys->added.bytes, made);
}

struct rx_rocks_walk {
  rocksdb_iterator_t *iterator;
  char head[HEAD + 1];
  bool has_begun;
};

rx_rocks_walk *rx_rocks_begin_walk(
  rx_rocks *keys, uint32_t owner, uint8_t index, int64_t time, const void *key, size_t key_length) {
  rx_rocks_walk *walk = calloc(1, sizeof *walk);
  if (!walk) abort();
  const size_t made = make_mark(&keys->found, owner, index, time, key, key_length);
  memcpy(walk->head, keys->found.bytes, sizeof walk->head);
  walk->iterator = lib.create_iterator(keys->db, keys->reading);
  lib.iter_seek(walk->iterator, keys->found.bytes, made);
  return walk;
}

bool rx_rocks_next(rx_rocks_walk *walk, int64_t *time, const void **key, size_t *key_length) {
  if (walk->has_begun) lib.iter_next(walk->iterator);
  walk->has_begun = true;
  if (!lib.iter_valid(walk->iterator)) return false;
  size_t length = 0;
  const char *bytes = lib.iter_key(walk->iterator, &length);
  if (length < MARK_HEAD || memcmp(bytes, walk->head, sizeof walk->head) != 0) return false;
  uint64_t order = 0;
  for (int at = 0; at < 8; at++) order = order << 8 | (unsigned char)bytes[HEAD + 1 + at];
  *time = (int64_t)(order ^ UINT64_C(1) << 63);
  *key = bytes + MARK_HEAD;
  *key_length = length - MARK_HEAD;
  return true;
}

bool rx_rocks_end_walk(rx_rocks_walk *walk) {
  char *error = NULL;
  lib.iter_get_error(walk->iterator, &error);
  lib.iter_destroy(walk->iterator);
  free(walk);
  return is_fine(error);
}

bool rx_rocks_write(rx_rocks *keys, uint32_t owner, uint64_t top) {
  char head[HEAD];
  put_head(head, OWNER, owner);
  lib.writebatch_put(keys->batch, head, HEAD, (const char *)&top, sizeof top);
  char *error = NULL;
  lib.write(keys->db, keys->writing, keys->batch, &error);
  lib.writebatch_clear(keys->batch);
  return is_fine(error);
}

bool rx_rocks_sync(rx_rocks *keys) {
  char *error = NULL;
  lib.flush_wal(keys->db, 1, &error);
  return is_fine(error);
}

int rx_rocks_top(rx_rocks *keys, uint32_t owner, uint64_t *top) {
  char head[HEAD];
  put_head(head, OWNER, owner);
  size_t length = 0;
  const int result = find(keys, head, HEAD, top, sizeof *top, &length);
  if (result != 1 || length == sizeof *top) return result;
  snprintf(failure, sizeof failure, "an owner's value has %zu bytes", length);
  return -1;
}

long rx_rocks_owners(rx_rocks *keys, uint32_t *owners, size_t capacity) {
  rocksdb_iterator_t *iterator = lib.create_iterator(keys->db, keys->reading);
  const char first = OWNER;
  long count = 0;
  for (lib.iter_seek(iterator, &first, 1); lib.iter_valid(iterator); lib.iter_next(iterator)) {
    size_t length = 0;
    const char *key = lib.iter_key(iterator, &length);
    if (length != HEAD || key[0] != OWNER) break;
    if ((size_t)count < capacity) owners[count] = owner_of(key);
    count++;
  }
  char *error = NULL;
  lib.iter_get_error(iterator, &error);
  lib.iter_destroy(iterator);
  return is_fine(error) ? count : -1;
}

bool rx_rocks_remove(rx_rocks *keys, uint32_t owner) {
  char first[HEAD], next[HEAD], head[HEAD];
  put_head(first, KEY, owner);
  // Owners fit into 31 bits.
  put_head(next, KEY, owner + 1);
  put_head(head, OWNER, owner);
  rocksdb_writebatch_t *batch = lib.writebatch_create();
  lib.writebatch_delete_range(batch, first, HEAD, next, HEAD);
  first[0] = next[0] = MARK;
  lib.writebatch_delete_range(batch, first, HEAD, next, HEAD);
  lib.writebatch_delete(batch, head, HEAD);
  char *error = NULL;
  lib.write(keys->db, keys->writing, batch, &error);
  lib.writebatch_destroy(batch);
  return is_fine(error);
}

void rx_rocks_set_floors(rx_rocks *keys, const rx_rocks_floor *floors, size_t count) {
  rx_rocks_floor *copy = count ? malloc(count * sizeof *copy) : NULL;
  if (count && !copy) return;
  if (count) memcpy(copy, floors, count * sizeof *copy);
  pthread_rwlock_wrlock(&keys->floors_lock);
  rx_rocks_floor *old = keys->floors;
  keys->floors = copy;
  keys->floor_count = count;
  pthread_rwlock_unlock(&keys->floors_lock);
  free(old);
}
