/* The source `kafka`. The thread of the connection polls librdkafka, so that the group never waits for rxd: while rxd
 * accepts nothing, the partitions are paused and the thread continues to poll. librdkafka connects on its own, so the
 * client counts as open until the source ends.
 *
 * An offset is committed when rxd has acknowledged all events before it. Only the polling thread adds, removes and
 * numbers partitions, so it may look them up without the mutex. */
#include "event.h"
#include "parts.h"

#include <math.h>

enum {
  QUEUE_MOST = 10000,      /* messages */
  MESSAGE_BYTES = 200,     /* memory of a message in addition to its key and value */
  POLLED_MOST = 256,       /* messages collected before the queue is locked */
  COMMIT_MS = 500,
  REQUEST_MS = 5000,       /* wait for the answer to a commit */
  LOCATE_MS = 2000,        /* wait for offsets, which blocks everything else */
  PATIENCE_MS = 1000,      /* wait for room in a full queue before partitions are paused */
  LAG_MS = 1000,
  ASK_MS = 5000,           /* interval of requests for the ends of paused partitions */
};

typedef struct delivery {
  broker_message base; /* must be first */
  rd_kafka_message_t *message;
  uint32_t number; /* number of the assignment */
} delivery;

/* A request for the ends of partitions. */
typedef struct asking {
  pthread_t thread;
  rd_kafka_t *client;
  rd_kafka_topic_partition_list_t *ends;
  rd_kafka_resp_err_t error;
  atomic_bool is_done;
} asking;

typedef struct source {
  broker_source broker;
  attempts attempts;
  rd_kafka_conf_t *conf;
  rd_kafka_t *client;
  rd_kafka_topic_partition_list_t *topics;
  char *brokers;
  decoding decode;
  bool starts_new;
  size_t buffer; /* queue limit in bytes */
  /* Protected by the mutex. */
  parts parts;
  bool is_full;
  part *taken; /* partition of the last message that left the queue */
  /* Used only by the polling thread. */
  bool is_failing, is_seek_failing;
  part *recent; /* partition of the last message */
  int64_t full_since, commit_at, seek_at, lag_at, ask_at;
  asking *asking; /* NULL: none */
  rd_kafka_resp_err_t last_error;
} source;

static const char *const fixed[] = {"group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset",
                                    "enable.partition.eof", "queued.max.messages.kbytes", "queued.min.messages",
                                    NULL};

static void count_up(const source *self, const char *name, int64_t by) {
  host->count_up(self->attempts.instance, text_of(name), by);
}

/* ---- The queue, under the mutex ---- */

static size_t size_of(const rd_kafka_message_t *message) { return message->len + message->key_len + MESSAGE_BYTES; }

static void destroy_delivery(broker_message *message) {
  rd_kafka_message_destroy(((delivery *)message)->message);
  free(message);
}

static bool is_of_part(const broker_message *message, uint64_t number) {
  return ((const delivery *)message)->number == number;
}

/* Drops the queued messages of an assignment. */
static void drop_queued(source *self, part *part) {
  broker_drop(&self->broker, is_of_part, part->number);
  part->waiting = 0;
}

/* The queue is full from the limit on until half of it has been taken. */
static bool is_full(const source *self) {
  size_t divisor = self->is_full ? 2 : 1;
  return self->broker.queued >= QUEUE_MOST / divisor || self->broker.queued_bytes >= self->buffer / divisor;
}

/* ---- Trouble, on the thread ---- */

static void give_up(source *self) {
  char text[300], problem[520];
  rd_kafka_resp_err_t error = rd_kafka_fatal_error(self->client, text, sizeof text);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
  snprintf(problem, sizeof problem, "%.200s: %s", self->brokers, *text != 0 ? text : rd_kafka_err2str(error));
  broker_fail(&self->broker, "", problem);
}

