/* The operators for datagrams: one joins the chunks of messages and decodes them, the other encodes events and cuts long messages. */
#include "gelf.h"

/* ---- Messages whose chunks are not all there ---- */

enum { BUCKETS = 4096, NO_TIMER = -1 };

typedef struct message {
  struct message *next_of_bucket, *next, **previous; /* in the order of arrival */
  uint64_t hash, number;  /* `number` identifies its timer */
  size_t bytes;
  unsigned count, arrived;
  rxd_text key;           /* the id, then the sender */
  rxd_text chunks[];      /* chunks that have not arrived have `bytes` NULL */
} message;

typedef struct joining {
  reading reading;
  rxd_instance *instance;
  int64_t wait;
  size_t most, bytes_most, count, bytes;
  uint64_t number;
  bool has_warned;
  message *first, **last, *buckets[BUCKETS];
  output_bytes state;
} joining;

static uint64_t hash_of(rxd_text text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < text.count; i++) hash = (hash ^ (unsigned char)text.bytes[i]) * 0x100000001b3;
  hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93;
  return hash ^ hash >> 32;
}

static message *find(joining *self, rxd_text key, uint64_t hash) {
  message *one = self->buckets[hash % BUCKETS];
  while (one != NULL && (one->hash != hash || !text_is(one->key, key))) one = one->next_of_bucket;
  return one;
}

static message *insert(joining *self, rxd_text key, uint64_t hash, unsigned count, uint64_t number) {
  message *one = need(calloc(1, sizeof *one + count * sizeof *one->chunks));
  *one = (message){.hash = hash, .number = number, .bytes = sizeof *one + count * sizeof *one->chunks + key.count, .count = count,
                   .key = {copy_text(key), key.count}, .previous = self->last, .next_of_bucket = self->buckets[hash % BUCKETS]};
  self->buckets[hash % BUCKETS] = one;
  *self->last = one;
  self->last = &one->next;
  self->count++;
  self->bytes += one->bytes;
  return one;
}

static void store(joining *self, message *one, unsigned index, rxd_text chunk) {
  one->chunks[index] = (rxd_text){copy_text(chunk), chunk.count};
  one->arrived++;
  one->bytes += chunk.count;
  self->bytes += chunk.count;
}

static void forget(joining *self, message *one) {
  message **at = &self->buckets[one->hash % BUCKETS];
  while (*at != one) at = &(*at)->next_of_bucket;
  *at = one->next_of_bucket;
  *one->previous = one->next;
  if (one->next != NULL) one->next->previous = one->previous;
  else self->last = one->previous;
  self->count--;
  self->bytes -= one->bytes;
  for (unsigned i = 0; i < one->count; i++) free((char *)(uintptr_t)one->chunks[i].bytes);
  free((char *)(uintptr_t)one->key.bytes);
  free(one);
}

/* Drops a message that will not be completed: counts it, and warns once. */
static void give_up(joining *self, message *one, const char *reason) {
  host->count_up(self->instance, RXD_TEXT_OF("incomplete"), 1);
  if (!self->has_warned)
    report(self->instance, "warning", "a message was dropped with %u of %u chunks: %s; further ones are only counted", one->arrived, one->count, reason);
  self->has_warned = true;
  forget(self, one);
}

/* ---- Timers ---- */

static void set_timer(rxd_output *output, const message *one, int64_t nanoseconds) {
  char name[24];
  snprintf(name, sizeof name, "%llu", (unsigned long long)one->number);
  host->timer(output, text_of(name), nanoseconds);
}

static message *of_timer(joining *self, rxd_text name) {
  char digits[24] = {0};
  if (name.count >= sizeof digits) return NULL;
  memcpy(digits, name.bytes, name.count);
  uint64_t number = strtoull(digits, NULL, 10);
  message *one = self->first; /* timers fire in the order of arrival, so the message is near the front */
  while (one != NULL && one->number != number) one = one->next;
  return one;
}

/* ---- Chunks ---- */

static int decode_joined(joining *self, rxd_scope *scope, message *one, value_stack *events) {
  output_bytes joined;
  begin_output(&joined);
  for (unsigned i = 0; i < one->count; i++) output_append(&joined, one->chunks[i].bytes, one->chunks[i].count);
  rxd_text all = {joined.bytes, joined.count};
  int status = is_chunk(all) ? refuse("the joined message is a chunk again") : decode_gelf(&self->reading, scope, all, events);
  free_output(&joined);
  return status;
}

