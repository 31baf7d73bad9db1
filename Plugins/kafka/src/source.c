/* The source `kafka`. A thread of its own polls librdkafka, so that the group never waits for rxd: while rxd takes
 * nothing, the partitions are paused and the thread polls on. `run` takes messages from a short queue.
 *
 * Each assignment of a partition has a number of its own, a part of the tokens of its events: an acknowledgement for an
 * assignment that has ended finds nothing. An offset is committed when rxd has acknowledged all events before it. */
#include "settings.h"

#include <pthread.h>

enum { QUEUE_MOST = 2000, SEQUENCE_BITS = 40, COMMIT_MS = 500 };

typedef struct slot {
  int64_t offset;
  bool is_done;
} slot;

typedef struct part {
  struct part *next;
  uint64_t number; /* of the assignment */
  char *topic;
  int32_t partition;
  /* Under way, oldest first: a ring whose first slot has the sequence `base`. */
  slot *slots;
  size_t capacity, first, count;
  uint64_t base;
  int64_t next_offset; /* to commit; below 0: nothing yet */
  int64_t committed;
  int64_t rewind_at; /* now_ms; 0: nothing failed. Then the partition is read again from its oldest event. */
  unsigned failures; /* in a row */
} part;

typedef struct waiting {
  struct waiting *next;
  rd_kafka_message_t *message;
  uint64_t number;
} waiting;

typedef struct source {
  rxd_instance *instance;
  rd_kafka_conf_t *conf;
  rd_kafka_t *client;
  rd_kafka_topic_partition_list_t *topics;
  char *brokers;
  enum { TEXT, JSON, BYTES } decode;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* the queue has a message, or the thread has ended */
  /* Under the mutex. */
  part *parts;
  uint64_t last_number;
  waiting *head, **tail;
  size_t queued, under_way;
  bool is_ending, has_ended;
  /* Of the thread. */
  bool is_paused, is_failing;
  rd_kafka_resp_err_t last_error;
} source;

static const char *const fixed[] = {"group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset",
                                    "enable.partition.eof", NULL};

/* ---- Partitions, under the mutex ---- */

static part *find(const source *self, uint64_t number) {
  for (part *part = self->parts; part != NULL; part = part->next)
    if (part->number == number) return part;
  return NULL;
}

static part *find_partition(const source *self, const char *topic, int32_t partition) {
  for (part *part = self->parts; part != NULL; part = part->next)
    if (part->partition == partition && strcmp(part->topic, topic) == 0) return part;
  return NULL;
}

static void drop_queued(source *self, uint64_t number) {
  waiting **at = &self->head;
  while (*at != NULL) {
    waiting *one = *at;
    if (number != 0 && one->number != number) {
      at = &one->next;
      continue;
    }
    *at = one->next;
    rd_kafka_message_destroy(one->message);
    free(one);
    self->queued--;
  }
  self->tail = at;
}

/* Everything of the assignment is forgotten; late acknowledgements find another number. */
static void forget(source *self, part *part) {
  drop_queued(self, part->number);
  self->under_way -= part->count;
  part->count = part->first = 0;
}

static void remove_part(source *self, part *gone) {
  part **at = &self->parts;
  while (*at != gone) at = &(*at)->next;
  *at = gone->next;
  forget(self, gone);
  free(gone->topic);
  free(gone->slots);
  free(gone);
}

static void add_part(source *self, const char *topic, int32_t partition) {
  part *one = find_partition(self, topic, partition);
  if (one != NULL) remove_part(self, one);
  one = need(calloc(1, sizeof *one));
  *one = (part){.next = self->parts, .number = ++self->last_number, .topic = need(strdup(topic)),
                .partition = partition, .base = 1, .next_offset = -1, .committed = -1};
  self->parts = one;
}

static uint64_t push(source *self, part *part, int64_t offset) {
  if (part->count == part->capacity) {
    size_t capacity = part->capacity == 0 ? 64 : part->capacity * 2;
    slot *slots = need(calloc(capacity, sizeof *slots));
    for (size_t i = 0; i < part->count; i++) slots[i] = part->slots[(part->first + i) % part->capacity];
    free(part->slots);
    part->slots = slots;
    part->capacity = capacity;
    part->first = 0;
  }
  part->slots[(part->first + part->count) % part->capacity] = (slot){offset, false};
  self->under_way++;
  return part->number << SEQUENCE_BITS | (part->base + part->count++);
}

