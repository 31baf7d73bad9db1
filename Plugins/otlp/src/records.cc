#include "records.h"

#include "otlp.pb.h"
#include "walk.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace {
using namespace rxd_otlp;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

enum { NESTED_MOST = 94 }; /* nesting depth of a record; receivers allow 100 with the enclosing messages */

/* ---- Protobuf ---- */

void append_bytes(std::string &to, int number, std::string_view bytes) {
  StringOutputStream stream(&to);
  CodedOutputStream output(&stream);
  output.WriteTag(WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  output.WriteVarint32(static_cast<uint32_t>(bytes.size()));
  output.WriteRaw(bytes.data(), static_cast<int>(bytes.size()));
}

void append_number(std::string &to, int number, uint64_t value) {
  StringOutputStream stream(&to);
  CodedOutputStream output(&stream);
  output.WriteTag(WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_VARINT));
  output.WriteVarint64(value);
}

/* ---- Members ---- */

enum Field {
  SIGNAL, TIME, OBSERVED_TIME, START_TIME, END_TIME, SEVERITY, SEVERITY_TEXT, BODY, EVENT_NAME, ATTRIBUTES, DROPPED_ATTRIBUTES, TRACE_ID,
  SPAN_ID, PARENT_SPAN_ID, TRACE_STATE, FLAGS, NAME, KIND, STATUS, STATUS_MESSAGE, EVENTS, DROPPED_EVENTS, LINKS, DROPPED_LINKS, DESCRIPTION,
  UNIT, TYPE, TEMPORALITY, MONOTONIC, METADATA, VALUE, COUNT, SUM_OF, MIN, MAX, BOUNDS, BUCKET_COUNTS, SCALE, ZERO_COUNT, ZERO_THRESHOLD,
  POSITIVE, NEGATIVE, QUANTILES, EXEMPLARS, RESOURCE, RESOURCE_DROPPED, RESOURCE_SCHEMA, SCOPE, VERSION, SCHEMA_URL, OFFSET, QUANTILE,
  FIELDS,
};

const char *const field_names[FIELDS] = {
  "signal", "time", "observedTime", "startTime", "endTime", "severity", "severityText", "body", "eventName", "attributes",
  "droppedAttributes", "traceId", "spanId", "parentSpanId", "traceState", "flags", "name", "kind", "status", "statusMessage", "events",
  "droppedEvents", "links", "droppedLinks", "description", "unit", "type", "temporality", "monotonic", "metadata", "value", "count", "sum",
  "min", "max", "bounds", "bucketCounts", "scale", "zeroCount", "zeroThreshold", "positive", "negative", "quantiles", "exemplars",
  "resource", "resourceDroppedAttributes", "resourceSchemaUrl", "scope", "version", "schemaUrl", "offset", "quantile"};

using FieldSet = uint64_t;
constexpr FieldSet set_of(std::initializer_list<Field> fields) {
  FieldSet set = 0;
  for (Field field : fields) set |= FieldSet(1) << field;
  return set;
}

const std::unordered_map<std::string_view, Field> &fields_by_name() {
  static const auto *made = [] {
    auto *map = new std::unordered_map<std::string_view, Field>;
    for (int i = 0; i < FIELDS; i++) map->emplace(field_names[i], static_cast<Field>(i));
    return map;
  }();
  return *made;
}

constexpr FieldSet around_fields = set_of({SIGNAL, ATTRIBUTES, RESOURCE, RESOURCE_DROPPED, RESOURCE_SCHEMA, SCOPE});
constexpr FieldSet log_fields = around_fields
                                | set_of({TIME, OBSERVED_TIME, SEVERITY, SEVERITY_TEXT, BODY, EVENT_NAME, DROPPED_ATTRIBUTES, TRACE_ID, SPAN_ID, FLAGS});
constexpr FieldSet span_fields = around_fields
                                 | set_of({TRACE_ID, SPAN_ID, PARENT_SPAN_ID, TRACE_STATE, FLAGS, NAME, KIND, START_TIME, END_TIME, STATUS,
                                           STATUS_MESSAGE, DROPPED_ATTRIBUTES, EVENTS, DROPPED_EVENTS, LINKS, DROPPED_LINKS});
