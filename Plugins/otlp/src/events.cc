#include "events.h"

#include "otlp.pb.h"
#include "walk.h"

#include <array>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <unordered_map>

namespace {
using namespace rxd_otlp;

/* The members of an object under construction. */
template <size_t Most> struct Members {
  std::array<rxd_text, Most> names;
  std::array<rxd_value, Most> values;
  size_t count = 0;
  void put(rxd_text name, rxd_value value) {
    names[count] = name;
    values[count++] = value;
  }
  rxd_value object(rxd_scope *scope) const { return host->make_object(scope, names.data(), values.data(), count); }
};

struct Maker {
  rxd_scope *scope;

  rxd_value text(std::string_view text) const { return host->make_text(scope, text_of(text)); }

  rxd_value hex(std::string_view bytes) const {
    static const char digits[] = "0123456789abcdef";
    std::string made(2 * bytes.size(), 0);
    for (size_t i = 0; i < bytes.size(); i++) {
      made[2 * i] = digits[static_cast<uint8_t>(bytes[i]) >> 4];
      made[2 * i + 1] = digits[bytes[i] & 15];
    }
    return text(made);
  }

  rxd_value list(const std::vector<rxd_value> &values) const { return host->make_list(scope, values.data(), values.size()); }

  template <typename List, typename Make> rxd_value list_of(const List &list, Make make) const {
    std::vector<rxd_value> values;
    values.reserve(static_cast<size_t>(list.size()));
    for (const auto &one : list) values.push_back(make(one));
    return this->list(values);
  }

  rxd_value any(const AnyValue &value) const {
    switch (value.value_case()) {
    case AnyValue::kText: return text(value.text());
    case AnyValue::kBoolean: return host->make_bool(value.boolean());
    case AnyValue::kInteger: return host->make_int(value.integer());
    case AnyValue::kNumber: return host->make_double(value.number());
    case AnyValue::kList: return list_of(value.list().values(), [this](auto &one) { return any(one); });
    case AnyValue::kObject: return object(value.object().values());
    case AnyValue::kBinary: return host->make_bytes(scope, text_of(value.binary()));
    case AnyValue::VALUE_NOT_SET: break;
    }
    return host->make_null();
  }

  /* Of several members with one key, which OTLP forbids, the last one counts. */
  template <typename List> rxd_value object(const List &pairs) const {
    enum { FEW = 24 };
    std::vector<rxd_text> names;
    std::vector<rxd_value> values;
    std::unordered_map<std::string_view, size_t> known;
    size_t all = static_cast<size_t>(pairs.size());
    names.reserve(all), values.reserve(all);
    for (const auto &pair : pairs) {
      std::string_view key = pair.key();
      size_t at = names.size();
      if (all > FEW) at = known.try_emplace(key, at).first->second;
      else
        for (size_t i = 0; i < names.size() && at == names.size(); i++)
          if (view_of(names[i]) == key) at = i;
      rxd_value value = any(pair.value());
      if (at < names.size()) values[at] = value;
      else names.push_back(text_of(key)), values.push_back(value);
    }
    /* The host rejects an object with an empty array of names. */
    if (names.empty()) return host->make_object(scope, &no_name, &no_value, 0);
    return host->make_object(scope, names.data(), values.data(), names.size());
  }
  static inline const rxd_text no_name = {"", 0};
  static inline const rxd_value no_value = {{0, 0}};

  rxd_value count(uint64_t count) const { return host->make_uint(count); }
};

enum { NESTED_MOST = 90 }; /* nesting depth of a record; its event can be sent on within the depth of 100 that receivers allow */

bool parse(google::protobuf::MessageLite &message, std::string_view bytes) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t *>(bytes.data()), static_cast<int>(bytes.size()));
  input.SetRecursionLimit(NESTED_MOST);
  return message.ParseFromCodedStream(&input) && input.ConsumedEntireMessage();
}

#define NAME(literal) RXD_TEXT_OF(literal)