/* Stores a chunk; decodes the message if it is now complete. */
static int take_chunk(joining *self, rxd_scope *scope, rxd_text chunk, rxd_text sender, rxd_output *output, value_stack *events) {
  if (chunk.count < CHUNK_HEAD) return refuse("the chunk has %zu bytes; its header alone has %d", chunk.count, CHUNK_HEAD);
  unsigned index = (unsigned char)chunk.bytes[10], count = (unsigned char)chunk.bytes[11];
  if (count == 0 || count > CHUNKS_MOST) return refuse("byte 11: the message has %u chunks, and must have 1 to %d", count, CHUNKS_MOST);
  if (index >= count) return refuse("byte 10: the chunk has the number %u, and the message %u chunks", index, count);
  output_bytes key;
  begin_output(&key);
  output_append(&key, chunk.bytes + 2, 8);
  output_append(&key, sender.bytes, sender.count);
  rxd_text name = {key.bytes, key.count};
  uint64_t hash = hash_of(name);
  message *one = find(self, name, hash);
  int status = RXD_OK;
  if (one != NULL && one->count != count) {
    status = refuse("byte 11: the chunk says %u chunks, earlier ones of the message %u", count, one->count);
  } else if (one == NULL || one->chunks[index].bytes == NULL) {
    if (one == NULL) {
      one = insert(self, name, hash, count, self->number++);
      if (count > 1) set_timer(output, one, self->wait);
    }
    store(self, one, index, (rxd_text){chunk.bytes + CHUNK_HEAD, chunk.count - CHUNK_HEAD});
    if (one->arrived == one->count) {
      status = decode_joined(self, scope, one, events);
      if (count > 1) set_timer(output, one, NO_TIMER);
      forget(self, one);
    }
  }
  free_output(&key);
  while (self->count > self->most || self->bytes > self->bytes_most) {
    set_timer(output, self->first, NO_TIMER);
    give_up(self, self->first, self->count > self->most ? "more than 'maxMessages' were incomplete" : "the incomplete ones had more than 'maxBytes'");
  }
  return status;
}

static int take_datagram(joining *self, rxd_scope *scope, const rxd_input *input, rxd_output *output, value_stack *events) {
  const rxd_value *given = input->argument_count > 0 && host->kind(&input->arguments[0]) != RXD_ABSENT ? &input->arguments[0] : &input->event;
  int kind = host->kind(given);
  if (kind != RXD_BYTES && kind != RXD_TEXT) return refuse("the datagram is %s, and must be bytes", value_kind(kind));
  rxd_text datagram = host->text(scope, given), sender = {"", 0};
  if (!is_chunk(datagram)) return decode_gelf(&self->reading, scope, datagram, events);
  if (input->argument_count > 1 && host->kind(&input->arguments[1]) != RXD_ABSENT) sender = bytes_of_value(scope, &input->arguments[1]);
  return take_chunk(self, scope, datagram, sender, output, events);
}

/* ---- States ---- */

/* Format: for each message, a list of its number, key and count, and pairs of a chunk's index and bytes. */
static void restore(joining *self, rxd_scope *scope, const rxd_value *state) {
  size_t count = host->count(scope, state);
  for (size_t i = 0; i < count; i++) {
    rxd_value saved = host->element(scope, state, i), number = host->element(scope, &saved, 0), key = host->element(scope, &saved, 1);
    rxd_value chunks = host->element(scope, &saved, 2);
    rxd_text name = host->text(scope, &key);
    size_t of = (size_t)host->integer(&chunks), members = host->count(scope, &saved);
    if (of == 0 || of > CHUNKS_MOST || find(self, name, hash_of(name)) != NULL) continue;
    message *one = insert(self, name, hash_of(name), (unsigned)of, host->unsigned_integer(&number));
    if (one->number >= self->number) self->number = one->number + 1;
    for (size_t j = 3; j + 1 < members; j += 2) {
      rxd_value at = host->element(scope, &saved, j), bytes = host->element(scope, &saved, j + 1);
      int64_t index = host->integer(&at);
      if (index >= 0 && index < (int64_t)of && one->chunks[index].bytes == NULL) store(self, one, (unsigned)index, host->text(scope, &bytes));
    }
  }
}

static int join_save(void *instance, rxd_scope *scope, rxd_bytes *state) {
  joining *self = instance;
  value_stack values = {0};
  for (const message *one = self->first; one != NULL; one = one->next) {
    size_t start = values.count;
    push_value(&values, host->make_int((int64_t)one->number));
    push_value(&values, host->make_bytes(scope, one->key));
    push_value(&values, host->make_int(one->count));
    for (unsigned i = 0; i < one->count; i++) {
      if (one->chunks[i].bytes == NULL) continue;
      push_value(&values, host->make_int(i));
      push_value(&values, host->make_bytes(scope, one->chunks[i]));
    }
    push_value(&values, pop_list(scope, &values, start));
  }
  rxd_value all = pop_list(scope, &values, 0);
  rxd_text bytes = host->encode(scope, &all);
  self->state.count = 0;
  output_append(&self->state, bytes.bytes, bytes.count);
  *state = (rxd_bytes){self->state.bytes, self->state.count, NULL, NULL};
  free_values(&values);
  return RXD_OK;
}

/* ---- gelfDatagrams ---- */

static void join_close(void *instance) {
  joining *self = instance;
  while (self->first != NULL) forget(self, self->first);
  free_output(&self->state);
  free(self);
}