constexpr FieldSet metric_fields = around_fields | set_of({NAME, DESCRIPTION, UNIT, TYPE, METADATA, START_TIME, TIME, FLAGS});
constexpr FieldSet range_fields = metric_fields | set_of({TEMPORALITY, COUNT, SUM_OF, MIN, MAX, EXEMPLARS});

/* Thrown with the reason why an event cannot be sent. */
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void wrong(Field field, const char *what) { throw Wrong(std::string("'") + field_names[field] + "' " + what); }

/* The known members of an object. */
struct Members {
  rxd_value values[FIELDS];
  FieldSet given = 0;
  bool has(Field field) const { return (given >> field & 1) != 0; }
  const rxd_value &operator[](Field field) const { return values[field]; }
};
} // namespace

struct Reader {
  rxd_scope *scope;

  /* A null counts as absent, but a body may be null. `of`: where the object is. */
  Members members_of(const rxd_value &object, FieldSet allowed, const char *of) const {
    Members members;
    const auto &known = fields_by_name();
    size_t count = host->count(scope, &object);
    for (size_t i = 0; i < count; i++) {
      rxd_text name = {"", 0};
      rxd_value value = host->entry(scope, &object, i, &name);
      auto found = known.find(view_of(name));
      if (found == known.end() || (allowed >> found->second & 1) == 0)
        throw Wrong(std::string(of) + " has the unknown member '" + std::string(view_of(name).substr(0, 60)) + "'; put it into 'attributes'");
      if (host->kind(&value) == RXD_NULL && found->second != BODY) continue;
      members.values[found->second] = value;
      members.given |= FieldSet(1) << found->second;
    }
    return members;
  }

  /* ---- Single values ---- */

  std::string text(const Members &members, Field field) const {
    if (!members.has(field)) return {};
    int kind = host->kind(&members[field]);
    if (kind != RXD_TEXT && kind != RXD_BYTES) wrong(field, "must be a text");
    return std::string(view_of(host->text(scope, &members[field])));
  }

  std::string hex(const Members &members, Field field) const {
    std::string digits = text(members, field), bytes;
    auto value_of = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    if (digits.size() % 2 != 0) wrong(field, "must have two hexadecimal digits for each byte");
    for (size_t i = 0; i < digits.size(); i += 2) {
      int high = value_of(digits[i]), low = value_of(digits[i + 1]);
      if (high < 0 || low < 0) wrong(field, "must be hexadecimal");
      bytes.push_back(static_cast<char>(high << 4 | low));
    }
    return bytes;
  }

  uint64_t unsigned_of(Field field, const rxd_value &value, uint64_t most) const {
    int kind = host->kind(&value);
    uint64_t number = host->unsigned_integer(&value);
    if ((kind != RXD_INT && kind != RXD_UINT) || (kind == RXD_INT && host->integer(&value) < 0) || number > most)
      wrong(field, most == UINT64_MAX ? "must be a whole number that is not negative" : "must be a whole number of 32 bits that is not negative");
    return number;
  }
  uint32_t unsigned32(const Members &members, Field field) const {
    return members.has(field) ? static_cast<uint32_t>(unsigned_of(field, members[field], UINT32_MAX)) : 0;
  }
  uint64_t unsigned64(const Members &members, Field field) const {
    return members.has(field) ? unsigned_of(field, members[field], UINT64_MAX) : 0;
  }

  int32_t signed32(const Members &members, Field field) const {
    if (!members.has(field)) return 0;
    int64_t number = host->integer(&members[field]);
    if (host->kind(&members[field]) != RXD_INT || number < INT32_MIN || number > INT32_MAX) wrong(field, "must be a whole number of 32 bits");
    return static_cast<int32_t>(number);
  }

  double fraction(Field field, const rxd_value &value) const {
    int kind = host->kind(&value);
    if (kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE) return host->number(&value);
    std::string_view text = kind == RXD_TEXT ? view_of(host->text(scope, &value)) : std::string_view();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    wrong(field, "must be a number");
  }