static void acknowledge(source *self, const rxd_ack *ack) {
  part *part = find(self, ack->token >> SEQUENCE_BITS);
  uint64_t sequence = ack->token & (((uint64_t)1 << SEQUENCE_BITS) - 1);
  if (part == NULL || sequence < part->base || sequence - part->base >= part->count) return;
  if (ack->is_failed) {
    if (part->rewind_at == 0) part->rewind_at = now_ms() + backoff_ms(2 + part->failures++);
    return;
  }
  part->slots[(part->first + (sequence - part->base)) % part->capacity].is_done = true;
  while (part->count > 0 && part->slots[part->first].is_done) {
    part->next_offset = part->slots[part->first].offset + 1;
    part->first = (part->first + 1) % part->capacity;
    part->base++;
    part->count--;
    self->under_way--;
    if (part->rewind_at == 0) part->failures = 0;
  }
}

/* What can be committed of the given partitions (NULL: of all); NULL: nothing. */
static rd_kafka_topic_partition_list_t *to_commit(source *self, const rd_kafka_topic_partition_list_t *only) {
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
  for (part *part = self->parts; part != NULL; part = part->next) {
    if (part->next_offset < 0 || part->next_offset == part->committed) continue;
    if (only != NULL && rd_kafka_topic_partition_list_find((rd_kafka_topic_partition_list_t *)only, part->topic,
                                                           part->partition) == NULL)
      continue;
    rd_kafka_topic_partition_list_add(list, part->topic, part->partition)->offset = part->next_offset;
    part->committed = part->next_offset;
  }
  if (list->cnt > 0) return list;
  rd_kafka_topic_partition_list_destroy(list);
  return NULL;
}

/* ---- The thread ---- */

/* Waits for the answer, at most 5 s: without a coordinator there is none. */
static void commit_now(source *self, const rd_kafka_topic_partition_list_t *only) {
  pthread_mutex_lock(&self->mutex);
  rd_kafka_topic_partition_list_t *list = to_commit(self, only);
  pthread_mutex_unlock(&self->mutex);
  if (list == NULL) return;
  rd_kafka_queue_t *queue = rd_kafka_queue_new(self->client);
  if (rd_kafka_commit_queue(self->client, list, queue, NULL, NULL) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 5000);
    if (event == NULL || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR)
      host->count_up(self->instance, RXD_TEXT_OF("failedCommits"), 1);
    if (event != NULL) rd_kafka_event_destroy(event);
  }
  rd_kafka_queue_destroy(queue);
  rd_kafka_topic_partition_list_destroy(list);
}

static void on_commit(rd_kafka_t *client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t *list,
                      void *opaque) {
  (void)client;
  source *self = opaque;
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR || error == RD_KAFKA_RESP_ERR__NO_OFFSET) return;
  host->count_up(self->instance, RXD_TEXT_OF("failedCommits"), 1);
  /* They are committed again with the next ones. */
  pthread_mutex_lock(&self->mutex);
  for (int i = 0; list != NULL && i < list->cnt; i++) {
    part *part = find_partition(self, list->elems[i].topic, list->elems[i].partition);
    if (part != NULL) part->committed = -1;
  }
  pthread_mutex_unlock(&self->mutex);
}

static void on_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t *list,
                         void *opaque) {
  source *self = opaque;
  bool is_cooperative = strcmp(rd_kafka_rebalance_protocol(client), "COOPERATIVE") == 0;
  bool is_assigned = error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
  if (!is_assigned && !rd_kafka_assignment_lost(client)) commit_now(self, list);
  pthread_mutex_lock(&self->mutex);
  for (int i = 0; i < list->cnt; i++) {
    part *part = find_partition(self, list->elems[i].topic, list->elems[i].partition);
    if (is_assigned) add_part(self, list->elems[i].topic, list->elems[i].partition);
    else if (part != NULL) remove_part(self, part);
  }
  pthread_mutex_unlock(&self->mutex);
  self->is_paused = false; /* new partitions are not: the next turn pauses them again */
  if (is_cooperative) {
    rd_kafka_error_t *problem =
      is_assigned ? rd_kafka_incremental_assign(client, list) : rd_kafka_incremental_unassign(client, list);
    if (problem != NULL) rd_kafka_error_destroy(problem);
  } else {
    rd_kafka_assign(client, is_assigned ? list : NULL);
  }
  host->count_up(self->instance, RXD_TEXT_OF("rebalances"), 1);
}

