#include "pull.h"

enum {
  REQUEST_MS = 30000,  /* how long a request waits for messages */
  GRACE_MS = 2000,     /* extra time for the server's end-of-request status */
  HEARTBEAT_MS = 5000, /* heartbeat interval while there are no messages */
  SILENCE_MS = 12000,  /* time after which two heartbeats are missing */
};

int pull_begin(pull *pull, client *client, const char *stream, const char *consumer) {
  memset(pull, 0, sizeof *pull);
  char *wildcard;
  pull->inbox = client_inbox(client);
  pull->subject = client_api(client, "CONSUMER.MSG.NEXT.%s.%s", stream, consumer);
  if (asprintf(&wildcard, "%s.*", pull->inbox) < 0) abort();
  natsStatus status = natsConnection_SubscribeSync(&pull->subscription, client->connection, wildcard);
  free(wildcard);
  /* The requests limit the number of messages, so the subscription needs no limit. */
  if (status == NATS_OK) status = natsSubscription_SetPendingLimits(pull->subscription, -1, -1);
  return status == NATS_OK ? RXD_OK : RXD_FAILED;
}

void pull_end(pull *pull) {
  if (pull->subscription != NULL) natsSubscription_Destroy(pull->subscription);
  free(pull->inbox);
  free(pull->subject);
  memset(pull, 0, sizeof *pull);
}

int pull_request(pull *pull, client *client, int batch, size_t most_bytes) {
  char text[200], limit[48] = "", *reply;
  if (most_bytes > 0) snprintf(limit, sizeof limit, ",\"max_bytes\":%zu", most_bytes);
  snprintf(text, sizeof text, "{\"batch\":%d%s,\"expires\":%lld,\"idle_heartbeat\":%lld}", batch, limit,
           REQUEST_MS * 1000000LL, HEARTBEAT_MS * 1000000LL);
  if (asprintf(&reply, "%s.%u", pull->inbox, ++pull->number) < 0) abort();
  natsStatus status = natsConnection_PublishRequestString(client->connection, pull->subject, reply, text);
  free(reply);
  if (status != NATS_OK) return RXD_FAILED;
  pull->left = batch;
  pull->ends_at = now_ms() + REQUEST_MS + GRACE_MS;
  pull->silent_at = now_ms() + SILENCE_MS;
  return RXD_OK;
}

/* Whether a status concerns the current request, not an earlier one. */
static bool is_current(const pull *pull, natsMsg *message) {
  const char *subject = natsMsg_GetSubject(message), *number = strrchr(subject, '.');
  return number != NULL && strtoul(number + 1, NULL, 10) == pull->number;
}

static void refuse(pull_answer *answer, const char *problem) {
  answer->kind = PULL_REFUSED;
  snprintf(answer->problem, sizeof answer->problem, "%s", problem);
}

/* Handles a message without content that carries the status of the request. */
static void read_status(pull *pull, natsMsg *message, const char *code, pull_answer *answer) {
  const char *text = "";
  if (natsMsgHeader_Get(message, "Description", &text) != NATS_OK || text == NULL) text = "";
  answer->kind = PULL_NOTHING;
  if (strcmp(code, "100") == 0 || !is_current(pull, message)) return;
  pull->left = 0;
  answer->kind = PULL_ENDED;
  if (strcasestr(text, "consumer deleted") != NULL) answer->kind = PULL_NO_CONSUMER;
  else if (strcasestr(text, "exceeds maxbytes") != NULL) answer->kind = PULL_TOO_LARGE;
  else if (strcmp(code, "400") == 0 || strcasestr(text, "push based") != NULL
           || strcasestr(text, "exceeded maxrequest") != NULL)
    refuse(answer, text);
}

static void read_message(pull *pull, natsMsg *message, pull_answer *answer) {
  const char *code = NULL;
  pull->silent_at = now_ms() + SILENCE_MS;
  /* Checks first for a reply subject that only stream messages have: their headers are arbitrary. */
  if (read_origin(natsMsg_GetReply(message), &answer->origin)) {
    if (pull->left > 0) pull->left--;
    answer->kind = PULL_MESSAGE;
    answer->message = message;
    return;
  }
  if (natsMsg_GetDataLength(message) == 0 && natsMsgHeader_Get(message, "Status", &code) == NATS_OK && code != NULL)
    read_status(pull, message, code, answer);
  natsMsg_Destroy(message);
}

void pull_next(pull *pull, client *client, int64_t wait_ms, pull_answer *answer) {
  natsMsg *message = NULL;
  *answer = (pull_answer){.kind = PULL_NOTHING};
  natsStatus status = natsSubscription_NextMsg(&message, pull->subscription, wait_ms);
  if (status == NATS_OK) {
    read_message(pull, message, answer);
    return;
  }
  /* The library keeps the message with this status. */
  if (status == NATS_NO_RESPONDERS) {
    pull->left = 0;
    answer->kind = PULL_NO_CONSUMER;
    return;
  }
  if (status != NATS_TIMEOUT || !client_is_connected(client)) {
    answer->kind = PULL_LOST;
    return;
  }
  int64_t now = now_ms();
  if (pull->left == 0 || (now < pull->ends_at && now < pull->silent_at)) return;
  pull->left = 0;
  answer->kind = PULL_ENDED;
}
