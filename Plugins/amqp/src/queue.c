#include "queue.h"
#include "table.h"

enum { POOL_PAGE = 4096 };

/* ---- Parameters ---- */

/* A copy that lives as long as the queue. */
static int keep_table(const rxd_opening *opening, queue *queue, const rxd_value *object, const char *at,
                      amqp_table_t *table) {
  amqp_pool_t pool;
  amqp_table_t made;
  init_amqp_pool(&pool, POOL_PAGE);
  const char *problem = make_table(opening->scope, &pool, object, &made);
  if (problem == NULL && amqp_table_clone(&made, table, &queue->pool) != AMQP_STATUS_OK) problem = "what does not fit";
  empty_amqp_pool(&pool);
  return problem == NULL ? RXD_OK : fail_at(opening->scope, at, "must not have %s", problem);
}

static int arguments_parameter(const rxd_opening *opening, queue *queue) {
  rxd_value value = parameter(opening, "arguments");
  int kind = host->kind(&value);
  if (kind == RXD_ABSENT || kind == RXD_NULL) return RXD_OK;
  if (!queue->is_declared) return fail_at(opening->scope, "arguments", "has no effect without 'declare: true'");
  rxd_value type = host->member(opening->scope, &value, RXD_TEXT_OF("x-queue-type"));
  if (host->kind(&type) != RXD_ABSENT)
    return fail_at(opening->scope, "arguments.x-queue-type", "is the parameter 'type'");
  return keep_table(opening, queue, &value, "arguments", &queue->arguments);
}

static void add_binding(queue *queue, const binding *made) {
  queue->bindings = need(realloc(queue->bindings, (queue->binding_count + 1) * sizeof *queue->bindings));
  queue->bindings[queue->binding_count++] = *made;
}

static bool is_short(rxd_scope *scope, const rxd_value *value) {
  if (host->kind(value) != RXD_TEXT) return false;
  rxd_text text = host->text(scope, value);
  return text.count <= 255 && memchr(text.bytes, 0, text.count) == NULL;
}

static bool is_known_member(rxd_text name) {
  return text_is(name, RXD_TEXT_OF("exchange")) || text_is(name, RXD_TEXT_OF("routingKey"))
         || text_is(name, RXD_TEXT_OF("arguments"));
}

/* `{ exchange, routingKey, arguments }`; a list of routing keys makes one binding each. */
static int binding_parameter(const rxd_opening *opening, queue *queue, const rxd_value *object, size_t index) {
  rxd_scope *scope = opening->scope;
  char at[60];
  snprintf(at, sizeof at, "bindings.%zu", index);
  if (host->kind(object) != RXD_OBJECT)
    return fail_at(scope, at, "must have the form { exchange: NAME, routingKey: KEY }");
  for (size_t i = 0; i < host->count(scope, object); i++) {
    rxd_text name;
    host->entry(scope, object, i, &name);
    if (!is_known_member(name))
      return fail_at(scope, at, "has an unknown member '%.*s'; known are exchange, routingKey and arguments",
                     (int)(name.count < 60 ? name.count : 60), name.bytes);
  }
  rxd_value exchange = host->member(scope, object, RXD_TEXT_OF("exchange"));
  rxd_value key = host->member(scope, object, RXD_TEXT_OF("routingKey"));
  rxd_value arguments = host->member(scope, object, RXD_TEXT_OF("arguments"));
  if (!is_short(scope, &exchange) || host->text(scope, &exchange).count == 0)
    return fail_at(scope, at, "needs 'exchange', a text of 1 to 255 bytes");
  amqp_table_t table = amqp_empty_table;
  int kind = host->kind(&arguments);
  if (kind != RXD_ABSENT && kind != RXD_OBJECT) return fail_at(scope, at, "'arguments' must be an object");
  if (kind == RXD_OBJECT && keep_table(opening, queue, &arguments, at, &table) != RXD_OK) return RXD_FAILED;
  bool is_list = host->kind(&key) == RXD_LIST, is_left_out = host->kind(&key) == RXD_ABSENT;
  size_t count = is_list ? host->count(scope, &key) : 1;
  for (size_t i = 0; i < count; i++) {
    rxd_value one = is_list ? host->element(scope, &key, i) : key;
    if (!is_left_out && !is_short(scope, &one))
      return fail_at(scope, at, "'routingKey' must be a text of at most 255 bytes, or a list of such");
    add_binding(queue, &(binding){copy_text(host->text(scope, &exchange)),
                                  is_left_out ? need(strdup("")) : copy_text(host->text(scope, &one)), table, index});
  }
  return RXD_OK;
}