  /* Nanoseconds since 1970; a text is one of RFC 3339, as JSON has it. */
  uint64_t time(const Members &members, Field field) const {
    if (!members.has(field)) return 0;
    const rxd_value &value = members[field];
    int kind = host->kind(&value);
    if (kind == RXD_TIMESTAMP && host->integer(&value) >= 0) return static_cast<uint64_t>(host->integer(&value));
    int64_t nanoseconds = kind == RXD_TEXT ? time_of(view_of(host->text(scope, &value))) : -1;
    if (nanoseconds < 0) wrong(field, "must be a time from 1970 to 2262");
    return static_cast<uint64_t>(nanoseconds);
  }

  static int digits(std::string_view text, size_t at, size_t count) {
    int number = 0;
    for (size_t i = at; i < at + count; i++) {
      if (i >= text.size() || text[i] < '0' || text[i] > '9') return -1;
      number = number * 10 + (text[i] - '0');
    }
    return number;
  }

  /* Negative: the text is not a time. */
  static int64_t time_of(std::string_view text) {
    enum { WHOLE = 19 }; /* "2026-01-31T12:00:00" */
    int year = digits(text, 0, 4), month = digits(text, 5, 2), day = digits(text, 8, 2);
    int hour = digits(text, 11, 2), minute = digits(text, 14, 2), second = digits(text, 17, 2);
    if (text.size() <= WHOLE || text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != 't' && text[10] != ' ') || text[13] != ':'
        || text[16] != ':' || year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0
        || minute > 59 || second < 0 || second > 60)
      return -1;
    size_t at = WHOLE;
    int64_t nanoseconds = 0;
    if (text[at] == '.') {
      int64_t unit = 100000000;
      for (at++; at < text.size() && text[at] >= '0' && text[at] <= '9'; at++, unit /= 10) nanoseconds += (text[at] - '0') * unit;
      if (at == WHOLE + 1) return -1;
    }
    int64_t offset = 0;
    if (at < text.size() && (text[at] == 'Z' || text[at] == 'z')) at++;
    else if (at + 6 <= text.size() && (text[at] == '+' || text[at] == '-') && text[at + 3] == ':') {
      int hours = digits(text, at + 1, 2), minutes = digits(text, at + 4, 2);
      if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return -1;
      offset = (text[at] == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
      at += 6;
    } else return -1;
    if (at != text.size()) return -1;
    struct tm parts = {};
    parts.tm_year = year - 1900, parts.tm_mon = month - 1, parts.tm_mday = day;
    parts.tm_hour = hour, parts.tm_min = minute, parts.tm_sec = second;
    int64_t seconds = static_cast<int64_t>(timegm(&parts)) - offset, result;
    if (seconds < 0 || __builtin_mul_overflow(seconds, 1000000000, &result) || __builtin_add_overflow(result, nanoseconds, &result)) return -1;
    return result;
  }

  /* A number, or the name of one. */
  int32_t named(const Members &members, Field field, std::initializer_list<const char *> names) const {
    if (!members.has(field)) return 0;
    if (host->kind(&members[field]) != RXD_TEXT) return signed32(members, field);
    std::string_view given = view_of(host->text(scope, &members[field]));
    int32_t number = 0;
    std::string all;
    for (const char *name : names) {
      if (given == name) return number;
      number++;
      all += all.empty() ? "" : ", ";
      all += name;
    }
    wrong(field, ("must be one of " + all).c_str());
  }

  /* ---- Attributes ---- */

