/* What the sink makes of events: requests of log records, spans and data points, grouped by resource and scope. */
#ifndef OTLP_RECORDS_H
#define OTLP_RECORDS_H
#include "common.h"

#include <unordered_map>

/* Protobuf of messages that are put together, without a copy of them as objects. */
struct MetricGroup {
  std::string head, data_head; /* fields of Metric, and of its data */
  int data = 0;                /* the number of the field */
  std::string points;          /* fields 1 of the data */
};

struct ScopeGroup {
  std::string head;    /* fields beside the records */
  std::string records; /* fields 2 */
  std::vector<MetricGroup> metrics;
  std::unordered_map<std::string, size_t> metrics_by_key;
};

struct ResourceGroup {
  std::string head;
  std::vector<ScopeGroup> scopes;
  std::unordered_map<std::string, size_t> scopes_by_key;
};

/* A request that is made. */
struct Request {
  Signal signal{};
  std::vector<uint32_t> events; /* the indices in the batch */
  size_t bytes = 0;             /* about */
  std::vector<ResourceGroup> resources;
  std::unordered_map<std::string, size_t> resources_by_key;

  /* The whole, in protobuf. */
  std::string body() const;
};

/* A record and where it belongs. */
struct Record {
  Signal signal{};
  std::string bytes;
  std::string resource, scope;          /* heads of the groups */
  std::string metric_head, metric_data; /* of a data point */
  int data = 0;
  size_t size() const { return bytes.size() + 8; }
};

class RecordMaker {
public:
  /* Attributes of the resource of events that have none: names and values. */
  std::vector<std::pair<std::string, std::string>> resource;

  /* Before the events of a call; `scope` must live as long as they. */
  void begin(rxd_scope *scope);
  /* False: the event cannot be sent; `problem` says why. */
  bool make(const rxd_value &event, Record &record, std::string &problem);

private:
  rxd_scope *scope = nullptr;
  /* The last resource and scope: values with the same bits are the same value. */
  bool has_last_resource = false, has_last_scope = false;
  rxd_value last_resource, last_scope;
  std::string last_resource_bytes, last_scope_bytes;
  bool has_default = false;
  std::string default_bytes; /* of the resource of events that have none */

  friend struct Reader;
};

void add_record(Request &request, uint32_t event, Record &&record);

#endif