static void trouble(source *self, rd_kafka_resp_err_t error) {
  host->count_up(self->instance, RXD_TEXT_OF("connectionErrors"), 1);
  if (self->is_failing && self->last_error == error) return;
  if (!self->is_failing || error != RD_KAFKA_RESP_ERR__TRANSPORT)
    report(self->instance, "warning", "%.200s: %s", self->brokers, rd_kafka_err2str(error));
  self->is_failing = true;
  self->last_error = error;
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
  (void)client, (void)reason;
  source *self = opaque;
  /* One broker of several may be away: librdkafka uses the others. */
  if (error == RD_KAFKA_RESP_ERR__TRANSPORT || error == RD_KAFKA_RESP_ERR__RESOLVE)
    host->count_up(self->instance, RXD_TEXT_OF("connectionErrors"), 1);
  else trouble(self, error);
}

static void take(source *self, rd_kafka_message_t *message) {
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    trouble(self, message->err);
    rd_kafka_message_destroy(message);
    return;
  }
  if (self->is_failing) report(self->instance, "info", "%.200s: messages come again", self->brokers);
  self->is_failing = false;
  pthread_mutex_lock(&self->mutex);
  part *part = find_partition(self, rd_kafka_topic_name(message->rkt), message->partition);
  if (part == NULL || self->is_ending) {
    rd_kafka_message_destroy(message);
  } else {
    waiting *one = need(calloc(1, sizeof *one));
    *one = (waiting){NULL, message, part->number};
    *self->tail = one;
    self->tail = &one->next;
    self->queued++;
    pthread_cond_signal(&self->changed);
  }
  pthread_mutex_unlock(&self->mutex);
}

/* Partitions of which an event failed are read again from their oldest event under way. */
static void rewind_failed(source *self) {
  rd_kafka_topic_partition_list_t *list = NULL;
  pthread_mutex_lock(&self->mutex);
  for (part *part = self->parts; part != NULL; part = part->next) {
    if (part->rewind_at == 0 || part->rewind_at > now_ms() || part->count == 0) continue;
    if (list == NULL) list = rd_kafka_topic_partition_list_new(4);
    rd_kafka_topic_partition_list_add(list, part->topic, part->partition)->offset = part->slots[part->first].offset;
    forget(self, part);
    part->number = ++self->last_number;
    part->base = 1;
    part->rewind_at = 0;
  }
  pthread_mutex_unlock(&self->mutex);
  if (list == NULL) return;
  host->count_up(self->instance, RXD_TEXT_OF("rewinds"), list->cnt);
  rd_kafka_error_t *problem = rd_kafka_seek_partitions(self->client, list, 5000);
  if (problem != NULL) {
    report(self->instance, "warning", "%.200s: %s", self->brokers, rd_kafka_error_string(problem));
    rd_kafka_error_destroy(problem);
  }
  rd_kafka_topic_partition_list_destroy(list);
}