  void any(const rxd_value &value, int depth, AnyValue &to) const {
    if (depth > NESTED_MOST) throw Wrong("the event is nested too deeply");
    switch (host->kind(&value)) {
    case RXD_NULL: case RXD_ABSENT: to.clear_value(); break;
    case RXD_BOOL: to.set_boolean(host->boolean(&value) != 0); break;
    case RXD_INT: to.set_integer(host->integer(&value)); break;
    case RXD_DOUBLE: to.set_number(host->number(&value)); break;
    case RXD_TEXT: set(to.mutable_text(), host->text(scope, &value)); break;
    case RXD_BYTES: set(to.mutable_binary(), host->text(scope, &value)); break;
    case RXD_LIST: {
      auto *list = to.mutable_list();
      size_t count = host->count(scope, &value);
      for (size_t i = 0; i < count; i++) {
        rxd_value element = host->element(scope, &value, i);
        any(element, depth + 2, *list->add_values());
      }
      break;
    }
    case RXD_OBJECT: pairs(value, depth + 2, *to.mutable_object()->mutable_values()); break;
    default: { /* times, durations, and numbers that OTLP lacks become their JSON texts */
      std::string_view json = view_of(host->json(scope, &value));
      if (json.size() >= 2 && json.front() == '"') json = json.substr(1, json.size() - 2);
      to.set_text(json.data(), json.size());
    }
    }
  }

  static void set(std::string *to, rxd_text text) { to->assign(text.count > 0 ? text.bytes : "", text.count); }

  /* `depth`: the nesting depth of a pair. */
  template <typename Pairs> void pairs(const rxd_value &object, int depth, Pairs &to) const {
    size_t count = host->count(scope, &object);
    to.Reserve(static_cast<int>(count));
    for (size_t i = 0; i < count; i++) {
      rxd_text name = {"", 0};
      rxd_value value = host->entry(scope, &object, i, &name);
      auto *pair = to.Add();
      set(pair->mutable_key(), name);
      any(value, depth + 1, *pair->mutable_value());
    }
  }

  template <typename Pairs> void attributes(const Members &members, Field field, int depth, Pairs *to) const {
    if (!members.has(field)) return;
    if (host->kind(&members[field]) != RXD_OBJECT) wrong(field, "must be an object");
    pairs(members[field], depth, *to);
  }

  template <typename Take> void each(const Members &members, Field field, Take take) const {
    if (!members.has(field)) return;
    if (host->kind(&members[field]) != RXD_LIST) wrong(field, "must be a list");
    size_t count = host->count(scope, &members[field]);
    for (size_t i = 0; i < count; i++) {
      rxd_value element = host->element(scope, &members[field], i);
      take(element);
    }
  }

  template <typename Take> void each_object(const Members &members, Field field, FieldSet allowed, Take take) const {
    each(members, field, [&](const rxd_value &element) {
      if (host->kind(&element) != RXD_OBJECT) wrong(field, "must be a list of objects");
      take(members_of(element, allowed, field_names[field]));
    });
  }

  /* ---- Records ---- */

  /* Accepts a number from 0, or a text such as "error", "WARN" or "info2", which also becomes the severity text. */
  void severity(const Members &members, LogRecord &to) const {
    static const char *const names[] = {"trace", "debug", "info", "warn", "error", "fatal"};
    to.set_severity_text(text(members, SEVERITY_TEXT));
    if (!members.has(SEVERITY)) return;
    if (host->kind(&members[SEVERITY]) != RXD_TEXT) return to.set_severity(signed32(members, SEVERITY));
    std::string given = text(members, SEVERITY), name = given;
    for (char &c : name) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
    int step = 0;
    if (!name.empty() && name.back() >= '1' && name.back() <= '4') {
      step = name.back() - '1';
      name.pop_back();
    }
    if (name == "warning") name = "warn";
    if (name == "err") name = "error";
    if (name == "critical" || name == "crit" || name == "alert" || name == "emerg" || name == "emergency" || name == "panic") name = "fatal";
    if (name == "notice") name = "info", step = 1;
    for (int i = 0; i < 6; i++)
      if (name == names[i]) to.set_severity(4 * i + 1 + step);
    if (to.severity() == 0 && !given.empty()) wrong(SEVERITY, "must be a number or one of trace, debug, info, warn, error, fatal");
    if (to.severity_text().empty()) to.set_severity_text(given);
  }