/* Adds a member unless its value is empty. */
template <typename M> void put_text(M &members, const Maker &make, rxd_text name, std::string_view text) {
  if (!text.empty()) members.put(name, make.text(text));
}
template <typename M> void put_hex(M &members, const Maker &make, rxd_text name, std::string_view bytes) {
  if (!bytes.empty()) members.put(name, make.hex(bytes));
}
template <typename M> void put_number(M &members, rxd_text name, uint64_t number) {
  if (number != 0) members.put(name, host->make_uint(number));
}

class EventMaker : public Visitor {
public:
  EventMaker(rxd_source *running, Signal signal, const std::function<void()> &between)
    : running(running), signal(signal), between(between) {}

  Taken taken;
  uint64_t token = 0; /* token of the next event */

  bool resource(const std::vector<std::string_view> &heads, std::string_view schema) override {
    the_resource.Clear();
    resource_schema = schema;
    made_resource = made_scope = false;
    for (auto head : heads)
      if (!the_resource.MergeFromString(std::string(head))) return false;
    return true;
  }

  bool scope(const std::vector<std::string_view> &heads, std::string_view schema) override {
    the_scope.Clear();
    scope_schema = schema;
    made_scope = false;
    for (auto head : heads)
      if (!the_scope.MergeFromString(std::string(head))) return false;
    return true;
  }

  bool metric(const MetricHead &head) override {
    the_metric = head;
    metadata.Clear();
    made_metadata = false;
    for (auto one : head.metadata)
      if (!parse(*metadata.add_values(), one)) return false;
    return true;
  }

  bool record(std::string_view bytes) override {
    make = Maker{host->source_scope(running)};
    is_beyond = false;
    members.count = 0;
    rxd_value event;
    if (!(signal == Signal::logs     ? log(bytes)
          : signal == Signal::traces ? span(bytes)
                                     : point(bytes)))
      return false;
    if (is_beyond) {
      if (taken.rejected++ == 0) taken.reason = "a time is after the year 2262";
      return true;
    }
    put_around();
    event = members.object(make.scope);
    events.push_back(event);
    return events.size() < CHUNK_MOST || hand_over();
  }

  /* Adds and flushes the collected events. False: rxd accepts no more. */
  bool hand_over() {
    for (auto &event : events) {
      int status = host->add(running, &event, token++);
      taken.added++;
      if (status == RXD_STOP) taken.is_stopped = true;
      if (taken.is_stopped) break;
    }
    if (!events.empty() && host->flush(running) == RXD_STOP) taken.is_stopped = true;
    events.clear();
    made_resource = made_scope = made_metadata = false; /* their memory was freed */
    between();
    return !taken.is_stopped;
  }

private:
  rxd_source *running;
  Signal signal;
  const std::function<void()> &between;
  std::vector<rxd_value> events;
  Members<32> members;
  Maker make{};
  bool is_beyond = false; /* a time of the record is outside the range of events */

  Resource the_resource;
  Scope the_scope;
  MetricHead the_metric;
  KeyValueList metadata;
  std::string_view resource_schema, scope_schema;
  bool made_resource = false, made_scope = false, made_metadata = false;
  rxd_value resource_value, scope_value, metadata_value;

  /* The arena of the record's message, reset before the next record. */
  enum { BLOCK = 32 << 10 };
  std::unique_ptr<char[]> block{new char[BLOCK]};
  google::protobuf::Arena arena{block.get(), BLOCK};
  template <typename Message> Message &fresh() {
    arena.Reset();
    return *google::protobuf::Arena::CreateMessage<Message>(&arena);
  }

  template <typename M> void put_time(M &to, rxd_text name, uint64_t time) {
    if (time > INT64_MAX) is_beyond = true;
    else if (time != 0) to.put(name, host->make_timestamp(static_cast<int64_t>(time)));
  }

