/* Declarations shared by the files of the plugin. */
#ifndef OTLP_COMMON_H
#define OTLP_COMMON_H
#include <plugin_util.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

extern const rxd_component otlp_source, otlp_sink;

enum class Signal { logs, metrics, traces };
enum { SIGNALS = 3 };

struct SignalNames {
  const char *plural;   /* for parameters and paths: /v1/logs */
  const char *service;  /* gRPC path: /.../Export */
  const char *rejected; /* JSON name of the count in a partial success */
  const char *record;   /* the name of one record in messages */
};

inline const SignalNames &names_of(Signal signal) {
  static const SignalNames names[SIGNALS] = {
    {"logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export", "rejectedLogRecords", "log records"},
    {"metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "rejectedDataPoints", "data points"},
    {"traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "rejectedSpans", "spans"},
  };
  return names[static_cast<int>(signal)];
}

/* Status codes of gRPC and google.rpc.Status. */
enum GrpcCode {
  GRPC_OK = 0,
  GRPC_CANCELLED = 1,
  GRPC_INVALID_ARGUMENT = 3,
  GRPC_DEADLINE_EXCEEDED = 4,
  GRPC_PERMISSION_DENIED = 7,
  GRPC_RESOURCE_EXHAUSTED = 8,
  GRPC_ABORTED = 10,
  GRPC_OUT_OF_RANGE = 11,
  GRPC_UNIMPLEMENTED = 12,
  GRPC_UNAVAILABLE = 14,
  GRPC_DATA_LOSS = 15,
  GRPC_UNAUTHENTICATED = 16,
};

inline rxd_text text_of(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view view_of(rxd_text text) { return {text.bytes, text.count}; }

/* The text of a parameter; empty if it was not given. */
int string_parameter(const rxd_opening *opening, const char *name, std::string &result);

/* Runs the body of a component's function, which must not throw: exceptions become failures. */
template <typename Body> int guarded(rxd_scope *scope, Body body) {
  try {
    return body();
  } catch (const std::exception &problem) {
    return fail_at(scope, "", "%s", problem.what());
  }
}

#endif