  void log(const Members &members, Record &record) const {
    LogRecord to;
    to.set_time(time(members, TIME));
    to.set_observed_time(time(members, OBSERVED_TIME));
    severity(members, to);
    if (members.has(BODY)) any(members[BODY], 1, *to.mutable_body());
    attributes(members, ATTRIBUTES, 1, to.mutable_attributes());
    to.set_dropped_attributes(unsigned32(members, DROPPED_ATTRIBUTES));
    to.set_flags(unsigned32(members, FLAGS));
    to.set_trace_id(hex(members, TRACE_ID));
    to.set_span_id(hex(members, SPAN_ID));
    to.set_event_name(text(members, EVENT_NAME));
    to.SerializeToString(&record.bytes);
  }

  void span(const Members &members, Record &record) const {
    Span to;
    to.set_trace_id(hex(members, TRACE_ID));
    to.set_span_id(hex(members, SPAN_ID));
    to.set_parent_span_id(hex(members, PARENT_SPAN_ID));
    to.set_trace_state(text(members, TRACE_STATE));
    to.set_flags(unsigned32(members, FLAGS));
    to.set_name(text(members, NAME));
    to.set_kind(named(members, KIND, {"unspecified", "internal", "server", "client", "producer", "consumer"}));
    to.set_start_time(time(members, START_TIME));
    to.set_end_time(time(members, END_TIME));
    attributes(members, ATTRIBUTES, 1, to.mutable_attributes());
    to.set_dropped_attributes(unsigned32(members, DROPPED_ATTRIBUTES));
    int32_t code = named(members, STATUS, {"unset", "ok", "error"});
    if (code != 0) to.mutable_status()->set_code(code);
    if (members.has(STATUS_MESSAGE)) to.mutable_status()->set_message(text(members, STATUS_MESSAGE));
    each_object(members, EVENTS, set_of({TIME, NAME, ATTRIBUTES, DROPPED_ATTRIBUTES}), [&](const Members &event) {
      auto *one = to.add_events();
      one->set_time(time(event, TIME));
      one->set_name(text(event, NAME));
      attributes(event, ATTRIBUTES, 2, one->mutable_attributes());
      one->set_dropped_attributes(unsigned32(event, DROPPED_ATTRIBUTES));
    });
    to.set_dropped_events(unsigned32(members, DROPPED_EVENTS));
    each_object(members, LINKS, set_of({TRACE_ID, SPAN_ID, TRACE_STATE, ATTRIBUTES, DROPPED_ATTRIBUTES, FLAGS}), [&](const Members &link) {
      auto *one = to.add_links();
      one->set_trace_id(hex(link, TRACE_ID));
      one->set_span_id(hex(link, SPAN_ID));
      one->set_trace_state(text(link, TRACE_STATE));
      attributes(link, ATTRIBUTES, 2, one->mutable_attributes());
      one->set_dropped_attributes(unsigned32(link, DROPPED_ATTRIBUTES));
      one->set_flags(unsigned32(link, FLAGS));
    });
    to.set_dropped_links(unsigned32(members, DROPPED_LINKS));
    to.SerializeToString(&record.bytes);
  }

  template <typename Message> void value(const Members &members, Message &to) const {
    if (!members.has(VALUE)) return;
    int kind = host->kind(&members[VALUE]);
    if (kind == RXD_INT) to.set_integer(host->integer(&members[VALUE]));
    else to.set_number(fraction(VALUE, members[VALUE]));
  }

  template <typename Point> void point(const Members &members, Point &to) const {
    to.set_start_time(time(members, START_TIME));
    to.set_time(time(members, TIME));
    attributes(members, ATTRIBUTES, 1, to.mutable_attributes());
    to.set_flags(unsigned32(members, FLAGS));
  }

  template <typename Point> void exemplars(const Members &members, Point &to) const {
    each_object(members, EXEMPLARS, set_of({TIME, VALUE, TRACE_ID, SPAN_ID, ATTRIBUTES}), [&](const Members &one) {
      auto *exemplar = to.add_exemplars();
      exemplar->set_time(time(one, TIME));
      value(one, *exemplar);
      exemplar->set_trace_id(hex(one, TRACE_ID));
      exemplar->set_span_id(hex(one, SPAN_ID));
      attributes(one, ATTRIBUTES, 2, exemplar->mutable_attributes());
    });
  }