  void put_around() {
    if (!made_resource) {
      resource_value = make.object(the_resource.attributes());
      made_resource = true;
    }
    if (!made_scope) {
      Members<5> scope;
      scope.put(NAME("name"), make.text(the_scope.name()));
      scope.put(NAME("version"), make.text(the_scope.version()));
      scope.put(NAME("attributes"), make.object(the_scope.attributes()));
      put_number(scope, NAME("droppedAttributes"), the_scope.dropped_attributes());
      put_text(scope, make, NAME("schemaUrl"), scope_schema);
      scope_value = scope.object(make.scope);
      made_scope = true;
    }
    members.put(NAME("resource"), resource_value);
    put_number(members, NAME("resourceDroppedAttributes"), the_resource.dropped_attributes());
    put_text(members, make, NAME("resourceSchemaUrl"), resource_schema);
    members.put(NAME("scope"), scope_value);
  }

  bool log(std::string_view bytes) {
    LogRecord &record = fresh<LogRecord>();
    if (!parse(record, bytes)) return false;
    members.put(NAME("signal"), make.text("log"));
    put_time(members, NAME("time"), record.time());
    put_time(members, NAME("observedTime"), record.observed_time());
    members.put(NAME("severity"), host->make_int(record.severity()));
    put_text(members, make, NAME("severityText"), record.severity_text());
    if (record.has_body()) members.put(NAME("body"), make.any(record.body()));
    put_text(members, make, NAME("eventName"), record.event_name());
    members.put(NAME("attributes"), make.object(record.attributes()));
    put_number(members, NAME("droppedAttributes"), record.dropped_attributes());
    put_hex(members, make, NAME("traceId"), record.trace_id());
    put_hex(members, make, NAME("spanId"), record.span_id());
    put_number(members, NAME("flags"), record.flags());
    return true;
  }

  rxd_value span_event(const Span::Event &event) {
    Members<4> made;
    put_time(made, NAME("time"), event.time());
    made.put(NAME("name"), make.text(event.name()));
    made.put(NAME("attributes"), make.object(event.attributes()));
    put_number(made, NAME("droppedAttributes"), event.dropped_attributes());
    return made.object(make.scope);
  }

  rxd_value span_link(const Span::Link &link) {
    Members<6> made;
    made.put(NAME("traceId"), make.hex(link.trace_id()));
    made.put(NAME("spanId"), make.hex(link.span_id()));
    put_text(made, make, NAME("traceState"), link.trace_state());
    made.put(NAME("attributes"), make.object(link.attributes()));
    put_number(made, NAME("droppedAttributes"), link.dropped_attributes());
    put_number(made, NAME("flags"), link.flags());
    return made.object(make.scope);
  }

  /* The name of an enum value; a number without a known name stays a number. */
  rxd_value named(const char *const *names, size_t count, int number) {
    return number >= 0 && static_cast<size_t>(number) < count ? make.text(names[number]) : host->make_int(number);
  }

  bool span(std::string_view bytes) {
    static const char *const kinds[] = {"unspecified", "internal", "server", "client", "producer", "consumer"};
    static const char *const codes[] = {"unset", "ok", "error"};
    Span &record = fresh<Span>();
    if (!parse(record, bytes)) return false;
    members.put(NAME("signal"), make.text("span"));
    members.put(NAME("traceId"), make.hex(record.trace_id()));
    members.put(NAME("spanId"), make.hex(record.span_id()));
    put_hex(members, make, NAME("parentSpanId"), record.parent_span_id());
    put_text(members, make, NAME("traceState"), record.trace_state());
    put_number(members, NAME("flags"), record.flags());
    members.put(NAME("name"), make.text(record.name()));
    members.put(NAME("kind"), named(kinds, 6, record.kind()));
    put_time(members, NAME("startTime"), record.start_time());
    put_time(members, NAME("endTime"), record.end_time());
    members.put(NAME("status"), named(codes, 3, record.status().code()));
    put_text(members, make, NAME("statusMessage"), record.status().message());
    members.put(NAME("attributes"), make.object(record.attributes()));
    put_number(members, NAME("droppedAttributes"), record.dropped_attributes());
    if (record.events_size() > 0)
      members.put(NAME("events"), make.list_of(record.events(), [this](auto &one) { return span_event(one); }));
    put_number(members, NAME("droppedEvents"), record.dropped_events());
    if (record.links_size() > 0)
      members.put(NAME("links"), make.list_of(record.links(), [this](auto &one) { return span_link(one); }));
    put_number(members, NAME("droppedLinks"), record.dropped_links());
    return true;
  }

