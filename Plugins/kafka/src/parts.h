/* The assigned partitions of a source: what is under way of each, what may be committed, what must be read again.
 * Nothing here locks: the caller holds the source's mutex. */
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
  /* Under way, oldest first: a ring whose first slot has the sequence `base`. */
  slot *slots;
  size_t capacity, first, count;
  uint64_t base;
  int64_t next_offset; /* to commit: everything before it is acknowledged */
  int64_t requested;   /* of the last commit that was sent */
  int64_t committed;   /* confirmed */
  int64_t rewind_at;   /* now_ms; 0: nothing failed. Then it is read again from its oldest event. */
  unsigned failures;   /* in a row */
  /* Of the thread that polls. */
  int64_t position;      /* what is before it was taken: lower offsets are repetitions of librdkafka */
  int64_t rewind_offset; /* where it must be read again; until the seek is confirmed its messages are dropped */
  bool must_locate;      /* its start must be looked up; until then its messages are dropped */
  bool is_paused;
} part;

typedef struct parts {
  part *first;
  uint32_t last_number;
} parts;

part *parts_find(const parts *parts, uint32_t number);
part *parts_find_partition(const parts *parts, const char *topic, int32_t partition);
part *parts_add(parts *parts, const char *topic, int32_t partition);
void parts_remove(parts *parts, part *gone);
/* A token for an event that is under way from now on. */
uint64_t part_push(part *part, int64_t offset);
void parts_acknowledge(parts *parts, const rxd_ack *ack);
/* Nothing of the partition counts as under way any more: it is read again from the oldest event that was. */
void part_rewind(parts *parts, part *part);
/* What can be committed of the given partitions (NULL: of all); NULL: nothing. `again`: also what was requested without
 * an answer yet. */
rd_kafka_topic_partition_list_t *parts_to_commit(parts *parts, const rd_kafka_topic_partition_list_t *only, bool again);
/* The answer to a commit. What has failed is committed again with the next one. */
void parts_committed(parts *parts, rd_kafka_resp_err_t error, const rd_kafka_topic_partition_list_t *list);

#endif