  template <typename Point> void range(const Members &members, Point &to) const {
    to.set_count(unsigned64(members, COUNT));
    if (members.has(SUM_OF)) to.set_sum(fraction(SUM_OF, members[SUM_OF]));
    if (members.has(MIN)) to.set_min(fraction(MIN, members[MIN]));
    if (members.has(MAX)) to.set_max(fraction(MAX, members[MAX]));
    exemplars(members, to);
  }

  void buckets(const Members &members, Field field, ExponentialPoint::Buckets *to) const {
    if (host->kind(&members[field]) != RXD_OBJECT) wrong(field, "must be an object");
    Members inner = members_of(members[field], set_of({OFFSET, BUCKET_COUNTS}), field_names[field]);
    to->set_offset(signed32(inner, OFFSET));
    each(inner, BUCKET_COUNTS, [&](const rxd_value &one) { to->add_bucket_counts(unsigned_of(BUCKET_COUNTS, one, UINT64_MAX)); });
  }

  /* Returns the field number of a metric type and the allowed members of its points; 0: the type is unknown. */
  static int data_of(std::string_view type, FieldSet &allowed) {
    if (type == "gauge") return allowed = metric_fields | set_of({VALUE, EXEMPLARS}), GAUGE;
    if (type == "sum") return allowed = metric_fields | set_of({VALUE, EXEMPLARS, TEMPORALITY, MONOTONIC}), SUM;
    if (type == "histogram") return allowed = range_fields | set_of({BOUNDS, BUCKET_COUNTS}), HISTOGRAM;
    if (type == "exponentialHistogram")
      return allowed = range_fields | set_of({SCALE, ZERO_COUNT, ZERO_THRESHOLD, POSITIVE, NEGATIVE}), EXPONENTIAL;
    if (type == "summary") return allowed = metric_fields | set_of({COUNT, SUM_OF, QUANTILES}), SUMMARY;
    return 0;
  }

  void metric(const Members &members, Record &record) const {
    for (auto &[number, field] : {std::pair(1, NAME), std::pair(2, DESCRIPTION), std::pair(3, UNIT)}) {
      std::string bytes = text(members, field);
      if (!bytes.empty()) append_bytes(record.metric_head, number, bytes);
    }
    KeyValueList metadata;
    attributes(members, METADATA, 1, metadata.mutable_values());
    for (const auto &pair : metadata.values()) append_bytes(record.metric_head, 12, pair.SerializeAsString());
    int32_t temporality = named(members, TEMPORALITY, {"unspecified", "delta", "cumulative"});
    if (temporality != 0) append_number(record.metric_data, 2, static_cast<uint64_t>(static_cast<int64_t>(temporality)));
    if (members.has(MONOTONIC)) {
      if (host->kind(&members[MONOTONIC]) != RXD_BOOL) wrong(MONOTONIC, "must be true or false");
      if (host->boolean(&members[MONOTONIC]) != 0) append_number(record.metric_data, 3, 1);
    }
    switch (record.data) {
    case GAUGE:
    case SUM: {
      NumberPoint to;
      point(members, to);
      value(members, to);
      exemplars(members, to);
      to.SerializeToString(&record.bytes);
      break;
    }
    case HISTOGRAM: {
      HistogramPoint to;
      point(members, to);
      range(members, to);
      each(members, BOUNDS, [&](const rxd_value &one) { to.add_bounds(fraction(BOUNDS, one)); });
      each(members, BUCKET_COUNTS, [&](const rxd_value &one) { to.add_bucket_counts(unsigned_of(BUCKET_COUNTS, one, UINT64_MAX)); });
      to.SerializeToString(&record.bytes);
      break;
    }
    case EXPONENTIAL: {
      ExponentialPoint to;
      point(members, to);
      range(members, to);
      to.set_scale(signed32(members, SCALE));
      to.set_zero_count(unsigned64(members, ZERO_COUNT));
      if (members.has(ZERO_THRESHOLD)) to.set_zero_threshold(fraction(ZERO_THRESHOLD, members[ZERO_THRESHOLD]));
      if (members.has(POSITIVE)) buckets(members, POSITIVE, to.mutable_positive());
      if (members.has(NEGATIVE)) buckets(members, NEGATIVE, to.mutable_negative());
      to.SerializeToString(&record.bytes);
      break;
    }
    case SUMMARY: {
      SummaryPoint to;
      point(members, to);
      to.set_count(unsigned64(members, COUNT));
      if (members.has(SUM_OF)) to.set_sum(fraction(SUM_OF, members[SUM_OF]));
      each_object(members, QUANTILES, set_of({QUANTILE, VALUE}), [&](const Members &one) {
        auto *quantile = to.add_quantiles();
        if (one.has(QUANTILE)) quantile->set_quantile(fraction(QUANTILE, one[QUANTILE]));
        if (one.has(VALUE)) quantile->set_value(fraction(VALUE, one[VALUE]));
      });
      to.SerializeToString(&record.bytes);
      break;
    }
    }
  }