  template <typename Message, typename M> static void put_value(M &members, const Message &message) {
    if (message.value_case() == Message::kNumber) members.put(NAME("value"), host->make_double(message.number()));
    if (message.value_case() == Message::kInteger) members.put(NAME("value"), host->make_int(message.integer()));
  }

  rxd_value exemplar(const Exemplar &one) {
    Members<5> made;
    put_time(made, NAME("time"), one.time());
    put_value(made, one);
    put_hex(made, make, NAME("traceId"), one.trace_id());
    put_hex(made, make, NAME("spanId"), one.span_id());
    made.put(NAME("attributes"), make.object(one.attributes()));
    return made.object(make.scope);
  }

  template <typename Point> void put_exemplars(const Point &point) {
    if (point.exemplars_size() > 0)
      members.put(NAME("exemplars"), make.list_of(point.exemplars(), [this](auto &one) { return exemplar(one); }));
  }

  /* Adds the members that all data points have. */
  template <typename Point> void put_point(const Point &point) {
    put_time(members, NAME("startTime"), point.start_time());
    put_time(members, NAME("time"), point.time());
    members.put(NAME("attributes"), make.object(point.attributes()));
    put_number(members, NAME("flags"), point.flags());
  }

  template <typename Point> void put_range(const Point &point) {
    members.put(NAME("count"), make.count(point.count()));
    if (point.has_sum()) members.put(NAME("sum"), host->make_double(point.sum()));
    if (point.has_min()) members.put(NAME("min"), host->make_double(point.min()));
    if (point.has_max()) members.put(NAME("max"), host->make_double(point.max()));
  }

  rxd_value buckets(const ExponentialPoint::Buckets &buckets) {
    Members<2> made;
    made.put(NAME("offset"), host->make_int(buckets.offset()));
    made.put(NAME("bucketCounts"), make.list_of(buckets.bucket_counts(), [this](uint64_t one) { return make.count(one); }));
    return made.object(make.scope);
  }

  void put_head(const char *type) {
    const MetricHead &head = the_metric;
    members.put(NAME("signal"), make.text("metric"));
    members.put(NAME("name"), make.text(head.name));
    put_text(members, make, NAME("description"), head.description);
    put_text(members, make, NAME("unit"), head.unit);
    members.put(NAME("type"), make.text(type));
    if (head.data == SUM || head.data == HISTOGRAM || head.data == EXPONENTIAL) {
      static const char *const names[] = {"unspecified", "delta", "cumulative"};
      members.put(NAME("temporality"), named(names, 3, head.temporality));
    }
    if (head.data == SUM) members.put(NAME("monotonic"), host->make_bool(head.is_monotonic));
    if (metadata.values_size() == 0) return;
    if (!made_metadata) metadata_value = make.object(metadata.values());
    made_metadata = true;
    members.put(NAME("metadata"), metadata_value);
  }