static void trouble(source *self, rd_kafka_resp_err_t error, const char *reason) {
  count_up(self, "connectionErrors", 1);
  if (self->is_failing && self->last_error == error) return;
  if (!self->is_failing || error != RD_KAFKA_RESP_ERR__TRANSPORT)
    report(self->attempts.instance, "warning", "%.200s: %s%s%.200s", self->brokers, rd_kafka_err2str(error),
           reason != NULL ? ": " : "", reason != NULL ? reason : "");
  self->is_failing = true;
  self->last_error = error;
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
  (void)client;
  source *self = opaque;
  /* One of several brokers may be unreachable: librdkafka uses the others. */
  if (error == RD_KAFKA_RESP_ERR__FATAL) give_up(self);
  else if (error == RD_KAFKA_RESP_ERR__TRANSPORT || error == RD_KAFKA_RESP_ERR__RESOLVE)
    count_up(self, "connectionErrors", 1);
  else trouble(self, error, reason);
}

/* ---- Commits, on the thread ---- */

static void on_commit(rd_kafka_t *client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t *list,
                      void *opaque) {
  (void)client;
  source *self = opaque;
  if (error == RD_KAFKA_RESP_ERR__NO_OFFSET) return;
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) count_up(self, "failedCommits", 1);
  broker_lock(&self->broker);
  parts_committed(&self->parts, error, list);
  broker_unlock(&self->broker);
}

static rd_kafka_topic_partition_list_t *to_commit(source *self, const rd_kafka_topic_partition_list_t *only, bool again) {
  broker_lock(&self->broker);
  rd_kafka_topic_partition_list_t *list = parts_to_commit(&self->parts, only, again);
  broker_unlock(&self->broker);
  return list;
}

static void commit_sometimes(source *self) {
  if (now_ms() < self->commit_at) return;
  self->commit_at = now_ms() + COMMIT_MS;
  rd_kafka_topic_partition_list_t *list = to_commit(self, NULL, false);
  if (list == NULL) return;
  rd_kafka_resp_err_t error = rd_kafka_commit(self->client, list, 1);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) on_commit(self->client, error, list, self);
  rd_kafka_topic_partition_list_destroy(list);
}

/* Commits and waits for the answer; without a coordinator there is none. */
static void commit_now(source *self, const rd_kafka_topic_partition_list_t *only) {
  rd_kafka_topic_partition_list_t *list = to_commit(self, only, true);
  if (list == NULL) return;
  rd_kafka_queue_t *queue = rd_kafka_queue_new(self->client);
  rd_kafka_resp_err_t error = rd_kafka_commit_queue(self->client, list, queue, NULL, NULL);
  rd_kafka_event_t *event = NULL;
  /* Waits in short steps, because a stop that begins meanwhile sets a deadline. */
  for (int64_t end = now_ms() + REQUEST_MS;
       event == NULL && error == RD_KAFKA_RESP_ERR_NO_ERROR && now_ms() < end && broker_left(&self->broker, REQUEST_MS) > 0;)
    event = rd_kafka_queue_poll(queue, 100);
  if (event == NULL) on_commit(self->client, RD_KAFKA_RESP_ERR__TIMED_OUT, list, self);
  else on_commit(self->client, rd_kafka_event_error(event), rd_kafka_event_topic_partition_list(event), self);
  if (event != NULL) rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(queue);
  rd_kafka_topic_partition_list_destroy(list);
}

static void set_lag(const source *self, const part *part, double lag) {
  char of[320];
  snprintf(of, sizeof of, "%.249s/%d", part->topic, (int)part->partition);
  host->gauge(self->attempts.instance, RXD_TEXT_OF("lag"), text_of(of), lag);
}

/* ---- Assignments, on the thread ---- */

/* A pause outlives the assignment in which it was made. Must be called before the assignment: resuming an active
 * partition makes librdkafka read it again. */
static void resume_unassigned(rd_kafka_t *client, const rd_kafka_topic_partition_list_t *list) {
  rd_kafka_topic_partition_list_t *copy = need(rd_kafka_topic_partition_list_copy(list));
  rd_kafka_resume_partitions(client, copy);
  rd_kafka_topic_partition_list_destroy(copy);
}