static void pause_or_resume(source *self, size_t queued, bool is_ending) {
  bool pauses = is_ending || queued >= (self->is_paused ? QUEUE_MOST / 2 : QUEUE_MOST);
  if (pauses == self->is_paused) return;
  rd_kafka_topic_partition_list_t *list = NULL;
  if (rd_kafka_assignment(self->client, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) return;
  if (pauses) rd_kafka_pause_partitions(self->client, list);
  else rd_kafka_resume_partitions(self->client, list);
  rd_kafka_topic_partition_list_destroy(list);
  self->is_paused = pauses;
}

static void *serve(void *opaque) {
  source *self = opaque;
  int64_t commit_at = now_ms() + COMMIT_MS;
  for (;;) {
    pthread_mutex_lock(&self->mutex);
    bool is_ending = self->is_ending;
    size_t queued = self->queued;
    pthread_mutex_unlock(&self->mutex);
    if (is_ending) break;
    pause_or_resume(self, queued, false);
    rewind_failed(self);
    if (now_ms() >= commit_at) {
      pthread_mutex_lock(&self->mutex);
      rd_kafka_topic_partition_list_t *list = to_commit(self, NULL);
      pthread_mutex_unlock(&self->mutex);
      if (list != NULL) {
        rd_kafka_commit(self->client, list, 1);
        rd_kafka_topic_partition_list_destroy(list);
      }
      commit_at = now_ms() + COMMIT_MS;
    }
    rd_kafka_message_t *message = rd_kafka_consumer_poll(self->client, 100);
    if (message != NULL) take(self, message);
  }
  commit_now(self, NULL);
  rd_kafka_consumer_close(self->client);
  return NULL;
}

/* ---- Events, on the thread of `run` ---- */

static rxd_value content(const source *self, rxd_scope *scope, const void *bytes, size_t count) {
  rxd_text text = {count > 0 ? bytes : "", count};
  return self->decode == BYTES ? host->make_bytes(scope, text) : value_of_bytes(scope, text.bytes, count);
}

static bool add(source *self, rxd_source *running, rd_kafka_message_t *message, uint64_t token) {
  rxd_scope *scope = host->source_scope(running);
  rxd_text names[7] = {RXD_TEXT_OF("topic"), RXD_TEXT_OF("partition"), RXD_TEXT_OF("offset"), RXD_TEXT_OF("value")};
  rxd_value values[7] = {host->make_text(scope, text_of(rd_kafka_topic_name(message->rkt))),
                         host->make_int(message->partition), host->make_int(message->offset), host->make_null()};
  size_t count = 4;
  if (message->payload != NULL) {
    if (self->decode != JSON) values[3] = content(self, scope, message->payload, message->len);
    else if (!decode_json(scope, message->payload, message->len, &values[3])) {
      host->reject_input(running, (rxd_text){message->payload, message->len},
                         RXD_TEXT_OF("the value is no JSON document"), token);
      return true;
    }
  }
  if (message->key != NULL) {
    names[count] = RXD_TEXT_OF("key");
    values[count++] = value_of_bytes(scope, message->key_len > 0 ? message->key : "", message->key_len);
  }
  rd_kafka_timestamp_type_t type;
  int64_t time = rd_kafka_message_timestamp(message, &type);
  if (type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && time >= 0 && time < INT64_MAX / 1000000) {
    names[count] = RXD_TEXT_OF("timestamp");
    values[count++] = host->make_timestamp(time * 1000000);
  }
  /* A name may come several times: the last one counts. */
  rd_kafka_headers_t *headers;
  if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    rxd_text keys[64];
    rxd_value contents[64];
    size_t pairs = 0, size;
    const char *name;
    const void *bytes;
    for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &bytes, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
      rxd_value made = host->make_text(scope, text_of(name));
      rxd_text key = host->text(scope, &made);
      size_t place = 0;
      while (place < pairs && !text_is(keys[place], key)) place++;
      if (place == sizeof keys / sizeof keys[0]) continue;
      keys[place] = key;
      contents[place] = bytes == NULL ? host->make_null() : value_of_bytes(scope, size > 0 ? bytes : "", size);
      if (place == pairs) pairs++;
    }
    names[count] = RXD_TEXT_OF("headers");
    values[count++] = host->make_object(scope, keys, contents, pairs);
  }
  rxd_value event = host->make_object(scope, names, values, count);
  return host->add(running, &event, token) != RXD_STOP;
}

static void take_acks(source *self, rxd_source *running, int64_t wait_ms) {
  rxd_ack acks[256];
  size_t count;
  do {
    count = host->acks(running, acks, sizeof acks / sizeof acks[0], wait_ms * 1000000);
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < count; i++) acknowledge(self, &acks[i]);
    pthread_mutex_unlock(&self->mutex);
    wait_ms = 0;
  } while (count == sizeof acks / sizeof acks[0]);
}

/* The next message; waits for it a little. */
static rd_kafka_message_t *next(source *self, bool waits, uint64_t *token) {
  rd_kafka_message_t *message = NULL;
  pthread_mutex_lock(&self->mutex);
  if (self->head == NULL && waits) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 50000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&self->changed, &self->mutex, &until);
  }
  waiting *one = self->head;
  if (one != NULL) {
    self->head = one->next;
    if (self->head == NULL) self->tail = &self->head;
    self->queued--;
    message = one->message;
    /* Its assignment is there: with it, its messages would have gone. */
    *token = push(self, find(self, one->number), message->offset);
    free(one);
  }
  pthread_mutex_unlock(&self->mutex);
  return message;
}

