/* The queue that a source reads: its parameters, and the start of a consumer. */
#ifndef QUEUE_H
#define QUEUE_H
#include "client.h"

typedef struct binding {
  char *exchange, *routing_key;
  amqp_table_t arguments;
  size_t index; /* index in the parameter */
} binding;

typedef struct queue {
  char *name, *consumer_tag;
  const char *type;
  bool is_stream, is_declared, is_durable, is_auto_delete, is_exclusive;
  uint16_t prefetch;
  amqp_pool_t pool; /* memory of the tables */
  amqp_table_t arguments;
  binding *bindings;
  size_t binding_count;
  amqp_field_value_t start; /* start of a stream without a position */
} queue;

int queue_open(const rxd_opening *opening, queue *queue);
void queue_close(queue *queue);
/* Declares and binds the queue if the parameters say so, and starts a consumer. `resume`: the first offset of a stream,
 * or -1. REFUSED: a retry does not help. */
outcome queue_consume(queue *queue, client *client, int64_t resume);

#endif