static void assign(source *self, const rd_kafka_topic_partition_list_t *list) {
  self->recent = NULL;
  for (int i = 0; i < list->cnt; i++) {
    broker_lock(&self->broker);
    self->taken = NULL;
    part *old = parts_find_partition(&self->parts, list->elems[i].topic, list->elems[i].partition);
    if (old != NULL) drop_queued(self, old);
    parts_add(&self->parts, list->elems[i].topic, list->elems[i].partition)->must_locate = self->starts_new;
    broker_unlock(&self->broker);
  }
}

/* Forgets these assignments. */
static void unassign(source *self, const rd_kafka_topic_partition_list_t *list) {
  self->recent = NULL;
  broker_lock(&self->broker);
  self->taken = NULL;
  for (int i = 0; i < list->cnt; i++) {
    part *part = parts_find_partition(&self->parts, list->elems[i].topic, list->elems[i].partition);
    if (part == NULL) continue;
    drop_queued(self, part);
    set_lag(self, part, NAN);
    parts_remove(&self->parts, part);
  }
  broker_unlock(&self->broker);
}

/* Confirms the change to librdkafka and reports a refusal. */
static void confirm(source *self, bool is_assigned, const rd_kafka_topic_partition_list_t *list) {
  rd_kafka_t *client = self->client;
  char problem[200] = "";
  if (strcmp(rd_kafka_rebalance_protocol(client), "COOPERATIVE") == 0) {
    rd_kafka_error_t *error =
      is_assigned ? rd_kafka_incremental_assign(client, list) : rd_kafka_incremental_unassign(client, list);
    if (error != NULL) snprintf(problem, sizeof problem, "%s", rd_kafka_error_string(error));
    if (error != NULL) rd_kafka_error_destroy(error);
  } else {
    rd_kafka_resp_err_t error = rd_kafka_assign(client, is_assigned ? list : NULL);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) snprintf(problem, sizeof problem, "%s", rd_kafka_err2str(error));
  }
  if (*problem == 0) return;
  report(self->attempts.instance, "warning", "%.200s: partitions cannot be %s: %s", self->brokers,
         is_assigned ? "assigned" : "given back", problem);
  give_up(self);
}

static void on_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t *list,
                         void *opaque) {
  source *self = opaque;
  bool is_assigned = error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
  count_up(self, "rebalances", 1);
  if (is_assigned) {
    resume_unassigned(client, list);
    assign(self, list);
  } else {
    /* Lost partitions may already belong to another member, which then commits. */
    if (!rd_kafka_assignment_lost(client)) commit_now(self, list);
    unassign(self, list);
  }
  confirm(self, is_assigned, list);
}

/* ---- Lists of partitions, on the thread ---- */

typedef bool chooses(const source *self, const part *part);

/* The partitions for which `is_chosen` holds; NULL: none. */
static rd_kafka_topic_partition_list_t *chosen(source *self, chooses *is_chosen) {
  rd_kafka_topic_partition_list_t *list = NULL;
  for (part *part = self->parts.first; part != NULL; part = part->next) {
    if (!is_chosen(self, part)) continue;
    if (list == NULL) list = need(rd_kafka_topic_partition_list_new(8));
    rd_kafka_topic_partition_list_add(list, part->topic, part->partition)->offset = part->rewind_offset;
  }
  return list;
}

static part *part_of(const source *self, const rd_kafka_topic_partition_t *one) {
  return parts_find_partition(&self->parts, one->topic, one->partition);
}

/* ---- The lag, on the thread ---- */

/* The offset after the last message passed to rxd; NO_OFFSET: not known yet. */
static int64_t next_unread(source *self, const part *part) {
  if (part->must_locate || part->rewind_offset >= 0) return part->rewind_offset;
  broker_lock(&self->broker);
  int64_t next = part->waiting == 0 && part->end > part->unread ? part->end : part->unread;
  broker_unlock(&self->broker);
  return next;
}

static void *ask(void *opaque) {
  asking *self = opaque;
  self->error = rd_kafka_offsets_for_times(self->client, self->ends, LOCATE_MS);
  atomic_store(&self->is_done, true);
  return NULL;
}