  /* ---- What is around ---- */

  std::string scope_bytes(const rxd_value &value) const {
    if (host->kind(&value) != RXD_OBJECT) wrong(SCOPE, "must be an object");
    Members members = members_of(value, set_of({NAME, VERSION, ATTRIBUTES, DROPPED_ATTRIBUTES, SCHEMA_URL}), "scope");
    Scope to;
    to.set_name(text(members, NAME));
    to.set_version(text(members, VERSION));
    attributes(members, ATTRIBUTES, 1, to.mutable_attributes());
    to.set_dropped_attributes(unsigned32(members, DROPPED_ATTRIBUTES));
    std::string made, bytes = to.SerializeAsString(), schema = text(members, SCHEMA_URL);
    if (!bytes.empty()) append_bytes(made, 1, bytes);
    if (!schema.empty()) append_bytes(made, 3, schema);
    return made;
  }

  std::string resource_bytes(const RecordMaker &maker, const Members &members) const {
    Resource to;
    if (members.has(RESOURCE)) attributes(members, RESOURCE, 1, to.mutable_attributes());
    else
      for (const auto &pair : maker.resource) {
        auto *one = to.add_attributes();
        one->set_key(pair.first);
        one->mutable_value()->set_text(pair.second);
      }
    to.set_dropped_attributes(unsigned32(members, RESOURCE_DROPPED));
    std::string made, bytes = to.SerializeAsString(), schema = text(members, RESOURCE_SCHEMA);
    if (!bytes.empty()) append_bytes(made, 1, bytes);
    if (!schema.empty()) append_bytes(made, 3, schema);
    return made;
  }

  void around(RecordMaker &maker, const Members &members, Record &record) const {
    if (members.has(RESOURCE_DROPPED) || members.has(RESOURCE_SCHEMA)) record.resource = resource_bytes(maker, members);
    else if (!members.has(RESOURCE)) {
      if (!maker.has_default) maker.default_bytes = resource_bytes(maker, members);
      maker.has_default = true;
      record.resource = maker.default_bytes;
    } else {
      if (!maker.has_last_resource || memcmp(&maker.last_resource, &members[RESOURCE], sizeof(rxd_value)) != 0) {
        maker.last_resource_bytes = resource_bytes(maker, members);
        maker.last_resource = members[RESOURCE];
        maker.has_last_resource = true;
      }
      record.resource = maker.last_resource_bytes;
    }
    if (!members.has(SCOPE)) return;
    if (!maker.has_last_scope || memcmp(&maker.last_scope, &members[SCOPE], sizeof(rxd_value)) != 0) {
      maker.last_scope_bytes = scope_bytes(members[SCOPE]);
      maker.last_scope = members[SCOPE];
      maker.has_last_scope = true;
    }
    record.scope = maker.last_scope_bytes;
  }

