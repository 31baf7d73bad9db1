#include "parts.h"

part *parts_find(const parts *parts, uint32_t number) {
  for (part *part = parts->first; part != NULL; part = part->next)
    if (part->number == number) return part;
  return NULL;
}

part *parts_find_partition(const parts *parts, const char *topic, int32_t partition) {
  for (part *part = parts->first; part != NULL; part = part->next)
    if (part->partition == partition && strcmp(part->topic, topic) == 0) return part;
  return NULL;
}

/* Numbers wrap after millions of assignments; numbers in use are skipped. */
static uint32_t new_number(parts *parts) {
  do parts->last_number = next_epoch(parts->last_number);
  while (parts_find(parts, parts->last_number) != NULL);
  return parts->last_number;
}

part *parts_add(parts *parts, const char *topic, int32_t partition) {
  part *one = parts_find_partition(parts, topic, partition);
  if (one != NULL) parts_remove(parts, one);
  one = need(calloc(1, sizeof *one));
  *one = (part){.next = parts->first, .number = new_number(parts), .topic = need(strdup(topic)), .partition = partition,
                .next_offset = NO_OFFSET, .requested = NO_OFFSET, .committed = NO_OFFSET, .position = NO_OFFSET,
                .unread = NO_OFFSET, .rewind_offset = NO_OFFSET, .end = NO_OFFSET,
                .asked_end = NO_OFFSET};
  parts->first = one;
  return one;
}

void parts_remove(parts *parts, part *gone) {
  part **at = &parts->first;
  while (*at != gone) at = &(*at)->next;
  *at = gone->next;
  free(gone->topic);
  free(gone->slots);
  free(gone);
}

static void grow(part *part) {
  size_t capacity = part->capacity == 0 ? 64 : part->capacity * 2;
  slot *slots = need(calloc(capacity, sizeof *slots));
  for (size_t i = 0; i < part->count; i++) slots[i] = part->slots[(part->first + i) % part->capacity];
  free(part->slots);
  part->slots = slots;
  part->capacity = capacity;
  part->first = 0;
}

uint64_t part_push(part *part, int64_t offset) {
  if (part->count == part->capacity) grow(part);
  part->slots[(part->first + part->count) % part->capacity] = (slot){offset, false};
  return token_of(part->number, part->base + part->count++);
}

void parts_acknowledge(parts *parts, const rxd_ack *ack) {
  part *part = parts_find(parts, epoch_of(ack->token));
  if (part == NULL) return;
  uint64_t index = index_of_token(ack->token, part->base);
  if (index >= part->count) return;
  if (ack->is_failed) {
    if (part->rewind_at == 0) part->rewind_at = now_ms() + backoff_ms(2 + part->failures++);
    return;
  }
  part->slots[(part->first + index) % part->capacity].is_done = true;
  while (part->count > 0 && part->slots[part->first].is_done) {
    part->next_offset = part->slots[part->first].offset + 1;
    part->first = (part->first + 1) % part->capacity;
    part->base++;
    part->count--;
    if (part->rewind_at == 0) part->failures = 0;
  }
}

void part_rewind(parts *parts, part *part) {
  part->rewind_at = 0;
  if (part->count == 0) return;
  part->rewind_offset = part->slots[part->first].offset;
  part->count = part->first = 0;
  part->base = 0;
  part->number = new_number(parts);
}

rd_kafka_topic_partition_list_t *parts_to_commit(parts *parts, const rd_kafka_topic_partition_list_t *only, bool again) {
  rd_kafka_topic_partition_list_t *list = NULL;
  for (part *part = parts->first; part != NULL; part = part->next) {
    if (part->next_offset < 0 || part->next_offset == (again ? part->committed : part->requested)) continue;
    if (only != NULL && rd_kafka_topic_partition_list_find((rd_kafka_topic_partition_list_t *)only, part->topic,
                                                           part->partition) == NULL)
      continue;
    if (list == NULL) list = need(rd_kafka_topic_partition_list_new(8));
    rd_kafka_topic_partition_list_add(list, part->topic, part->partition)->offset = part->next_offset;
    part->requested = part->next_offset;
  }
  return list;
}

void parts_committed(parts *parts, rd_kafka_resp_err_t error, const rd_kafka_topic_partition_list_t *list) {
  for (int i = 0; list != NULL && i < list->cnt; i++) {
    const rd_kafka_topic_partition_t *one = &list->elems[i];
    part *part = parts_find_partition(parts, one->topic, one->partition);
    if (part == NULL) continue;
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && one->err == RD_KAFKA_RESP_ERR_NO_ERROR) part->committed = one->offset;
    else part->requested = NO_OFFSET;
  }
}