/* Waits for the answer to the request for end offsets. */
static void take_ends(source *self) {
  asking *asking = self->asking;
  if (asking == NULL) return;
  pthread_join(asking->thread, NULL);
  for (int i = 0; i < asking->ends->cnt && asking->error == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
    const rd_kafka_topic_partition_t *one = &asking->ends->elems[i];
    part *part = part_of(self, one);
    if (part != NULL && part->is_paused && one->err == RD_KAFKA_RESP_ERR_NO_ERROR && one->offset >= 0) part->asked_end = one->offset;
  }
  rd_kafka_topic_partition_list_destroy(asking->ends);
  free(asking);
  self->asking = NULL;
}

static bool is_paused(const source *self, const part *part) { return (void)self, part->is_paused; }

/* The ends of paused partitions must be requested. The library's request blocks, so it runs on its own thread. */
static void ask_for_ends(source *self) {
  if (self->asking != NULL && atomic_load(&self->asking->is_done)) take_ends(self);
  if (self->asking != NULL || now_ms() < self->ask_at) return;
  rd_kafka_topic_partition_list_t *list = chosen(self, is_paused);
  if (list == NULL) return;
  self->ask_at = now_ms() + ASK_MS;
  for (int i = 0; i < list->cnt; i++) list->elems[i].offset = RD_KAFKA_OFFSET_END;
  self->asking = need(calloc(1, sizeof *self->asking));
  self->asking->client = self->client;
  self->asking->ends = list;
  if (pthread_create(&self->asking->thread, NULL, ask, self->asking) == 0) return;
  rd_kafka_topic_partition_list_destroy(list);
  free(self->asking);
  self->asking = NULL;
}

/* How far the pipeline is behind the end of each partition, according to the last answer to a fetch or to a request. */
static void report_lags(source *self) {
  if (now_ms() < self->lag_at) return;
  self->lag_at = now_ms() + LAG_MS;
  ask_for_ends(self);
  for (part *part = self->parts.first; part != NULL; part = part->next) {
    int64_t next = next_unread(self, part), low, high;
    if (next < 0
        || rd_kafka_get_watermark_offsets(self->client, part->topic, part->partition, &low, &high) != RD_KAFKA_RESP_ERR_NO_ERROR
        || high < 0)
      continue;
    if (part->asked_end > high) high = part->asked_end;
    set_lag(self, part, high > next ? (double)(high - next) : 0);
  }
}

/* ---- Reading again, on the thread ---- */

static void seek_later(source *self, const char *what, const char *problem) {
  self->seek_at = now_ms() + 200;
  count_up(self, "failedSeeks", 1);
  if (!self->is_seek_failing) report(self->attempts.instance, "warning", "%.200s: %s: %s; trying again", self->brokers, what, problem);
  self->is_seek_failing = true;
}

static bool must_locate(const source *self, const part *part) { return (void)self, part->must_locate; }

/* With `start: new`, a partition without a committed offset starts at its end. That end becomes the first offset to
 * commit, so that a restart continues there. Otherwise a restart would begin at the end at that time and lose the
 * messages in between. */