static int join_open(const rxd_opening *opening, void **instance) {
  joining *self = need(calloc(1, sizeof *self));
  self->instance = opening->instance;
  self->last = &self->first;
  self->wait = integer_parameter(opening, "wait", 5000000000);
  self->most = (size_t)integer_parameter(opening, "maxMessages", 1000);
  self->bytes_most = (size_t)integer_parameter(opening, "maxBytes", 16 << 20);
  begin_output(&self->state);
  rxd_value state;
  int status = open_reading(opening, &self->reading);
  if (status == RXD_OK && opening->state.count > 0 && opening->state_version == 1) {
    if (host->decode(opening->scope, opening->state, &state) == RXD_OK) restore(self, opening->scope, &state);
    else status = fail_at(opening->scope, "", "the saved state is damaged");
  }
  if (status == RXD_OK) *instance = self;
  else join_close(self);
  return status;
}

static int join_process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  joining *self = instance;
  value_stack events = {0};
  for (size_t index = 0; index < batch->count; index++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + index * batch->input_size);
    if (input->kind == RXD_TIMER) {
      message *one = of_timer(self, input->name);
      if (one != NULL) give_up(self, one, "the others have not arrived in time");
    } else if (input->kind == RXD_COMPLETE) {
      while (self->first != NULL) {
        set_timer(output, self->first, NO_TIMER);
        give_up(self, self->first, "the input has ended");
      }
    } else if (input->kind == RXD_EVENT) {
      events.count = 0;
      if (take_datagram(self, scope, input, output, &events) != RXD_OK) host->reject(output, index, text_of(refusal));
      else
        for (size_t i = 0; i < events.count; i++) host->send(output, index, &events.values[i]);
    }
  }
  free_values(&events);
  return RXD_OK;
}

const rxd_component join_component = {NAMED("operator", "gelfDatagrams"), .open = join_open, .close = join_close, .process = join_process, .save = join_save};

/* ---- gelfChunks ---- */

typedef struct splitting {
  writing writing;
  size_t size;
} splitting;

static void split_close(void *instance) {
  splitting *self = instance;
  free(self->writing.host);
  free(self);
}

static int split_open(const rxd_opening *opening, void **instance) {
  splitting *self = need(calloc(1, sizeof *self));
  self->size = (size_t)integer_parameter(opening, "size", 1420);
  int status = open_writing(opening, &self->writing);
  if (status == RXD_OK && (self->size < 64 || self->size > 65507)) status = fail_at(opening->scope, "size", "must be from 64 to 65507 bytes");
  if (status == RXD_OK) *instance = self;
  else split_close(self);
  return status;
}

/* Sends the message as one datagram, or as chunks. Their id is a hash of the message, so chunks of a repeated message
 * have the same id and can complete the earlier ones. */
static int send_datagrams(const splitting *self, rxd_scope *scope, rxd_text all, rxd_output *output, size_t index) {
  if (all.count <= self->size) {
    rxd_value datagram = host->make_bytes(scope, all);
    host->send(output, index, &datagram);
    return RXD_OK;
  }
  size_t each = self->size - CHUNK_HEAD, count = (all.count + each - 1) / each;
  if (count > CHUNKS_MOST) return refuse("the message has %zu bytes, and %d chunks of %zu hold %zu", all.count, CHUNKS_MOST, self->size, CHUNKS_MOST * each);
  uint64_t id = hash_of(all);
  char *bytes = need(malloc(self->size));
  bytes[0] = 0x1e, bytes[1] = 0x0f;
  for (int i = 0; i < 8; i++) bytes[2 + i] = (char)(id >> (8 * i));
  bytes[11] = (char)count;
  for (size_t i = 0; i < count; i++) {
    size_t here = i + 1 < count ? each : all.count - i * each;
    bytes[10] = (char)i;
    memcpy(bytes + CHUNK_HEAD, all.bytes + i * each, here);
    rxd_value datagram = host->make_bytes(scope, (rxd_text){bytes, CHUNK_HEAD + here});
    host->send(output, index, &datagram);
  }
  free(bytes);
  return RXD_OK;
}

static int split_process(void *instance, rxd_scope *scope, const rxd_batch *batch, rxd_output *output) {
  const splitting *self = instance;
  for (size_t index = 0; index < batch->count; index++) {
    const rxd_input *input = (const rxd_input *)((const char *)batch->inputs + index * batch->input_size);
    if (input->kind != RXD_EVENT) continue;
    output_bytes all;
    begin_output(&all);
    if (encode_gelf(&self->writing, scope, &input->event, &all) != RXD_OK
        || send_datagrams(self, scope, (rxd_text){all.bytes, all.count}, output, index) != RXD_OK)
      host->reject(output, index, text_of(refusal));
    free_output(&all);
  }
  return RXD_OK;
}

const rxd_component split_component = {NAMED("operator", "gelfChunks"), .open = split_open, .close = split_close, .process = split_process};
