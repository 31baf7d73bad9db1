#include "consumer.h"

enum {
  WAIT_MS = 2000,
  REMOVE_MS = 500,
  SAME_NS = 1000000000, /* a restarted server may report a slightly different creation time */
};

/* The server understood the request and refuses it. */
static bool is_refused(jsErrCode code) {
  switch (code) {
    case JSConsumerFilterNotSubsetErr:
    case JSConsumerCreateErr:
    case JSConsumerBadDurableNameErr:
    case JSConsumerWQMultipleUnfilteredErr:
    case JSConsumerWQConsumerNotUniqueErr:
    case JSConsumerWQConsumerNotDeliverAllErr:
    case JSConsumerWQRequiresExplicitAckErr:
    case JSConsumerInvalidPolicyErr:
    case JSConsumerMaxPendingAckExcessErr: return true;
    default: return false;
  }
}

/* Determines why a JetStream request failed. */
static outcome judge(client *client, const char *stream, const char *name, natsStatus status, jsErrCode code) {
  const char *violation = client_violation(client), *text = NULL;
  natsStatus last = status;
  switch (code) {
    case JSStreamNotFoundErr:
      if (client->bucket != NULL)
        client_trouble(client, "there is no bucket '%.80s'; create it, or correct 'bucket'", client->bucket);
      else client_trouble(client, "there is no stream '%.80s'; create it, or correct 'stream'", stream);
      return REFUSED;
    case JSConsumerNotFoundErr:
      client_trouble(client, "the stream '%.60s' has no consumer '%.60s'; create it, or set 'create: true'", stream,
                     name);
      return REFUSED;
    case JSNotEnabledErr:
    case JSNotEnabledForAccountErr:
      client_trouble(client, "JetStream is not enabled; start the server with it, and allow it to the account");
      return REFUSED;
    default: break;
  }
  if (violation != NULL) {
    client_trouble(client, "%.140s; allow it to the user", violation);
    return REFUSED;
  }
  if (status == NATS_NO_RESPONDERS) {
    client_trouble(client, "JetStream does not answer; start the server with it, or correct 'domain'");
    return UNREACHABLE;
  }
  text = code != 0 ? nats_GetLastError(&last) : natsStatus_GetText(status);
  if (text == NULL) text = "no reason was given";
  client_trouble(client, "the stream '%.60s' cannot be used: %.120s", stream, text);
  return is_refused(code) ? REFUSED : UNREACHABLE;
}

static void read_config(const jsConsumerInfo *info, consumer *consumer) {
  consumer_forget(consumer);
  consumer->name = need(strdup(info->Name));
  consumer->created = info->Created;
  consumer->ack_wait = info->Config->AckWait / 1000000;
  for (int i = 0; i < info->Config->BackOffLen; i++)
    if (info->Config->BackOff[i] / 1000000 < consumer->ack_wait || consumer->ack_wait == 0)
      consumer->ack_wait = info->Config->BackOff[i] / 1000000;
  consumer->batch_most = info->Config->MaxRequestBatch;
  consumer->bytes_most = info->Config->MaxRequestMaxBytes;
  consumer->pending = info->NumPending;
}

/* While it deletes a consumer, a server may answer without an error and without content. */
static bool is_empty(const jsConsumerInfo *info) { return info->Name == NULL || info->Config == NULL; }

/* Checks that a consumer that may have been created elsewhere suits this source. */
static outcome check(client *client, const jsConsumerInfo *info, const char *name, const jsConsumerConfig *wanted) {
  if (is_empty(info)) {
    client_trouble(client, "the server says nothing of the consumer '%.60s'", name);
    return UNREACHABLE;
  }
  const jsConsumerConfig *given = info->Config;
  bool is_push = given->DeliverSubject != NULL && *given->DeliverSubject != 0;
  if (!is_push && given->AckPolicy == js_AckExplicit
      && (wanted->FilterSubject == NULL
          || (given->FilterSubject != NULL && strcmp(given->FilterSubject, wanted->FilterSubject) == 0)))
    return DONE;
  if (is_push)
    client_trouble(client, "'%.60s' is a push consumer; name a pull consumer, or another one to be created", name);
  else if (given->AckPolicy != js_AckExplicit)
    client_trouble(client, "the consumer '%.60s' does not have explicit acknowledgements; name another one", name);
  else
    client_trouble(client, "the consumer '%.60s' has another filter than 'filter'; correct it, or name another one",
                   name);
  return REFUSED;
}