static rd_kafka_resp_err_t locate_ends(source *self, const rd_kafka_topic_partition_list_t *committed) {
  rd_kafka_topic_partition_list_t *ends = need(rd_kafka_topic_partition_list_new(8));
  for (int i = 0; i < committed->cnt; i++)
    if (committed->elems[i].offset < 0)
      rd_kafka_topic_partition_list_add(ends, committed->elems[i].topic, committed->elems[i].partition)->offset =
        RD_KAFKA_OFFSET_END;
  rd_kafka_resp_err_t error =
    ends->cnt == 0 ? RD_KAFKA_RESP_ERR_NO_ERROR : rd_kafka_offsets_for_times(self->client, ends, LOCATE_MS);
  for (int i = 0; i < ends->cnt && error == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
    part *part = part_of(self, &ends->elems[i]);
    error = ends->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR && ends->elems[i].offset < 0
              ? RD_KAFKA_RESP_ERR__NO_OFFSET : ends->elems[i].err;
    if (part == NULL || error != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    broker_lock(&self->broker);
    part->next_offset = part->rewind_offset = ends->elems[i].offset;
    part->must_locate = false;
    broker_unlock(&self->broker);
  }
  rd_kafka_topic_partition_list_destroy(ends);
  return error;
}

static void locate(source *self) {
  rd_kafka_topic_partition_list_t *list = chosen(self, must_locate);
  if (list == NULL) return;
  rd_kafka_resp_err_t error = rd_kafka_committed(self->client, list, LOCATE_MS);
  for (int i = 0; i < list->cnt && error == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
    part *part = part_of(self, &list->elems[i]);
    error = list->elems[i].err;
    if (part == NULL || error != RD_KAFKA_RESP_ERR_NO_ERROR || list->elems[i].offset < 0) continue;
    part->rewind_offset = list->elems[i].offset;
    part->must_locate = false;
  }
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) error = locate_ends(self, list);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) seek_later(self, "the start of partitions is not known", rd_kafka_err2str(error));
  rd_kafka_topic_partition_list_destroy(list);
}

/* Reads partitions with failed events again from their oldest outstanding event. */
static void rewind_failed(source *self) {
  int64_t rewinds = 0, now = now_ms();
  broker_lock(&self->broker);
  for (part *part = self->parts.first; part != NULL; part = part->next) {
    if (part->rewind_at == 0 || part->rewind_at > now) continue;
    drop_queued(self, part);
    part_rewind(&self->parts, part);
    rewinds++;
  }
  broker_unlock(&self->broker);
  if (rewinds > 0) count_up(self, "rewinds", rewinds);
}

static bool must_seek(const source *self, const part *part) { return (void)self, part->rewind_offset >= 0; }

/* librdkafka before 2.1 interprets the timeout as microseconds. */
static int seek_timeout(void) { return rd_kafka_version() < 0x02010000 ? REQUEST_MS * 1000 : REQUEST_MS; }

/* A seek takes effect for a partition when librdkafka confirms it: afterwards librdkafka delivers no message that it
 * had read before. */
static void seek(source *self) {
  rd_kafka_topic_partition_list_t *list = chosen(self, must_seek);
  if (list == NULL) return;
  for (int i = 0; i < list->cnt; i++) list->elems[i].err = RD_KAFKA_RESP_ERR__IN_PROGRESS;
  rd_kafka_error_t *problem = rd_kafka_seek_partitions(self->client, list, seek_timeout());
  rd_kafka_resp_err_t failure = RD_KAFKA_RESP_ERR_NO_ERROR;
  for (int i = 0; i < list->cnt; i++) {
    part *part = part_of(self, &list->elems[i]);
    if (list->elems[i].err != RD_KAFKA_RESP_ERR_NO_ERROR) failure = list->elems[i].err;
    else if (part != NULL) {
      broker_lock(&self->broker);
      part->position = part->unread = part->rewind_offset;
      broker_unlock(&self->broker);
      part->rewind_offset = part->end = NO_OFFSET;
    }
  }
  if (failure == RD_KAFKA_RESP_ERR_NO_ERROR) self->is_seek_failing = false;
  else
    seek_later(self, "partitions cannot be read again yet",
               problem != NULL ? rd_kafka_error_string(problem) : rd_kafka_err2str(failure));
  if (problem != NULL) rd_kafka_error_destroy(problem);
  rd_kafka_topic_partition_list_destroy(list);
}

static void read_again(source *self) {
  rewind_failed(self);
  if (now_ms() < self->seek_at) return;
  locate(self);
  seek(self);
}

/* ---- Pauses, on the thread ---- */

static bool must_pause(const source *self, const part *part) { return self->is_full && !part->is_paused; }
static bool must_resume(const source *self, const part *part) { return !self->is_full && part->is_paused; }

