/* The source `kafka`. A separate thread polls librdkafka, so that the group never waits for rxd: while rxd accepts
 * nothing, the partitions are paused and the thread continues to poll. `run` takes messages from a bounded queue.
 *
 * An offset is committed when rxd has acknowledged all events before it. Only the polling thread adds, removes and
 * numbers partitions, so it may look them up without the mutex. */
#include "event.h"
#include "parts.h"

#include <pthread.h>

enum {
  QUEUE_MOST = 10000,      /* messages */
  MESSAGE_BYTES = 200,     /* memory of a message in addition to its key and value */
  POLLED_MOST = 256,       /* messages collected before the queue is locked */
  TAKEN_MOST = 500,        /* messages before they are given to rxd, */
  TAKEN_BYTES_MOST = 1 << 20, /* and their bytes */
  COMMIT_MS = 500,
  REQUEST_MS = 5000,       /* wait for the answer to a commit */
  LOCATE_MS = 2000,        /* wait for offsets, which blocks everything else */
  PATIENCE_MS = 1000,      /* wait for room in a full queue before partitions are paused */
  ACKS_MS = 25000,         /* during a stop: wait for acknowledgements, */
  CLOSE_MS = 5000,         /* and for the last commit and leaving the group together */
};

typedef struct waiting {
  struct waiting *next;
  rd_kafka_message_t *message;
  uint32_t number; /* number of the assignment */
} waiting;

typedef struct source {
  rxd_instance *instance;
  rd_kafka_conf_t *conf;
  rd_kafka_t *client;
  rd_kafka_topic_partition_list_t *topics;
  char *brokers;
  decoding decode;
  bool starts_new;
  size_t buffer; /* queue limit in bytes */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* the queue has a message, or the polling thread has given up */
  pthread_cond_t room;    /* the queue has room, or the source is ending */
  /* Protected by the mutex. */
  parts parts;
  waiting *head, **tail;
  size_t queued, queued_bytes;
  bool is_ending;
  int64_t close_by; /* when the source stops waiting (now_ms); 0: not closing */
  bool is_full;
  char fatal[300]; /* why the client has failed permanently, if not empty */
  /* Used only by the polling thread. */
  bool is_failing, is_seek_failing;
  part *recent; /* partition of the last message */
  int64_t full_since, commit_at, seek_at;
  rd_kafka_resp_err_t last_error;
} source;

static const char *const fixed[] = {"group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset",
                                    "enable.partition.eof", "queued.max.messages.kbytes", "queued.min.messages",
                                    NULL};

static void count_up(const source *self, const char *name, int64_t by) {
  host->count_up(self->instance, text_of(name), by);
}

/* ---- The queue, under the mutex ---- */

static size_t size_of(const rd_kafka_message_t *message) { return message->len + message->key_len + MESSAGE_BYTES; }

static void drop(waiting *one) {
  rd_kafka_message_destroy(one->message);
  free(one);
}

static void enqueue(source *self, waiting *one) {
  one->next = NULL;
  *self->tail = one;
  self->tail = &one->next;
  self->queued++;
  self->queued_bytes += size_of(one->message);
}

static waiting *dequeue(source *self, waiting **at) {
  waiting *one = *at;
  *at = one->next;
  if (*at == NULL) self->tail = at;
  self->queued--;
  self->queued_bytes -= size_of(one->message);
  return one;
}

/* Drops the queued messages of an assignment; 0: of all. */
static void drop_queued(source *self, uint32_t number) {
  for (waiting **at = &self->head; *at != NULL;) {
    if (number == 0 || (*at)->number == number) drop(dequeue(self, at));
    else at = &(*at)->next;
  }
}

/* The queue is full from the limit on until half of it has been taken. */
static bool is_full(const source *self) {
  size_t divisor = self->is_full ? 2 : 1;
  return self->queued >= QUEUE_MOST / divisor || self->queued_bytes >= self->buffer / divisor;
}

/* ---- Trouble, on the thread ---- */