static outcome no_context(client *client) {
  client_trouble(client, "the connection is lost");
  return UNREACHABLE;
}

outcome consumer_find(client *client, const char *stream, const char *durable, jsConsumerConfig *config, bool creates,
                    consumer *consumer) {
  jsCtx *context = client_jetstream(client, WAIT_MS);
  if (context == NULL) return no_context(client);
  jsConsumerInfo *info = NULL;
  jsErrCode code = 0;
  natsStatus status = js_GetConsumerInfo(&info, context, stream, durable, NULL, &code);
  if (code == JSConsumerNotFoundErr && creates) {
    code = 0;
    status = js_AddConsumer(&info, context, stream, config, NULL, &code);
  }
  outcome outcome = status == NATS_OK ? check(client, info, durable, config) : judge(client, stream, durable, status, code);
  if (outcome == DONE && consumer->name != NULL && llabs(consumer->created - info->Created) > SAME_NS) {
    client_trouble(client, "the consumer '%.60s' was deleted and created again; start again with it", durable);
    outcome = REFUSED;
  }
  if (outcome == DONE) read_config(info, consumer);
  jsConsumerInfo_Destroy(info);
  jsCtx_Destroy(context);
  return outcome;
}

void consumer_pending(client *client, const char *stream, const char *durable, int64_t wait_ms, uint64_t *pending) {
  jsCtx *context = client_is_connected(client) ? client_jetstream(client, wait_ms) : NULL;
  if (context == NULL) return;
  jsConsumerInfo *info = NULL;
  if (js_GetConsumerInfo(&info, context, stream, durable, NULL, NULL) == NATS_OK && !is_empty(info)) *pending = info->NumPending;
  jsConsumerInfo_Destroy(info);
  jsCtx_Destroy(context);
}

outcome consumer_make(client *client, const char *stream, jsConsumerConfig *config, consumer *consumer) {
  jsCtx *context = client_jetstream(client, WAIT_MS);
  if (context == NULL) return no_context(client);
  jsConsumerInfo *info = NULL;
  jsErrCode code = 0;
  natsStatus status = js_AddConsumer(&info, context, stream, config, NULL, &code);
  outcome outcome = status != NATS_OK ? judge(client, stream, "", status, code) : DONE;
  if (outcome == DONE && is_empty(info)) {
    client_trouble(client, "the server says nothing of the new consumer");
    outcome = UNREACHABLE;
  }
  if (outcome == DONE) read_config(info, consumer);
  jsConsumerInfo_Destroy(info);
  jsCtx_Destroy(context);
  return outcome;
}

void consumer_remove(client *client, const char *stream, const consumer *consumer) {
  jsCtx *context = client_is_connected(client) && consumer->name != NULL ? client_jetstream(client, REMOVE_MS) : NULL;
  if (context == NULL) return;
  js_DeleteConsumer(context, stream, consumer->name, NULL, NULL);
  jsCtx_Destroy(context);
}

outcome stream_bounds(client *client, const char *stream, uint64_t *first, uint64_t *last) {
  jsCtx *context = client_jetstream(client, WAIT_MS);
  if (context == NULL) return no_context(client);
  jsStreamInfo *info = NULL;
  jsErrCode code = 0;
  natsStatus status = js_GetStreamInfo(&info, context, stream, NULL, &code);
  outcome outcome = status == NATS_OK ? DONE : judge(client, stream, "", status, code);
  if (outcome == DONE) {
    *first = info->State.FirstSeq;
    *last = info->State.LastSeq;
  }
  jsStreamInfo_Destroy(info);
  jsCtx_Destroy(context);
  return outcome;
}

void consumer_forget(consumer *consumer) {
  free(consumer->name);
  memset(consumer, 0, sizeof *consumer);
}
