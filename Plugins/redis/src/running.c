#include "component.h"

#include <poll.h>

/* ---- The window ---- */

void window_open(window *window, uint32_t size, bool has_values) {
  memset(window, 0, sizeof *window);
  window->has_values = has_values;
  window->size = size;
  window->slots = need(calloc(size, sizeof *window->slots));
  window->free_slots = need(calloc(size, sizeof *window->free_slots));
  window->acknowledged = need(calloc(size, sizeof *window->acknowledged));
  for (uint32_t i = 0; i < size; i++) window->free_slots[i] = size - 1 - i;
}

void window_close(window *window) {
  for (uint32_t i = 0; window->has_values && window->slots != NULL && i < window->size; i++)
    if (window->slots[i].state != FREE) free(window->slots[i].value.bytes);
  free(window->slots);
  free(window->free_slots);
  free(window->acknowledged);
  memset(window, 0, sizeof *window);
}

slot *window_take(window *window, uint64_t *token) {
  uint32_t index = window->free_slots[window->size - ++window->used];
  slot *slot = &window->slots[index];
  slot->state = SENT;
  slot->touched = now_ms();
  *token = (uint64_t)index + 1;
  return slot;
}

void window_free(window *window, slot *slot) {
  if (window->has_values) free(slot->value.bytes);
  slot->state = FREE;
  window->free_slots[window->size - window->used--] = (uint32_t)(slot - window->slots);
}

/* ---- Answers of rxd ---- */

static bool take(running *running, int64_t wait_ms) {
  rxd_ack acks[256];
  size_t count = host->acks(running->source, acks, sizeof acks / sizeof acks[0], wait_ms * 1000000);
  for (size_t i = 0; i < count && running->window != NULL; i++) {
    if (acks[i].token == 0 || acks[i].token > running->window->size) continue;
    uint32_t index = (uint32_t)(acks[i].token - 1);
    slot *slot = window_slot(running->window, index);
    if (slot->state != SENT) continue; /* never happens: rxd answers once */
    if (!acks[i].is_failed) {
      slot->state = ACKNOWLEDGED;
      running->window->acknowledged[running->window->acknowledged_count++] = index;
      running->events_failed = 0;
      continue;
    }
    /* The server keeps the event and delivers it again. */
    window_free(running->window, slot);
    host->count_up(running->instance, WORD("failed"), 1);
    if (running->retry_at == 0) running->retry_at = now_ms() + backoff_ms(2 + running->events_failed++);
  }
  return count == sizeof acks / sizeof acks[0];
}

void take_acks(running *running, int64_t wait_ms) {
  while (take(running, wait_ms)) wait_ms = 0;
}

void rest(running *running, int64_t milliseconds) {
  int64_t end = now_ms() + milliseconds;
  while (!is_stopping(running)) {
    int64_t left = end - now_ms();
    if (left <= 0) return;
    take_acks(running, left > 1000 ? 1000 : left);
  }
}

/* ---- The connection ---- */

static int asks(void *source) { return host->is_stopping(source); }

void lose(running *running, const char *problem) {
  connection_close(&running->connection);
  /* Connections that repeatedly break soon after they were made count as failures. */
  if (running->connected_at != 0) {
    running->short_lives = now_ms() - running->connected_at < 5000 ? running->short_lives + 1 : 0;
    if (running->failures < running->short_lives) running->failures = running->short_lives;
  }
  running->connected_at = 0;
  if (running->is_failing) return;
  running->is_failing = true;
  report(running->instance, "warning", "%s: %s; reconnecting", running->settings->server_text, problem);
}

bool connect_source(running *running, bool *refused) {
  stopping stop = {asks, running->source};
  *refused = false;
  /* The first pause follows the first failed attempt: a restarted server is often available immediately. */
  if (running->failures > 0) rest(running, backoff_ms(running->failures - 1));
  if (is_stopping(running)) return false;
  enum outcome outcome = connection_open(&running->connection, running->settings, &stop);
  if (outcome == DONE) return true;
  if (outcome == WOKEN) return false;
  running->failures++;
  if (outcome == REFUSED) {
    fail_at(running->scope, "server", "%s: %s", running->settings->server_text, running->connection.problem);
    *refused = true;
    return false;
  }
  lose(running, running->connection.problem);
  return false;
}

void connected(running *running) {
  if (running->is_failing) report(running->instance, "info", "%s: connected again", running->settings->server_text);
  running->is_failing = false;
  running->failures = 0;
  running->connected_at = now_ms();
}

void settle(running *running, bool (*acknowledge)(void *self, struct running *running, bool *failed), void *self) {
  int64_t end = now_ms() + 30000;
  bool failed = false;
  while (connection_is_open(&running->connection) && running->window->used > 0 && now_ms() < end) {
    bool is_over = host->is_stopping(running->source) == 2; /* checked before the last answers are handled */
    take_acks(running, is_over || running->window->acknowledged_count > 0 ? 0 : 200);
    if (!acknowledge(self, running, &failed) || is_over) break;
  }
  connection_close(&running->connection);
}

int judge(running *running, redisReply *reply, const char *doing) {
  enum fault fault = fault_of(reply);
  char problem[300];
  snprintf(problem, sizeof problem, "%s: %.200s", doing, reply->str);
  freeReplyObject(reply);
  if (fault == FAULT_PASSING) {
    running->failures++;
    lose(running, problem);
    return RXD_OK;
  }
  return fail_at(running->scope, "", "%s: %s", running->settings->server_text, problem);
}