static void give_up(source *self) {
  char text[sizeof self->fatal];
  rd_kafka_resp_err_t error = rd_kafka_fatal_error(self->client, text, sizeof text);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
  pthread_mutex_lock(&self->mutex);
  snprintf(self->fatal, sizeof self->fatal, "%s", *text != 0 ? text : rd_kafka_err2str(error));
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

static void trouble(source *self, rd_kafka_resp_err_t error, const char *reason) {
  count_up(self, "connectionErrors", 1);
  if (self->is_failing && self->last_error == error) return;
  if (!self->is_failing || error != RD_KAFKA_RESP_ERR__TRANSPORT)
    report(self->instance, "warning", "%.200s: %s%s%.200s", self->brokers, rd_kafka_err2str(error),
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
  pthread_mutex_lock(&self->mutex);
  parts_committed(&self->parts, error, list);
  pthread_mutex_unlock(&self->mutex);
}

static rd_kafka_topic_partition_list_t *to_commit(source *self, const rd_kafka_topic_partition_list_t *only, bool again) {
  pthread_mutex_lock(&self->mutex);
  rd_kafka_topic_partition_list_t *list = parts_to_commit(&self->parts, only, again);
  pthread_mutex_unlock(&self->mutex);
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

/* Time limit of a request, at most until the end of a stop. */
static int request_ms(source *self) {
  pthread_mutex_lock(&self->mutex);
  int64_t left = self->close_by == 0 ? REQUEST_MS : self->close_by - now_ms();
  pthread_mutex_unlock(&self->mutex);
  return left < 0 ? 0 : left > REQUEST_MS ? REQUEST_MS : (int)left;
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
       event == NULL && error == RD_KAFKA_RESP_ERR_NO_ERROR && now_ms() < end && request_ms(self) > 0;)
    event = rd_kafka_queue_poll(queue, 100);
  if (event == NULL) on_commit(self->client, RD_KAFKA_RESP_ERR__TIMED_OUT, list, self);
  else on_commit(self->client, rd_kafka_event_error(event), rd_kafka_event_topic_partition_list(event), self);
  if (event != NULL) rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(queue);
  rd_kafka_topic_partition_list_destroy(list);
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
    pthread_mutex_lock(&self->mutex);
    part *old = parts_find_partition(&self->parts, list->elems[i].topic, list->elems[i].partition);
    if (old != NULL) drop_queued(self, old->number);
    parts_add(&self->parts, list->elems[i].topic, list->elems[i].partition)->must_locate = self->starts_new;
    pthread_mutex_unlock(&self->mutex);
  }
}

/* Forgets these assignments. */
static void unassign(source *self, const rd_kafka_topic_partition_list_t *list) {
  self->recent = NULL;
  pthread_mutex_lock(&self->mutex);
  for (int i = 0; i < list->cnt; i++) {
    part *part = parts_find_partition(&self->parts, list->elems[i].topic, list->elems[i].partition);
    if (part == NULL) continue;
    drop_queued(self, part->number);
    parts_remove(&self->parts, part);
  }
  pthread_cond_signal(&self->room);
  pthread_mutex_unlock(&self->mutex);
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
  report(self->instance, "warning", "%.200s: partitions cannot be %s: %s", self->brokers,
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

/* ---- Reading again, on the thread ---- */

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

static void seek_later(source *self, const char *what, const char *problem) {
  self->seek_at = now_ms() + 200;
  count_up(self, "failedSeeks", 1);
  if (!self->is_seek_failing) report(self->instance, "warning", "%.200s: %s: %s; trying again", self->brokers, what, problem);
  self->is_seek_failing = true;
}

static bool must_locate(const source *self, const part *part) { return (void)self, part->must_locate; }

static part *part_of(const source *self, const rd_kafka_topic_partition_t *one) {
  return parts_find_partition(&self->parts, one->topic, one->partition);
}

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
    pthread_mutex_lock(&self->mutex);
    part->next_offset = part->rewind_offset = ends->elems[i].offset;
    part->must_locate = false;
    pthread_mutex_unlock(&self->mutex);
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
  pthread_mutex_lock(&self->mutex);
  for (part *part = self->parts.first; part != NULL; part = part->next) {
    if (part->rewind_at == 0 || part->rewind_at > now) continue;
    drop_queued(self, part->number);
    part_rewind(&self->parts, part);
    rewinds++;
  }
  pthread_mutex_unlock(&self->mutex);
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
      part->position = part->rewind_offset;
      part->rewind_offset = NO_OFFSET;
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
  pthread_mutex_lock(&self->mutex);
  if (looks_full(self) && !self->is_ending && now_ms() < self->full_since + PATIENCE_MS) {
    wait_at_most(&self->room, &self->mutex, 100);
    looks_full(self);
  }
  bool has_room = !self->is_full;
  pthread_mutex_unlock(&self->mutex);
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
  report(self->instance, "warning", "%.200s %d: offsets %lld to %lld were deleted before they were read", part->topic,
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
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return 0;
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    give_up(self);
    trouble(self, message->err, message->payload != NULL ? rd_kafka_message_errstr(message) : NULL);
    return 0;
  }
  if (self->is_failing) report(self->instance, "info", "%.200s: messages come again", self->brokers);
  self->is_failing = false;
  part *part = part_of_message(self, message);
  if (part == NULL || part->must_locate || part->rewind_offset >= 0 || message->offset < part->position) return 0;
  notice_deleted(self, part, message);
  part->position = message->offset + 1;
  return part->number;
}

/* Moves messages to the queue; drops those of assignments that have ended meanwhile. */
static void hand_over(source *self, waiting *polled) {
  part *part = NULL;
  pthread_mutex_lock(&self->mutex);
  while (polled != NULL) {
    waiting *one = polled;
    polled = one->next;
    if (part == NULL || part->number != one->number) part = parts_find(&self->parts, one->number);
    if (part == NULL) drop(one);
    else enqueue(self, one);
  }
  if (self->head != NULL) pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

/* Polls for some messages; waits for the first one. Callbacks run in this call. */
static void poll_messages(source *self, int wait_ms) {
  waiting *first = NULL, **last = &first;
  size_t bytes = 0;
  for (int polled = 0; polled < POLLED_MOST && bytes < self->buffer; polled++) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(self->client, polled == 0 ? wait_ms : 0);
    if (message == NULL) break;
    uint32_t number = assignment_of(self, message);
    if (number == 0) {
      rd_kafka_message_destroy(message);
      continue;
    }
    bytes += size_of(message);
    *last = need(malloc(sizeof **last));
    **last = (waiting){NULL, message, number};
    last = &(*last)->next;
  }
  if (first != NULL) hand_over(self, first);
}

static bool is_over(source *self) {
  pthread_mutex_lock(&self->mutex);
  bool is_over = self->is_ending || self->fatal[0] != 0;
  pthread_mutex_unlock(&self->mutex);
  return is_over;
}

/* Makes the last commit and leaves the group, by `close_by`. */
static void leave(source *self) {
  commit_now(self, NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(self->client);
  rd_kafka_error_t *problem = rd_kafka_consumer_close_queue(self->client, queue);
  /* Messages may arrive in this queue too; a poll for callbacks only would abort. */
  while (problem == NULL && !rd_kafka_consumer_closed(self->client) && request_ms(self) > 0) {
    rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 50);
    if (message != NULL) rd_kafka_message_destroy(message);
  }
  if (problem != NULL) rd_kafka_error_destroy(problem);
  rd_kafka_queue_destroy(queue);
}

static void *serve(void *opaque) {
  source *self = opaque;
  while (!is_over(self)) {
    bool has_room = wait_for_room(self);
    read_again(self);
    commit_sometimes(self);
    if (!has_room && now_ms() < self->full_since + PATIENCE_MS) continue;
    pause_or_resume(self);
    poll_messages(self, has_room ? 100 : 20);
  }
  if (self->fatal[0] == 0) leave(self);
  return NULL;
}

/* ---- Events, on the thread of `run` ---- */

typedef struct taken {
  rd_kafka_message_t *message;
  uint64_t token;
} taken;

/* Takes at most TAKEN_MOST messages from the queue, waiting briefly for the first. They are outstanding from now on. */
static size_t take(source *self, taken *messages) {
  size_t count = 0, bytes = 0;
  part *part = NULL;
  pthread_mutex_lock(&self->mutex);
  if (self->head == NULL && self->fatal[0] == 0)
    wait_at_most(&self->changed, &self->mutex, 50);
  while (self->head != NULL && count < TAKEN_MOST && bytes < TAKEN_BYTES_MOST) {
    waiting *one = dequeue(self, &self->head);
    bytes += size_of(one->message);
    /* The assignment must still exist: messages are dropped with their assignment. */
    if (part == NULL || part->number != one->number) part = parts_find(&self->parts, one->number);
    messages[count++] = (taken){one->message, part_push(part, one->message->offset)};
    free(one);
  }
  if (count > 0 && !is_full(self)) pthread_cond_signal(&self->room);
  pthread_mutex_unlock(&self->mutex);
  return count;
}

/* Handles rxd's acknowledgements; returns their number. */
static size_t take_acks(source *self, rxd_source *running, int64_t wait_ms) {
  rxd_ack acks[256];
  size_t count, all = 0;
  do {
    count = host->acks(running, acks, sizeof acks / sizeof acks[0], wait_ms * 1000000);
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < count; i++) parts_acknowledge(&self->parts, &acks[i]);
    pthread_mutex_unlock(&self->mutex);
    all += count;
    wait_ms = 0;
  } while (count == sizeof acks / sizeof acks[0]);
  return all;
}

/* Passes messages to rxd and handles acknowledgements. False: the source must stop. */
static bool turn(source *self, rxd_source *running, size_t *under_way) {
  taken messages[TAKEN_MOST];
  size_t count = take(self, messages);
  bool goes_on = true;
  for (size_t i = 0; i < count; i++) {
    if (goes_on) {
      goes_on = add_message(self->decode, running, messages[i].message, messages[i].token);
      ++*under_way;
    }
    rd_kafka_message_destroy(messages[i].message);
  }
  if (host->flush(running) == RXD_STOP) goes_on = false;
  *under_way -= take_acks(self, running, 0);
  return goes_on && host->is_stopping(running) == 0;
}

/* Gives outstanding events time; unacknowledged ones are read again later. */
static void settle(source *self, rxd_source *running, size_t under_way) {
  int64_t end = now_ms() + ACKS_MS;
  while (under_way > 0 && host->is_stopping(running) != 2 && now_ms() < end && !is_over(self))
    under_way -= take_acks(self, running, 100);
  take_acks(self, running, 0);
}

static int start(source *self, rxd_scope *scope) {
  char problem[300];
  rd_kafka_conf_t *copy = rd_kafka_conf_dup(self->conf);
  self->client = rd_kafka_new(RD_KAFKA_CONSUMER, copy, problem, sizeof problem);
  if (self->client == NULL) {
    rd_kafka_conf_destroy(copy);
    return fail_at(scope, "", "%s", problem);
  }
  rd_kafka_poll_set_consumer(self->client);
  rd_kafka_resp_err_t error = rd_kafka_subscribe(self->client, self->topics);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR && pthread_create(&self->thread, NULL, serve, self) == 0) return RXD_OK;
  rd_kafka_destroy_flags(self->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
  return fail_at(scope, "topics", "%s",
                 error != RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_err2str(error) : "no thread can be started");
}

static void stop(source *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_ending = true;
  self->close_by = now_ms() + CLOSE_MS;
  pthread_cond_signal(&self->room);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
  drop_queued(self, 0);
  while (self->parts.first != NULL) parts_remove(&self->parts, self->parts.first);
  rd_kafka_destroy_flags(self->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

static int source_run(void *opaque, rxd_scope *scope, rxd_source *running) {
  source *self = opaque;
  int status = start(self, scope);
  if (status != RXD_OK) return status;
  size_t under_way = 0;
  while (turn(self, running, &under_way) && !is_over(self)) {}
  settle(self, running, under_way);
  stop(self);
  /* A new client may work again: rxd decides whether to retry. */
  return self->fatal[0] == 0 ? RXD_OK : fail_at(scope, "", "%.200s: %s", self->brokers, self->fatal);
}

/* ---- Opening ---- */

static void source_close(void *opaque) {
  source *self = opaque;
  if (self->conf != NULL) rd_kafka_conf_destroy(self->conf);
  if (self->topics != NULL) rd_kafka_topic_partition_list_destroy(self->topics);
  free(self->brokers);
  pthread_mutex_destroy(&self->mutex);
  pthread_cond_destroy(&self->changed);
  pthread_cond_destroy(&self->room);
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
  };
  int status = RXD_OK;
  for (size_t i = 0; i < sizeof settings / sizeof settings[0] && status == RXD_OK; i++)
    status = setting(opening, self->conf, "options", settings[i][0], settings[i][1]);
  return status;
}

static int source_open(const rxd_opening *opening, void **instance) {
  source *self = need(calloc(1, sizeof *self));
  init_condition(&self->changed);
  init_condition(&self->room);
  pthread_mutex_init(&self->mutex, NULL);
  self->instance = opening->instance;
  self->tail = &self->head;
  self->conf = need(rd_kafka_conf_new());
  self->topics = need(rd_kafka_topic_partition_list_new(4));
  self->decode = choice_is(opening, "decode", "json") ? DECODE_JSON
                 : choice_is(opening, "decode", "bytes") ? DECODE_BYTES : DECODE_TEXT;
  self->starts_new = choice_is(opening, "start", "new");
  int status = buffer_parameter(opening, self);
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