static int bindings_parameter(const rxd_opening *opening, queue *queue) {
  rxd_value list = parameter(opening, "bindings");
  size_t count = host->kind(&list) == RXD_LIST ? host->count(opening->scope, &list) : 0;
  for (size_t i = 0; i < count; i++) {
    rxd_value object = host->element(opening->scope, &list, i);
    if (binding_parameter(opening, queue, &object, i) != RXD_OK) return RXD_FAILED;
  }
  return RXD_OK;
}

static int offset_parameters(const rxd_opening *opening, queue *queue) {
  static const char *const words[] = {"first", "last", "next"};
  bool by_number = choice_is(opening, "offset", "number"), by_time = choice_is(opening, "offset", "timestamp");
  if (is_given(opening, "offsetNumber") != by_number)
    return fail_at(opening->scope, by_number ? "offset" : "offsetNumber",
                   "'offset: number' and 'offsetNumber' belong together");
  if (is_given(opening, "offsetTime") != by_time)
    return fail_at(opening->scope, by_time ? "offset" : "offsetTime",
                   "'offset: timestamp' and 'offsetTime' belong together");
  queue->start.kind = AMQP_FIELD_KIND_UTF8;
  for (size_t i = 0; i < 3; i++)
    if (choice_is(opening, "offset", words[i])) queue->start.value.bytes = bytes_of(words[i]);
  if (by_number) {
    queue->start.kind = AMQP_FIELD_KIND_I64;
    queue->start.value.i64 = integer_parameter(opening, "offsetNumber", 0);
  }
  if (!by_time) return RXD_OK;
  int64_t nanoseconds = 0;
  int status = time_parameter(opening, "offsetTime", &nanoseconds);
  queue->start.kind = AMQP_FIELD_KIND_TIMESTAMP;
  queue->start.value.u64 = (uint64_t)nanoseconds / 1000000000;
  return status;
}

static int kind_parameters(const rxd_opening *opening, queue *queue) {
  bool is_classic = choice_is(opening, "type", "classic");
  queue->is_stream = choice_is(opening, "type", "stream");
  queue->type = is_classic ? "classic" : queue->is_stream ? "stream" : "quorum";
  queue->is_declared = boolean_parameter(opening, "declare");
  queue->is_durable = boolean_parameter(opening, "durable");
  queue->is_auto_delete = boolean_parameter(opening, "autoDelete");
  queue->is_exclusive = boolean_parameter(opening, "exclusive");
  queue->prefetch = (uint16_t)integer_parameter(opening, "prefetch", 1000);
  if (!is_classic && !queue->is_durable)
    return fail_at(opening->scope, "durable", "queues of the types quorum and stream are always durable");
  if (!is_classic && queue->is_auto_delete)
    return fail_at(opening->scope, "autoDelete", "queues of the types quorum and stream cannot delete themselves");
  if (queue->is_auto_delete && !queue->is_declared)
    return fail_at(opening->scope, "autoDelete", "has no effect without 'declare: true'");
  return RXD_OK;
}

int queue_open(const rxd_opening *opening, queue *queue) {
  memset(queue, 0, sizeof *queue);
  init_amqp_pool(&queue->pool, POOL_PAGE);
  int status = short_parameter(opening, "queue", &queue->name);
  if (status == RXD_OK && (queue->name == NULL || *queue->name == 0))
    status = fail_at(opening->scope, "queue", "must have 1 to 255 bytes");
  if (status == RXD_OK) status = short_parameter(opening, "consumerTag", &queue->consumer_tag);
  if (status == RXD_OK) status = kind_parameters(opening, queue);
  if (status == RXD_OK) status = arguments_parameter(opening, queue);
  if (status == RXD_OK) status = bindings_parameter(opening, queue);
  if (status == RXD_OK) status = offset_parameters(opening, queue);
  if (status == RXD_OK && queue->arguments.num_entries == 0) queue->arguments = amqp_empty_table;
  return status;
}

void queue_close(queue *queue) {
  free(queue->name);
  free(queue->consumer_tag);
  for (size_t i = 0; i < queue->binding_count; i++) {
    free(queue->bindings[i].exchange);
    free(queue->bindings[i].routing_key);
  }
  free(queue->bindings);
  empty_amqp_pool(&queue->pool);
}

/* ---- Beginning ---- */