static void pause_or_resume(source *self) {
  bool pauses = self->is_full;
  rd_kafka_topic_partition_list_t *list = chosen(self, pauses ? must_pause : must_resume);
  if (list == NULL) return;
  if (pauses) rd_kafka_pause_partitions(self->client, list);
  else rd_kafka_resume_partitions(self->client, list);
  for (int i = 0; i < list->cnt; i++) {
    part *part = part_of(self, &list->elems[i]);
    if (part != NULL && list->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR) part->is_paused = pauses;
    if (part != NULL && !part->is_paused) part->asked_end = NO_OFFSET;
  }
  if (pauses) count_up(self, "pauses", 1);
  rd_kafka_topic_partition_list_destroy(list);
}

static bool looks_full(source *self) {
  bool was_full = self->is_full;
  self->is_full = is_full(self);
  if (self->is_full && !was_full) self->full_since = now_ms();
  return self->is_full;
}

/* A pause makes librdkafka discard its read-ahead and read it again, so it is delayed a little. False: the queue is
 * still full. */
static bool wait_for_room(source *self) {
  broker_lock(&self->broker);
  if (looks_full(self) && now_ms() < self->full_since + PATIENCE_MS) {
    broker_wait(&self->broker, 100);
    looks_full(self);
  }
  bool has_room = !self->is_full;
  broker_unlock(&self->broker);
  return has_room;
}

/* ---- Messages, on the thread ---- */

/* Retention may delete messages before they are read. */
static void notice_deleted(source *self, const part *part, const rd_kafka_message_t *message) {
  int64_t low, high;
  if (part->position < 0 || message->offset <= part->position
      || rd_kafka_get_watermark_offsets(self->client, part->topic, part->partition, &low, &high) != RD_KAFKA_RESP_ERR_NO_ERROR
      || low <= part->position || low > message->offset)
    return;
  count_up(self, "deletedMessages", low - part->position);
  report(self->attempts.instance, "warning", "%.200s %d: offsets %lld to %lld were deleted before they were read", part->topic,
         (int)part->partition, (long long)part->position, (long long)low - 1);
}

/* Messages of a partition arrive together, so most belong to the same partition as the last one. */
static part *part_of_message(source *self, const rd_kafka_message_t *message) {
  const char *topic = rd_kafka_topic_name(message->rkt);
  part *part = self->recent;
  if (part == NULL || part->partition != message->partition || strcmp(part->topic, topic) != 0)
    self->recent = part = parts_find_partition(&self->parts, topic, message->partition);
  return part;
}

/* The assignment of the message; 0: the message is dropped. */
static uint32_t assignment_of(source *self, const rd_kafka_message_t *message) {
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    part *part = part_of_message(self, message);
    if (part != NULL && part->rewind_offset < 0) part->end = message->offset;
    return 0;
  }
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    give_up(self);
    trouble(self, message->err, message->payload != NULL ? rd_kafka_message_errstr(message) : NULL);
    return 0;
  }
  if (self->is_failing) report(self->attempts.instance, "info", "%.200s: messages come again", self->brokers);
  self->is_failing = false;
  part *part = part_of_message(self, message);
  if (part == NULL || part->must_locate || part->rewind_offset >= 0 || message->offset < part->position) return 0;
  notice_deleted(self, part, message);
  part->position = message->offset + 1;
  return part->number;
}

/* Moves messages to the queue; drops those of assignments that have ended meanwhile. */
static void hand_over(source *self, delivery *polled) {
  part *part = NULL;
  broker_lock(&self->broker);
  while (polled != NULL) {
    delivery *one = polled;
    polled = (delivery *)one->base.next;
    if (part == NULL || part->number != one->number) part = parts_find(&self->parts, one->number);
    if (part == NULL) destroy_delivery(&one->base);
    else {
      if (part->waiting++ == 0) part->unread = one->message->offset;
      broker_put(&self->broker, &one->base);
    }
  }
  broker_unlock(&self->broker);
}

