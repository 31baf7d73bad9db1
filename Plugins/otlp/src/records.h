/* Converts events to requests of log records, spans and data points, grouped by resource and scope. */
#ifndef OTLP_RECORDS_H
#define OTLP_RECORDS_H
#include "common.h"

#include <unordered_map>

/* Groups hold encoded protobuf, which is concatenated into requests without building message objects. */
struct MetricGroup {
  std::string head, data_head; /* encoded fields of Metric and of its data */
  int data = 0;                /* the field number of the data: 5 gauge, 7 sum, ... */
  std::string points;          /* the data points: field 1 of the data */
};

struct ScopeGroup {
  std::string head;    /* encoded fields other than the records */
  std::string records; /* the records: field 2 */
  std::vector<MetricGroup> metrics;
  std::unordered_map<std::string, size_t> metrics_by_key;
};

struct ResourceGroup {
  std::string head;
  std::vector<ScopeGroup> scopes;
  std::unordered_map<std::string, size_t> scopes_by_key;
};

/* A request under construction. */
struct Request {
  Signal signal{};
  std::vector<uint32_t> events; /* indices in the batch */
  size_t bytes = 0;             /* approximate size */
  std::vector<ResourceGroup> resources;
  std::unordered_map<std::string, size_t> resources_by_key;

  /* Encodes the whole request. */
  std::string body() const;
};

/* An encoded record with the groups that it belongs to. */
struct Record {
  Signal signal{};
  std::string bytes;
  std::string resource, scope;          /* the heads of its groups */
  std::string metric_head, metric_data; /* for a data point */
  int data = 0;
  size_t size() const { return bytes.size() + 8; }
};

class RecordMaker {
public:
  /* Names and values of the default resource attributes, for events without a resource. */
  std::vector<std::pair<std::string, std::string>> resource;

  /* Call before the events of a batch; `scope` must stay valid as long as they. */
  void begin(rxd_scope *scope);
  /* False: the event cannot be sent; `problem` has the reason. */
  bool make(const rxd_value &event, Record &record, std::string &problem);

private:
  rxd_scope *scope = nullptr;
  /* Cache of the last encoded resource and scope: a value with identical bits has the same encoding. */
  bool has_last_resource = false, has_last_scope = false;
  rxd_value last_resource, last_scope;
  std::string last_resource_bytes, last_scope_bytes;
  bool has_default = false;
  std::string default_bytes; /* the encoded default resource */

  friend struct Reader;
};

void add_record(Request &request, uint32_t event, Record &&record);

#endif