static size_t under_way(source *self) {
  pthread_mutex_lock(&self->mutex);
  size_t count = self->under_way;
  pthread_mutex_unlock(&self->mutex);
  return count;
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  char problem[300];
  rd_kafka_conf_t *copy = rd_kafka_conf_dup(self->conf);
  self->client = rd_kafka_new(RD_KAFKA_CONSUMER, copy, problem, sizeof problem);
  if (self->client == NULL) {
    rd_kafka_conf_destroy(copy);
    return fail_at(scope, "", "%s", problem);
  }
  rd_kafka_poll_set_consumer(self->client);
  rd_kafka_resp_err_t error = rd_kafka_subscribe(self->client, self->topics);
  self->is_ending = self->is_paused = self->is_failing = false;
  self->queued = self->under_way = 0;
  self->head = NULL;
  self->tail = &self->head;
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR || pthread_create(&self->thread, NULL, serve, self) != 0) {
    rd_kafka_destroy(self->client);
    self->client = NULL;
    return fail_at(scope, "topics", "%s", error != 0 ? rd_kafka_err2str(error) : "no thread can be started");
  }
  bool is_told_to_stop = false;
  while (!is_told_to_stop && host->is_stopping(running) == 0) {
    uint64_t token;
    rd_kafka_message_t *message = next(self, true, &token);
    for (int added = 0; message != NULL; added++) {
      if (!add(self, running, message, token)) is_told_to_stop = true;
      rd_kafka_message_destroy(message);
      message = is_told_to_stop || added >= 500 ? NULL : next(self, false, &token);
    }
    if (host->flush(running) == RXD_STOP) is_told_to_stop = true;
    take_acks(self, running, 0);
  }
  /* What is under way gets time; what is not acknowledged then comes again. */
  int64_t end = now_ms() + 30000;
  while (under_way(self) > 0 && host->is_stopping(running) != 2 && now_ms() < end) take_acks(self, running, 100);
  take_acks(self, running, 0);
  pthread_mutex_lock(&self->mutex);
  self->is_ending = true;
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
  while (self->parts != NULL) remove_part(self, self->parts);
  drop_queued(self, 0);
  rd_kafka_destroy(self->client);
  self->client = NULL;
  return RXD_OK;
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  if (self->conf != NULL) rd_kafka_conf_destroy(self->conf);
  if (self->topics != NULL) rd_kafka_topic_partition_list_destroy(self->topics);
  free(self->brokers);
  pthread_mutex_destroy(&self->mutex);
  pthread_cond_destroy(&self->changed);
  free(self);
}

static int topics_parameter(const rxd_opening *opening, source *self) {
  rxd_value list = parameter(opening, "topics");
  size_t given = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  if (given == 0) return fail_at(opening->scope, "topics", "needs a topic");
  for (size_t i = 0; i < given; i++) {
    rxd_value element = host->element(opening->scope, &list, i);
    rxd_text text = host->text(opening->scope, &element);
    char at[32];
    snprintf(at, sizeof at, "topics.%zu", i);
    if (text.count == 0 || text.count > 249 || memchr(text.bytes, 0, text.count) != NULL)
      return fail_at(opening->scope, at, "must have 1 to 249 bytes, and no zero byte");
    char *topic = copy_text(text);
    rd_kafka_topic_partition_list_add(self->topics, topic, RD_KAFKA_PARTITION_UA);
    free(topic);
  }
  return RXD_OK;
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&self->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&self->mutex, NULL);
  self->instance = opening->instance;
  self->tail = &self->head;
  self->conf = rd_kafka_conf_new();
  self->topics = rd_kafka_topic_partition_list_new(4);
  self->decode = choice_is(opening, "decode", "json") ? JSON : choice_is(opening, "decode", "bytes") ? BYTES : TEXT;
  char *group = NULL;
  /* What librdkafka reads ahead is memory of rxd; `options` may change it. */
  int status = setting(opening, self->conf, "options", "queued.max.messages.kbytes", "16384");
  if (status == RXD_OK) status = settings_open(opening, self->conf, fixed, &self->brokers);
  if (status == RXD_OK) status = topics_parameter(opening, self);
  if (status == RXD_OK) status = text_parameter(opening, "group", &group);
  if (status == RXD_OK && (group == NULL || *group == 0))
    status = fail_at(opening->scope, "group", "must not be empty");
  if (status == RXD_OK) status = setting(opening, self->conf, "group", "group.id", group);
  free(group);
  if (status == RXD_OK) status = setting(opening, self->conf, "group", "enable.auto.commit", "false");
  if (status == RXD_OK) status = setting(opening, self->conf, "group", "enable.auto.offset.store", "false");
  if (status == RXD_OK)
    status = setting(opening, self->conf, "start", "auto.offset.reset",
                     choice_is(opening, "start", "new") ? "latest" : "earliest");
  rd_kafka_conf_set_opaque(self->conf, self);
  rd_kafka_conf_set_rebalance_cb(self->conf, on_rebalance);
  rd_kafka_conf_set_offset_commit_cb(self->conf, on_commit);
  rd_kafka_conf_set_error_cb(self->conf, on_error);
  if (status != RXD_OK) {
    source_close(self);
    return RXD_FAILED;
  }
  *instance = self;
  return RXD_OK;
}

const rxd_component kafka_source = {
  .size = sizeof(rxd_component),
  .name = {"kafka", 5},
  .kind = {"source", 6},
  .open = source_open,
  .close = source_close,
  .run = source_run,
};
