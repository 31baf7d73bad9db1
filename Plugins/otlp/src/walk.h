/* Goes through a request (ExportLogsServiceRequest and its like) without taking it apart as a whole: a few bytes can stand for
 * many records, so only one record is in memory at a time. The three signals have the same outer messages:
 *
 *   request { repeated 1: of a resource { 1: Resource, repeated 2: of a scope { 1: Scope, repeated 2: record, 3: schema }, 3: schema } }
 *
 * where a record is a LogRecord, a Span, or a Metric with its data points. Fields may come in any order. */
#ifndef OTLP_WALK_H
#define OTLP_WALK_H
#include "common.h"

struct MetricHead {
  std::string_view name, description, unit;
  std::vector<std::string_view> metadata; /* KeyValue each */
  int data = 0;                           /* the number of the field: 5 gauge, 7 sum, ... 0: none */
  std::string_view data_bytes;
  int temporality = 0;
  bool is_monotonic = false;
};

/* The numbers of the fields of Metric. */
enum { GAUGE = 5, SUM = 7, HISTOGRAM = 9, EXPONENTIAL = 10, SUMMARY = 11 };

struct Visitor {
  virtual ~Visitor() = default;
  /* False: malformed, or enough. `resource`: the occurrences of Resource, which are to be merged; likewise Scope. */
  virtual bool resource(const std::vector<std::string_view> &, std::string_view /*schema*/) { return true; }
  virtual bool scope(const std::vector<std::string_view> &, std::string_view /*schema*/) { return true; }
  virtual bool metric(const MetricHead &) { return true; }
  /* A LogRecord, a Span, or a data point of the last metric. */
  virtual bool record(std::string_view) = 0;
};

/* False: a message is malformed, or the visitor wants no more. */
bool walk(std::string_view request, Signal signal, Visitor &visitor);

#endif