  bool point(std::string_view bytes) {
    switch (the_metric.data) {
    case GAUGE:
    case SUM: {
      auto &point = fresh<NumberPoint>();
      if (!parse(point, bytes)) return false;
      put_head(the_metric.data == SUM ? "sum" : "gauge");
      put_point(point);
      put_value(members, point);
      put_exemplars(point);
      return true;
    }
    case HISTOGRAM: {
      auto &point = fresh<HistogramPoint>();
      if (!parse(point, bytes)) return false;
      put_head("histogram");
      put_point(point);
      put_range(point);
      members.put(NAME("bounds"), make.list_of(point.bounds(), host->make_double));
      members.put(NAME("bucketCounts"),
                  make.list_of(point.bucket_counts(), [this](uint64_t one) { return make.count(one); }));
      put_exemplars(point);
      return true;
    }
    case EXPONENTIAL: {
      auto &point = fresh<ExponentialPoint>();
      if (!parse(point, bytes)) return false;
      put_head("exponentialHistogram");
      put_point(point);
      put_range(point);
      members.put(NAME("scale"), host->make_int(point.scale()));
      members.put(NAME("zeroCount"), make.count(point.zero_count()));
      members.put(NAME("zeroThreshold"), host->make_double(point.zero_threshold()));
      if (point.has_positive()) members.put(NAME("positive"), buckets(point.positive()));
      if (point.has_negative()) members.put(NAME("negative"), buckets(point.negative()));
      put_exemplars(point);
      return true;
    }
    default: {
      auto &point = fresh<SummaryPoint>();
      if (!parse(point, bytes)) return false;
      put_head("summary");
      put_point(point);
      members.put(NAME("count"), make.count(point.count()));
      members.put(NAME("sum"), host->make_double(point.sum()));
      members.put(NAME("quantiles"), make.list_of(point.quantiles(), [this](auto &one) {
        Members<2> made;
        made.put(NAME("quantile"), host->make_double(one.quantile()));
        made.put(NAME("value"), host->make_double(one.value()));
        return made.object(make.scope);
      }));
      return true;
    }
    }
  }
};

/* Checks whether the whole request can be parsed, and counts its records. */
class Checker : public Visitor {
public:
  explicit Checker(Signal signal) : signal(signal) {}

  bool resource(const std::vector<std::string_view> &heads, std::string_view) override { return all<Resource>(heads); }
  bool scope(const std::vector<std::string_view> &heads, std::string_view) override { return all<Scope>(heads); }
  bool metric(const MetricHead &head) override {
    data = head.data;
    return all<KeyValue>(head.metadata);
  }
  bool record(std::string_view bytes) override {
    switch (signal == Signal::metrics ? data : 0) {
    case GAUGE: case SUM: return parse(number_point, bytes);
    case HISTOGRAM: return parse(histogram_point, bytes);
    case EXPONENTIAL: return parse(exponential_point, bytes);
    case SUMMARY: return parse(summary_point, bytes);
    }
    return signal == Signal::logs ? parse(log_record, bytes) : parse(span_record, bytes);
  }

private:
  Signal signal;
  int data = 0;
  LogRecord log_record;
  Span span_record;
  NumberPoint number_point;
  HistogramPoint histogram_point;
  ExponentialPoint exponential_point;
  SummaryPoint summary_point;

  template <typename Message> static bool all(const std::vector<std::string_view> &parts) {
    Message message;
    for (auto part : parts)
      if (!parse(message, part)) return false;
    return true;
  }
};

struct Counter : Visitor {
  size_t count = 0;
  bool record(std::string_view) override { return ++count; }
};
} // namespace

Taken add_events(rxd_source *running, std::string_view request, Signal signal, const std::function<uint64_t(size_t)> &begin,
                 const std::function<void()> &between) {
  EventMaker maker(running, signal, between);
  Counter counter;
  bool is_sound = walk(request, signal, counter);
  /* Requests of up to one chunk are added only after all their events were created. */
  if (is_sound && counter.count >= CHUNK_MOST) {
    Checker checker(signal);
    is_sound = walk(request, signal, checker);
  }
  if (is_sound) {
    maker.token = begin(counter.count);
    is_sound = walk(request, signal, maker) || maker.taken.is_stopped;
  }
  if (is_sound && !maker.taken.is_stopped) maker.hand_over();
  if (!is_sound) {
    maker.taken.is_malformed = true;
    maker.taken.reason = "the body is no request of OTLP, is damaged, or has values that are nested too deeply";
  }
  return maker.taken;
}