/* Polls for some messages; waits for the first one. Callbacks run in this call. */
static void poll_messages(source *self, int wait_ms) {
  broker_message *first = NULL, **last = &first;
  size_t bytes = 0;
  for (int polled = 0; polled < POLLED_MOST && bytes < self->buffer; polled++) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(self->client, polled == 0 ? wait_ms : 0);
    if (message == NULL) break;
    uint32_t number = assignment_of(self, message);
    if (number == 0) {
      rd_kafka_message_destroy(message);
      continue;
    }
    delivery *one = need(malloc(sizeof *one));
    *one = (delivery){{.bytes = size_of(message)}, message, number};
    bytes += one->base.bytes;
    *last = &one->base;
    last = &one->base.next;
  }
  if (first != NULL) hand_over(self, (delivery *)first);
}

/* ---- The client, on the thread ---- */

static outcome open_client(void *opaque) {
  source *self = opaque;
  char problem[300];
  rd_kafka_conf_t *copy = rd_kafka_conf_dup(self->conf);
  self->client = rd_kafka_new(RD_KAFKA_CONSUMER, copy, problem, sizeof problem);
  if (self->client == NULL) {
    rd_kafka_conf_destroy(copy);
    snprintf(self->attempts.problem, sizeof self->attempts.problem, "%s", problem);
    return REFUSED;
  }
  rd_kafka_poll_set_consumer(self->client);
  rd_kafka_resp_err_t error = rd_kafka_subscribe(self->client, self->topics);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return DONE;
  snprintf(self->attempts.problem, sizeof self->attempts.problem, "%s", rd_kafka_err2str(error));
  snprintf(self->attempts.at, sizeof self->attempts.at, "topics");
  return REFUSED;
}

static outcome serve(void *opaque) {
  source *self = opaque;
  bool has_room = wait_for_room(self);
  read_again(self);
  commit_sometimes(self);
  report_lags(self);
  if (!has_room && now_ms() < self->full_since + PATIENCE_MS) return DONE;
  pause_or_resume(self);
  poll_messages(self, has_room ? 100 : 20);
  return DONE;
}

/* Makes the last commit and leaves the group, by `close_by`. The client lives until no message refers to it. */
static void leave_group(source *self) {
  commit_now(self, NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(self->client);
  rd_kafka_error_t *problem = rd_kafka_consumer_close_queue(self->client, queue);
  /* Messages may arrive in this queue too; a poll for callbacks only would abort. */
  while (problem == NULL && !rd_kafka_consumer_closed(self->client) && broker_left(&self->broker, REQUEST_MS) > 0) {
    rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 50);
    if (message != NULL) rd_kafka_message_destroy(message);
  }
  if (problem != NULL) rd_kafka_error_destroy(problem);
  rd_kafka_queue_destroy(queue);
}

static void close_client(void *opaque, bool is_lost) {
  source *self = opaque;
  if (!is_lost) leave_group(self);
  take_ends(self);
}

/* ---- Events, on the thread of `run` ---- */

/* Makes the message outstanding. Its assignment exists: queued messages are dropped with their assignment. */
static void take(void *opaque, broker_message *message) {
  source *self = opaque;
  delivery *one = (delivery *)message;
  if (self->taken == NULL || self->taken->number != one->number) self->taken = parts_find(&self->parts, one->number);
  message->token = part_push(self->taken, one->message->offset);
}

static void judge(void *opaque, const rxd_ack *ack) {
  source *self = opaque;
  parts_acknowledge(&self->parts, ack);
}

static bool add(void *opaque, rxd_source *running, const broker_message *message) {
  source *self = opaque;
  return add_message(self->decode, running, ((const delivery *)message)->message, message->token);
}

/* Ignores messages of an assignment that has ended meanwhile or was restarted. */
static void sent(void *opaque, broker_message **messages, size_t count) {
  source *self = opaque;
  part *part = NULL;
  broker_lock(&self->broker);
  for (size_t i = 0; i < count; i++) {
    const delivery *one = (const delivery *)messages[i];
    if (part == NULL || part->number != one->number) part = parts_find(&self->parts, one->number);
    if (part == NULL) continue;
    part->waiting--;
    part->unread = one->message->offset + 1;
  }
  broker_unlock(&self->broker);
}