/* The server's refusal, with a hint. A queue that has worked before may work again. */
static outcome refuse(client *client, outcome outcome, const char *at, const char *advice) {
  if (outcome != REFUSED) return outcome;
  client_trouble(client, at, "%s; %s", client->reason, advice);
  return attempt_refused(&client->attempts);
}

static outcome declare(const queue *queue, client *client) {
  amqp_table_entry_t *entries =
    need(calloc((size_t)queue->arguments.num_entries + 1, sizeof *entries));
  if (queue->arguments.num_entries > 0)
    memcpy(entries, queue->arguments.entries, (size_t)queue->arguments.num_entries * sizeof *entries);
  amqp_table_entry_t *last = &entries[queue->arguments.num_entries];
  last->key = bytes_of("x-queue-type");
  last->value.kind = AMQP_FIELD_KIND_UTF8;
  last->value.value.bytes = bytes_of(queue->type);
  amqp_queue_declare_t declare = {
    .queue = bytes_of(queue->name),
    .durable = queue->is_durable,
    .auto_delete = queue->is_auto_delete,
    .arguments = {queue->arguments.num_entries + 1, entries},
  };
  outcome outcome = client_call(client, AMQP_QUEUE_DECLARE_METHOD, &declare, AMQP_QUEUE_DECLARE_OK_METHOD, NULL);
  free(entries);
  return refuse(client, outcome, "declare",
                client->code == AMQP_PRECONDITION_FAILED
                  ? "correct 'type', 'durable', 'autoDelete' or 'arguments', or set 'declare: false'"
                  : "allow it to the user, or set 'declare: false'");
}

static outcome bind(const queue *queue, client *client, const binding *binding) {
  char at[24];
  amqp_queue_bind_t bind = {
    .queue = bytes_of(queue->name),
    .exchange = bytes_of(binding->exchange),
    .routing_key = bytes_of(binding->routing_key),
    .arguments = binding->arguments,
  };
  outcome outcome = client_call(client, AMQP_QUEUE_BIND_METHOD, &bind, AMQP_QUEUE_BIND_OK_METHOD, NULL);
  snprintf(at, sizeof at, "bindings.%zu", binding->index);
  return refuse(client, outcome, at,
                client->code == AMQP_NOT_FOUND ? "create it, or correct 'bindings' or 'queue'"
                                               : "allow it to the user, or remove the binding");
}

static outcome consume(queue *queue, client *client, int64_t resume) {
  amqp_table_entry_t start = {.key = bytes_of("x-stream-offset"), .value = queue->start};
  if (resume >= 0) {
    start.value.kind = AMQP_FIELD_KIND_I64;
    start.value.value.i64 = resume;
  }
  amqp_basic_consume_t consume = {
    .queue = bytes_of(queue->name),
    .consumer_tag = bytes_of(queue->consumer_tag),
    .exclusive = queue->is_exclusive,
    .arguments = {queue->is_stream ? 1 : 0, &start},
  };
  outcome outcome = client_call(client, AMQP_BASIC_CONSUME_METHOD, &consume, AMQP_BASIC_CONSUME_OK_METHOD, NULL);
  /* Another consumer uses the queue exclusively; this one may start when it ends. */
  bool is_in_use = client->code == AMQP_RESOURCE_LOCKED
                   || (client->code == AMQP_ACCESS_REFUSED && strstr(client->reason, "exclusive") != NULL);
  if (outcome == REFUSED && is_in_use) {
    client_trouble(client, "queue", "%s", client->reason);
    return UNREACHABLE;
  }
  return refuse(client, outcome, "queue",
                client->code == AMQP_NOT_FOUND ? "create it, set 'declare: true', or correct 'queue'"
                : client->code == AMQP_ACCESS_REFUSED ? "allow it to the user"
                                                      : "correct 'type' or 'offset'");
}

outcome queue_consume(queue *queue, client *client, int64_t resume) {
  outcome outcome = DONE;
  if (queue->is_declared) outcome = declare(queue, client);
  for (size_t i = 0; i < queue->binding_count && outcome == DONE; i++)
    outcome = bind(queue, client, &queue->bindings[i]);
  if (outcome != DONE) return outcome;
  amqp_basic_qos_t qos = {.prefetch_count = queue->prefetch};
  outcome = refuse(client, client_call(client, AMQP_BASIC_QOS_METHOD, &qos, AMQP_BASIC_QOS_OK_METHOD, NULL), "prefetch",
                   "correct 'prefetch'");
  return outcome == DONE ? consume(queue, client, resume) : outcome;
}