  void make(RecordMaker &maker, const rxd_value &event, Record &record) const {
    Members members;
    rxd_value signal = host->make_null();
    bool has_body = false;
    if (host->kind(&event) == RXD_OBJECT) {
      rxd_value body = host->member(scope, &event, RXD_TEXT_OF("body"));
      signal = host->member(scope, &event, RXD_TEXT_OF("signal"));
      has_body = host->kind(&body) != RXD_ABSENT;
    }
    std::string_view name = host->kind(&signal) == RXD_TEXT ? view_of(host->text(scope, &signal)) : std::string_view();
    if (name == "span") {
      record.signal = Signal::traces;
      members = members_of(event, span_fields, "the event");
      span(members, record);
    } else if (name == "metric") {
      record.signal = Signal::metrics;
      rxd_value type = host->member(scope, &event, RXD_TEXT_OF("type"));
      FieldSet allowed = 0;
      record.data = host->kind(&type) == RXD_TEXT ? data_of(view_of(host->text(scope, &type)), allowed) : 0;
      if (record.data == 0) wrong(TYPE, "must be gauge, sum, histogram, exponentialHistogram or summary");
      members = members_of(event, allowed, "the event");
      metric(members, record);
    } else {
      if (name.empty() ? host->kind(&signal) != RXD_ABSENT && host->kind(&signal) != RXD_NULL : name != "log")
        wrong(SIGNAL, "must be log, span or metric");
      record.signal = Signal::logs;
      if (name == "log" || has_body) members = members_of(event, log_fields, "the event");
      else {
        members.values[BODY] = event;
        members.given = set_of({BODY});
      }
      log(members, record);
    }
    around(maker, members, record);
  }
};

void RecordMaker::begin(rxd_scope *given) {
  scope = given;
  has_last_resource = has_last_scope = false;
}

bool RecordMaker::make(const rxd_value &event, Record &record, std::string &problem) {
  try {
    Reader{scope}.make(*this, event, record);
    return true;
  } catch (const Wrong &reason) {
    problem = reason.what();
    return false;
  }
}

/* ---- Requests ---- */

template <typename Group>
static Group &group_of(std::vector<Group> &groups, std::unordered_map<std::string, size_t> &by_key, std::string &&key, size_t &bytes) {
  if (!groups.empty() && groups.back().head == key) return groups.back();
  auto found = by_key.try_emplace(key, groups.size());
  if (found.second) {
    bytes += key.size() + 8;
    groups.emplace_back();
    groups.back().head = std::move(key);
  }
  return groups[found.first->second];
}

void add_record(Request &request, uint32_t event, Record &&record) {
  request.events.push_back(event);
  request.bytes += record.size();
  ResourceGroup &resource = group_of(request.resources, request.resources_by_key, std::move(record.resource), request.bytes);
  ScopeGroup &scope = group_of(resource.scopes, resource.scopes_by_key, std::move(record.scope), request.bytes);
  if (request.signal != Signal::metrics) return append_bytes(scope.records, 2, record.bytes);
  std::string key = std::to_string(record.data) + "/" + std::to_string(record.metric_head.size()) + record.metric_head + record.metric_data;
  auto found = scope.metrics_by_key.try_emplace(std::move(key), scope.metrics.size());
  if (found.second) {
    request.bytes += record.metric_head.size() + 16;
    scope.metrics.push_back({std::move(record.metric_head), std::move(record.metric_data), record.data, {}});
  }
  append_bytes(scope.metrics[found.first->second].points, 1, record.bytes);
}

std::string Request::body() const {
  std::string made;
  made.reserve(bytes + bytes / 8);
  for (const auto &resource : resources) {
    std::string group = resource.head;
    for (const auto &scope : resource.scopes) {
      std::string inner = scope.head + scope.records;
      for (const auto &metric : scope.metrics) {
        std::string bytes = metric.head;
        append_bytes(bytes, metric.data, metric.data_head + metric.points);
        append_bytes(inner, 2, bytes);
      }
      append_bytes(group, 2, inner);
    }
    append_bytes(made, 1, group);
  }
  return made;
}