static const broker_protocol protocol = {
  .open = open_client,
  .serve = serve,
  .close = close_client,
  .take = take,
  .judge = judge,
  .add = add,
  .sent = sent,
  .collects_acks = true,
  .destroy = destroy_delivery,
};

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  int status = broker_run(&self->broker, scope, running);
  while (self->parts.first != NULL) parts_remove(&self->parts, self->parts.first);
  if (self->client != NULL) rd_kafka_destroy_flags(self->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
  self->client = NULL;
  return status;
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  broker_close(&self->broker);
  if (self->conf != NULL) rd_kafka_conf_destroy(self->conf);
  if (self->topics != NULL) rd_kafka_topic_partition_list_destroy(self->topics);
  free(self->brokers);
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

static int group_parameter(const rxd_opening *opening, source *self) {
  char *group;
  int status = text_parameter(opening, "group", &group);
  if (status == RXD_OK && (group == NULL || *group == 0)) status = fail_at(opening->scope, "group", "must not be empty");
  if (status == RXD_OK) status = setting(opening, self->conf, "group", "group.id", group);
  free(group);
  return status;
}

/* The read-ahead: half of it in this source's queue, half in librdkafka, which may exceed its half by one response. */
static int buffer_parameter(const rxd_opening *opening, source *self) {
  enum { LEAST = 1 << 20, MOST = 1 << 30, ANSWER_LEAST = 1 << 20, ANSWER_MOST = 50 << 20 };
  int64_t bytes = integer_parameter(opening, "buffer", 64 << 20);
  if (bytes < LEAST || bytes > MOST) return fail_at(opening->scope, "buffer", "must be 1MiB to 1GiB");
  self->buffer = (size_t)bytes / 2;
  char text[24];
  snprintf(text, sizeof text, "%zu", self->buffer / 1024);
  int status = setting(opening, self->conf, "buffer", "queued.max.messages.kbytes", text);
  /* At either limit librdkafka reads nothing for up to a second, so only the limit in bytes should apply. Since 2.2 the
   * pause can be set. */
  if (status == RXD_OK) status = setting(opening, self->conf, "buffer", "queued.min.messages", "100000");
  if (status == RXD_OK && rd_kafka_version() >= 0x02020000)
    status = setting(opening, self->conf, "buffer", "fetch.queue.backoff.ms", "20");
  size_t answer = self->buffer < ANSWER_LEAST ? ANSWER_LEAST : self->buffer > ANSWER_MOST ? ANSWER_MOST : self->buffer;
  snprintf(text, sizeof text, "%zu", answer);
  if (status == RXD_OK) status = setting(opening, self->conf, "buffer", "fetch.max.bytes", text);
  return status;
}

static int fixed_settings(const rxd_opening *opening, source *self) {
  static const char *const settings[][2] = {
    {"enable.auto.commit", "false"},
    {"enable.auto.offset.store", "false"},
    /* Also with `start: new`, which the source resolves itself: a group whose offset was deleted continues with the
     * oldest message. */
    {"auto.offset.reset", "earliest"},
    /* The only source of the position in a partition without new messages. */
    {"enable.partition.eof", "true"},
  };
  int status = RXD_OK;
  for (size_t i = 0; i < sizeof settings / sizeof settings[0] && status == RXD_OK; i++)
    status = setting(opening, self->conf, "options", settings[i][0], settings[i][1]);
  return status;
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  self->attempts.instance = opening->instance;
  self->conf = need(rd_kafka_conf_new());
  self->topics = need(rd_kafka_topic_partition_list_new(4));
  self->decode = decode_parameter(opening);
  self->starts_new = choice_is(opening, "start", "new");
  int status = broker_open(&self->broker, opening, &protocol, &self->attempts, self);
  if (status == RXD_OK) status = buffer_parameter(opening, self);
  if (status == RXD_OK) status = settings_open(opening, self->conf, fixed, &self->brokers);
  if (status == RXD_OK) status = topics_parameter(opening, self);
  if (status == RXD_OK) status = group_parameter(opening, self);
  if (status == RXD_OK) status = fixed_settings(opening, self);
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
