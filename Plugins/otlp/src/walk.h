/* Walks a request (such as ExportLogsServiceRequest) without parsing it as a whole: a few bytes can expand to many
 * records, so only one record is in memory at a time. The three signals have the same outer messages:
 *
 *   request { repeated 1: of a resource { 1: Resource, repeated 2: of a scope { 1: Scope, repeated 2: record, 3: schema }, 3: schema } }
 *
 * where a record is a LogRecord, a Span, or a Metric with its data points. Fields may come in any order. */
#ifndef OTLP_WALK_H
#define OTLP_WALK_H
#include "common.h"

struct MetricHead {
  std::string_view name, description, unit;
  std::vector<std::string_view> metadata; /* one KeyValue each */
  int data = 0;                           /* the field number of the data: 5 gauge, 7 sum, ...; 0: none */
  std::string_view data_bytes;
  int temporality = 0;
  bool is_monotonic = false;
};

/* The numbers of the fields of Metric. */
enum { GAUGE = 5, SUM = 7, HISTOGRAM = 9, EXPONENTIAL = 10, SUMMARY = 11 };

struct Visitor {
  virtual ~Visitor() = default;
  /* False: the message is malformed, or the visitor stops. `resource` receives all occurrences of Resource, which must
   * be merged; `scope` likewise. */
  virtual bool resource(const std::vector<std::string_view> &, std::string_view /*schema*/) { return true; }
  virtual bool scope(const std::vector<std::string_view> &, std::string_view /*schema*/) { return true; }
  virtual bool metric(const MetricHead &) { return true; }
  /* A LogRecord, a Span, or a data point of the last metric. */
  virtual bool record(std::string_view) = 0;
};

/* False: a message is malformed, or the visitor has stopped. */
bool walk(std::string_view request, Signal signal, Visitor &visitor);

#endif
