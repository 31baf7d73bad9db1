/* A plain client to compare with: bench publish|consume SERVER STREAM SUBJECT COUNT. Prints messages per second, either
 * for a publisher with asynchronous acknowledgements, or for a pull consumer with acknowledgements, from the first
 * message on. */
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void must(natsStatus status) {
  if (status == NATS_OK) return;
  fprintf(stderr, "%s\n", natsStatus_GetText(status));
  exit(1);
}

static double publish(jsCtx *context, const char *subject, long count) {
  char value[64];
  double begin = now();
  for (long n = 0; n < count; n++) {
    int length = snprintf(value, sizeof value, "message %ld", n);
    must(js_PublishAsync(context, subject, value, length, NULL));
  }
  must(js_PublishAsyncComplete(context, NULL));
  return now() - begin;
}

static double consume(jsCtx *context, const char *stream, long count) {
  natsSubscription *subscription;
  jsSubOptions options;
  jsSubOptions_Init(&options);
  options.Stream = stream;
  options.Config.MaxAckPending = 4096;
  must(js_PullSubscribe(&subscription, context, ">", "plain", NULL, &options, NULL));
  double begin = 0;
  for (long n = 0; n < count;) {
    natsMsgList list = {0};
    natsStatus status = natsSubscription_Fetch(&list, subscription, 1000, 5000, NULL);
    if (status != NATS_OK && status != NATS_TIMEOUT) must(status);
    for (int i = 0; i < list.Count; i++) {
      if (n++ == 0) begin = now();
      must(natsMsg_Ack(list.Msgs[i], NULL));
    }
    natsMsgList_Destroy(&list);
  }
  double took = now() - begin;
  natsSubscription_Destroy(subscription);
  return took;
}

int main(int count, char **arguments) {
  if (count != 6) return 64;
  natsConnection *connection;
  jsCtx *context;
  jsOptions options;
  jsOptions_Init(&options);
  options.PublishAsync.MaxPending = 2048;
  must(natsConnection_ConnectTo(&connection, arguments[2]));
  must(natsConnection_JetStream(&context, connection, &options));
  long messages = atol(arguments[5]);
  double took = strcmp(arguments[1], "publish") == 0 ? publish(context, arguments[4], messages)
                                                     : consume(context, arguments[3], messages);
  printf("%.0f\n", (double)messages / took);
  jsCtx_Destroy(context);
  natsConnection_Destroy(connection);
  return 0;
}
