/* A plain client to compare with: bench publish|consume PORT QUEUE COUNT. Prints messages per second, either for a
 * publisher with at most 4096 unconfirmed messages, or for a consumer with prefetch 1000 that acknowledges every 200
 * messages together, starting with the first message. */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 4096, PREFETCH = 1000, ACKED = 200 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void must(int is_good, const char *what) {
  if (is_good) return;
  fprintf(stderr, "%s failed\n", what);
  exit(1);
}

static void must_reply(amqp_rpc_reply_t reply, const char *what) {
  must(reply.reply_type == AMQP_RESPONSE_NORMAL, what);
}

/* Waits until fewer than `most` confirmations are missing. */
static long take_confirmations(amqp_connection_state_t connection, long confirmed, long published, long most) {
  while (published - confirmed > most) {
    amqp_frame_t frame;
    must(amqp_simple_wait_frame(connection, &frame) == AMQP_STATUS_OK, "a confirmation");
    must(frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD, "an ack");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    /* The server may confirm out of order. A count is enough here, because `multiple` confirmations arrive in order. */
    if (ack->multiple) confirmed = (long)ack->delivery_tag > confirmed ? (long)ack->delivery_tag : confirmed;
    else confirmed++;
    amqp_maybe_release_buffers(connection);
  }
  return confirmed;
}

static double publish(amqp_connection_state_t connection, const char *queue, long count) {
  char value[64];
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
  must(amqp_confirm_select(connection, 1) != NULL, "confirm.select");
  double begin = now();
  long confirmed = 0;
  for (long n = 0; n < count; n++) {
    int length = snprintf(value, sizeof value, "message %ld", n);
    amqp_bytes_t body = {(size_t)length, value};
    must(amqp_basic_publish(connection, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0, &properties, body)
           == AMQP_STATUS_OK,
         "basic.publish");
    if (n + 1 - confirmed >= WINDOW) confirmed = take_confirmations(connection, confirmed, n + 1, WINDOW / 2);
  }
  take_confirmations(connection, confirmed, count, 0);
  return now() - begin;
}

static double consume(amqp_connection_state_t connection, const char *queue, long count) {
  must(amqp_basic_qos(connection, 1, 0, PREFETCH, 0) != NULL, "basic.qos");
  must(amqp_basic_consume(connection, 1, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table) != NULL,
       "basic.consume");
  double begin = 0;
  for (long n = 0; n < count; n++) {
    amqp_envelope_t envelope;
    amqp_maybe_release_buffers(connection);
    must_reply(amqp_consume_message(connection, &envelope, NULL, 0), "a delivery");
    if (n == 0) begin = now();
    if ((n + 1) % ACKED == 0 || n + 1 == count)
      must(amqp_basic_ack(connection, 1, envelope.delivery_tag, 1) == AMQP_STATUS_OK, "basic.ack");
    amqp_destroy_envelope(&envelope);
  }
  return now() - begin;
}

int main(int count, char **arguments) {
  if (count != 5) return 64;
  amqp_connection_state_t connection = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(connection);
  must(amqp_socket_open(socket, "127.0.0.1", atoi(arguments[2])) == AMQP_STATUS_OK, "connecting");
  must_reply(amqp_login(connection, "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
  must(amqp_channel_open(connection, 1) != NULL, "channel.open");
  long messages = atol(arguments[4]);
  double took = strcmp(arguments[1], "publish") == 0 ? publish(connection, arguments[3], messages)
                                                     : consume(connection, arguments[3], messages);
  printf("%.0f\n", (double)messages / took);
  amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
  amqp_destroy_connection(connection);
  return 0;
}
