/* The assigned partitions of a source: which events of each are outstanding, which offsets may be committed, and
 * which must be read again. Nothing here locks: the caller holds the source's mutex. */
#ifndef PARTS_H
#define PARTS_H
#include "settings.h"

enum { NO_OFFSET = -1 };

typedef struct slot {
  int64_t offset;
  bool is_done;
} slot;

/* A partition while it is assigned. */
typedef struct part {
  struct part *next;
  uint32_t number; /* of the assignment, a part of its tokens; a rewind changes it. Acknowledgements for a number that
                      has gone find nothing. */
  char *topic;
  int32_t partition;
  /* The outstanding events, oldest first: a ring whose first slot has the sequence number `base`. */
  slot *slots;
  size_t capacity, first, count;
  uint64_t base;
  int64_t next_offset; /* offset to commit: all messages before it are acknowledged */
  int64_t requested;   /* offset of the last commit request */
  int64_t committed;   /* last confirmed offset */
  int64_t rewind_at;   /* when to read again from the oldest outstanding event (now_ms); 0: nothing failed */
  unsigned failures;   /* failures in a row */
  size_t waiting;      /* messages that rxd has not accepted yet, in the queue or in the batch that is being sent */
  int64_t unread;      /* the first of them, or the offset after the last accepted one; NO_OFFSET: not known yet */
  /* Used only by the polling thread. */
  int64_t position;      /* all messages before it were taken; librdkafka may repeat lower offsets */
  int64_t rewind_offset; /* where to read again; messages are dropped until the seek is confirmed */
  bool must_locate;      /* the start offset must be looked up; until then messages are dropped */
  int64_t end;           /* where librdkafka last reached the end of the partition; messages without content for a client,
                            such as the ends of transactions, are before it */
  bool is_paused;
  int64_t asked_end;     /* the end offset requested while the partition is paused; NO_OFFSET: none */
} part;

typedef struct parts {
  part *first;
  uint32_t last_number;
} parts;

part *parts_find(const parts *parts, uint32_t number);
part *parts_find_partition(const parts *parts, const char *topic, int32_t partition);
part *parts_add(parts *parts, const char *topic, int32_t partition);
void parts_remove(parts *parts, part *gone);
/* Adds an outstanding event and returns its token. */
uint64_t part_push(part *part, int64_t offset);
void parts_acknowledge(parts *parts, const rxd_ack *ack);
/* Forgets the outstanding events of the partition, which is read again from the oldest of them. */
void part_rewind(parts *parts, part *part);
/* The offsets of these partitions (NULL: of all) that can be committed; NULL: none. `again`: includes requested offsets
 * without an answer. */
rd_kafka_topic_partition_list_t *parts_to_commit(parts *parts, const rd_kafka_topic_partition_list_t *only, bool again);
/* Handles the answer to a commit. Failed offsets are included in the next commit. */
void parts_committed(parts *parts, rd_kafka_resp_err_t error, const rd_kafka_topic_partition_list_t *list);

#endif
