#include "json.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace {
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

enum class Kind { message, text, hex, base64, boolean, varint, zigzag, fixed32, fixed64, number };

struct Shape;
struct Member {
  const char *name;
  int number;
  Kind kind;
  const Shape *shape = nullptr;
  bool is_list = false;
};
struct Shape {
  const Member *members;
  size_t count;
};

#define SHAPE(name, ...)                        \
  const Member name##_members[] = {__VA_ARGS__}; \
  const Shape name = {name##_members, sizeof name##_members / sizeof name##_members[0]}
#define LIST(name, number, shape) {name, number, Kind::message, &shape, true}
#define ONE(name, number, shape) {name, number, Kind::message, &shape}

extern const Shape any;
SHAPE(pair, {"key", 1, Kind::text}, ONE("value", 2, any));
SHAPE(array, LIST("values", 1, any));
SHAPE(pairs, LIST("values", 1, pair));
const Member any_members[] = {{"stringValue", 1, Kind::text}, {"boolValue", 2, Kind::boolean}, {"intValue", 3, Kind::varint},
                              {"doubleValue", 4, Kind::number}, ONE("arrayValue", 5, array), ONE("kvlistValue", 6, pairs),
                              {"bytesValue", 7, Kind::base64}};
const Shape any = {any_members, sizeof any_members / sizeof any_members[0]};

SHAPE(resource, LIST("attributes", 1, pair), {"droppedAttributesCount", 2, Kind::varint});
SHAPE(scope_of, {"name", 1, Kind::text}, {"version", 2, Kind::text}, LIST("attributes", 3, pair), {"droppedAttributesCount", 4, Kind::varint});

SHAPE(log_record, {"timeUnixNano", 1, Kind::fixed64}, {"observedTimeUnixNano", 11, Kind::fixed64}, {"severityNumber", 2, Kind::varint},
      {"severityText", 3, Kind::text}, ONE("body", 5, any), LIST("attributes", 6, pair), {"droppedAttributesCount", 7, Kind::varint},
      {"flags", 8, Kind::fixed32}, {"traceId", 9, Kind::hex}, {"spanId", 10, Kind::hex}, {"eventName", 12, Kind::text});
SHAPE(scope_logs, ONE("scope", 1, scope_of), LIST("logRecords", 2, log_record), {"schemaUrl", 3, Kind::text});
SHAPE(resource_logs, ONE("resource", 1, resource), LIST("scopeLogs", 2, scope_logs), {"schemaUrl", 3, Kind::text});
SHAPE(logs, LIST("resourceLogs", 1, resource_logs));

SHAPE(span_event, {"timeUnixNano", 1, Kind::fixed64}, {"name", 2, Kind::text}, LIST("attributes", 3, pair),
      {"droppedAttributesCount", 4, Kind::varint});
SHAPE(span_link, {"traceId", 1, Kind::hex}, {"spanId", 2, Kind::hex}, {"traceState", 3, Kind::text}, LIST("attributes", 4, pair),
      {"droppedAttributesCount", 5, Kind::varint}, {"flags", 6, Kind::fixed32});
SHAPE(span_status, {"message", 2, Kind::text}, {"code", 3, Kind::varint});
SHAPE(span, {"traceId", 1, Kind::hex}, {"spanId", 2, Kind::hex}, {"traceState", 3, Kind::text}, {"parentSpanId", 4, Kind::hex},
      {"flags", 16, Kind::fixed32}, {"name", 5, Kind::text}, {"kind", 6, Kind::varint}, {"startTimeUnixNano", 7, Kind::fixed64},
      {"endTimeUnixNano", 8, Kind::fixed64}, LIST("attributes", 9, pair), {"droppedAttributesCount", 10, Kind::varint},
      LIST("events", 11, span_event), {"droppedEventsCount", 12, Kind::varint}, LIST("links", 13, span_link),
      {"droppedLinksCount", 14, Kind::varint}, ONE("status", 15, span_status));
SHAPE(scope_spans, ONE("scope", 1, scope_of), LIST("spans", 2, span), {"schemaUrl", 3, Kind::text});
SHAPE(resource_spans, ONE("resource", 1, resource), LIST("scopeSpans", 2, scope_spans), {"schemaUrl", 3, Kind::text});
SHAPE(traces, LIST("resourceSpans", 1, resource_spans));

SHAPE(exemplar, LIST("filteredAttributes", 7, pair), {"timeUnixNano", 2, Kind::fixed64}, {"asDouble", 3, Kind::number},
      {"asInt", 6, Kind::fixed64}, {"spanId", 4, Kind::hex}, {"traceId", 5, Kind::hex});
SHAPE(number_point, LIST("attributes", 7, pair), {"startTimeUnixNano", 2, Kind::fixed64}, {"timeUnixNano", 3, Kind::fixed64},
      {"asDouble", 4, Kind::number}, {"asInt", 6, Kind::fixed64}, LIST("exemplars", 5, exemplar), {"flags", 8, Kind::varint});
SHAPE(histogram_point, LIST("attributes", 9, pair), {"startTimeUnixNano", 2, Kind::fixed64}, {"timeUnixNano", 3, Kind::fixed64},
      {"count", 4, Kind::fixed64}, {"sum", 5, Kind::number}, {"bucketCounts", 6, Kind::fixed64, nullptr, true},
      {"explicitBounds", 7, Kind::number, nullptr, true}, LIST("exemplars", 8, exemplar), {"flags", 10, Kind::varint},
      {"min", 11, Kind::number}, {"max", 12, Kind::number});
SHAPE(buckets, {"offset", 1, Kind::zigzag}, {"bucketCounts", 2, Kind::varint, nullptr, true});
SHAPE(exponential_point, LIST("attributes", 1, pair), {"startTimeUnixNano", 2, Kind::fixed64}, {"timeUnixNano", 3, Kind::fixed64},
      {"count", 4, Kind::fixed64}, {"sum", 5, Kind::number}, {"scale", 6, Kind::zigzag}, {"zeroCount", 7, Kind::fixed64},
      ONE("positive", 8, buckets), ONE("negative", 9, buckets), {"flags", 10, Kind::varint}, LIST("exemplars", 11, exemplar),
      {"min", 12, Kind::number}, {"max", 13, Kind::number}, {"zeroThreshold", 14, Kind::number});
SHAPE(quantile, {"quantile", 1, Kind::number}, {"value", 2, Kind::number});
SHAPE(summary_point, LIST("attributes", 7, pair), {"startTimeUnixNano", 2, Kind::fixed64}, {"timeUnixNano", 3, Kind::fixed64},
      {"count", 4, Kind::fixed64}, {"sum", 5, Kind::number}, LIST("quantileValues", 6, quantile), {"flags", 8, Kind::varint});
#define DATA(name, point) \
  SHAPE(name, LIST("dataPoints", 1, point), {"aggregationTemporality", 2, Kind::varint}, {"isMonotonic", 3, Kind::boolean})
DATA(numbers, number_point);
DATA(histogram, histogram_point);
DATA(exponential, exponential_point);
DATA(summary, summary_point);
SHAPE(metric, {"name", 1, Kind::text}, {"description", 2, Kind::text}, {"unit", 3, Kind::text}, ONE("gauge", 5, numbers), ONE("sum", 7, numbers),
      ONE("histogram", 9, histogram), ONE("exponentialHistogram", 10, exponential), ONE("summary", 11, summary), LIST("metadata", 12, pair));
SHAPE(scope_metrics, ONE("scope", 1, scope_of), LIST("metrics", 2, metric), {"schemaUrl", 3, Kind::text});
SHAPE(resource_metrics, ONE("resource", 1, resource), LIST("scopeMetrics", 2, scope_metrics), {"schemaUrl", 3, Kind::text});
SHAPE(metrics, LIST("resourceMetrics", 1, resource_metrics));

enum { DEPTH_MOST = 100 };

/* ---- Texts of bytes ---- */

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool bytes_of_hex(std::string_view text, std::string &bytes) {
  if (text.size() % 2 != 0) return false;
  for (size_t i = 0; i < text.size(); i += 2) {
    int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

int base64_digit(char c) {
  return c >= 'A' && c <= 'Z'   ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+' || c == '-' ? 62
         : c == '/' || c == '_' ? 63
                                : -1;
}

bool bytes_of_base64(std::string_view text, std::string &bytes) {
  for (int padding = 0; padding < 2 && !text.empty() && text.back() == '='; padding++) text.remove_suffix(1);
  if (text.size() % 4 == 1) return false;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    int digit = base64_digit(c);
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 255));
  }
  return true;
}

/* ---- Numbers ---- */

/* Reads an integer as two's complement bits; accepts a text and a number such as 5.0. */
bool whole(rxd_scope *scope, const rxd_value &value, uint64_t &result) {
  switch (host->kind(&value)) {
  case RXD_INT: result = static_cast<uint64_t>(host->integer(&value)); return true;
  case RXD_UINT: result = host->unsigned_integer(&value); return true;
  case RXD_DOUBLE: {
    double number = host->number(&value);
    if (!(number >= -9223372036854775808.0 && number < 18446744073709551616.0) || std::floor(number) != number) return false;
    result = number < 0 ? static_cast<uint64_t>(static_cast<int64_t>(number)) : static_cast<uint64_t>(number);
    return true;
  }
  case RXD_TEXT: {
    std::string_view text = view_of(host->text(scope, &value));
    const char *end = text.data() + text.size();
    if (!text.empty() && text[0] == '-') {
      int64_t number = 0;
      auto read = std::from_chars(text.data(), end, number);
      result = static_cast<uint64_t>(number);
      return read.ec == std::errc() && read.ptr == end;
    }
    auto read = std::from_chars(text.data(), end, result);
    return read.ec == std::errc() && read.ptr == end;
  }
  }
  return false;
}

bool fractional(rxd_scope *scope, const rxd_value &value, double &result) {
  int kind = host->kind(&value);
  if (kind == RXD_INT || kind == RXD_UINT || kind == RXD_DOUBLE) {
    result = host->number(&value);
    return true;
  }
  if (kind != RXD_TEXT) return false;
  std::string_view text = view_of(host->text(scope, &value));
  if (text == "NaN") result = std::numeric_limits<double>::quiet_NaN();
  else if (text == "Infinity") result = std::numeric_limits<double>::infinity();
  else if (text == "-Infinity") result = -std::numeric_limits<double>::infinity();
  else {
    auto read = std::from_chars(text.data(), text.data() + text.size(), result);
    return read.ec == std::errc() && read.ptr == text.data() + text.size();
  }
  return true;
}

/* ---- Messages ---- */

struct Transcoder {
  rxd_scope *scope;
  std::string problem;

  bool wrong(const Member &member, const char *what) {
    problem = std::string("'") + member.name + "' is " + what;
    return false;
  }

  /* Writes the content of a length-delimited field. */
  bool content(const Member &member, const rxd_value &value, int depth, std::string &to) {
    if (member.kind == Kind::message) {
      StringOutputStream stream(&to);
      CodedOutputStream output(&stream);
      return message(member, value, depth, output);
    }
    if (host->kind(&value) != RXD_TEXT) return wrong(member, "no text");
    std::string_view text = view_of(host->text(scope, &value));
    if (member.kind == Kind::text) to = text;
    else if (member.kind == Kind::hex && !bytes_of_hex(text, to)) return wrong(member, "not hexadecimal");
    else if (member.kind == Kind::base64 && !bytes_of_base64(text, to)) return wrong(member, "not base64");
    return true;
  }

  static bool has_length(Kind kind) {
    return kind == Kind::message || kind == Kind::text || kind == Kind::hex || kind == Kind::base64;
  }

  static WireFormatLite::WireType wire_type(Kind kind) {
    return has_length(kind)                                     ? WireFormatLite::WIRETYPE_LENGTH_DELIMITED
           : kind == Kind::fixed64 || kind == Kind::number      ? WireFormatLite::WIRETYPE_FIXED64
           : kind == Kind::fixed32                              ? WireFormatLite::WIRETYPE_FIXED32
                                                                : WireFormatLite::WIRETYPE_VARINT;
  }

  /* Writes a scalar without its tag. */
  bool scalar(const Member &member, const rxd_value &value, CodedOutputStream &output) {
    if (member.kind == Kind::boolean) {
      if (host->kind(&value) != RXD_BOOL) return wrong(member, "neither true nor false");
      output.WriteVarint32(static_cast<uint32_t>(host->boolean(&value)));
      return true;
    }
    if (member.kind == Kind::number) {
      double number = 0;
      if (!fractional(scope, value, number)) return wrong(member, "no number");
      output.WriteLittleEndian64(WireFormatLite::EncodeDouble(number));
      return true;
    }
    uint64_t number = 0;
    if (!whole(scope, value, number)) return wrong(member, "no whole number of 64 bits");
    switch (member.kind) {
    case Kind::fixed64: output.WriteLittleEndian64(number); break;
    case Kind::fixed32:
      if (number > UINT32_MAX) return wrong(member, "no whole number of 32 bits");
      output.WriteLittleEndian32(static_cast<uint32_t>(number));
      break;
    case Kind::zigzag: output.WriteVarint64(WireFormatLite::ZigZagEncode64(static_cast<int64_t>(number))); break;
    default: output.WriteVarint64(number);
    }
    return true;
  }

  bool field(const Member &member, const rxd_value &value, int depth, CodedOutputStream &output) {
    output.WriteTag(WireFormatLite::MakeTag(member.number, wire_type(member.kind)));
    if (!has_length(member.kind)) return scalar(member, value, output);
    std::string bytes;
    if (!content(member, value, depth, bytes)) return false;
    output.WriteVarint32(static_cast<uint32_t>(bytes.size()));
    output.WriteString(bytes);
    return true;
  }

  bool list(const Member &member, const rxd_value &value, int depth, CodedOutputStream &output) {
    if (host->kind(&value) != RXD_LIST) return wrong(member, "no list");
    size_t count = host->count(scope, &value);
    for (size_t i = 0; i < count; i++) {
      rxd_value element = host->element(scope, &value, i);
      if (!field(member, element, depth, output)) return false;
    }
    return true;
  }

  bool message(const Member &of, const rxd_value &value, int depth, CodedOutputStream &output) {
    if (depth > DEPTH_MOST) return wrong(of, "nested too deeply");
    if (host->kind(&value) != RXD_OBJECT) return wrong(of, "no object");
    size_t count = host->count(scope, &value);
    for (size_t i = 0; i < count; i++) {
      rxd_text name = {"", 0};
      rxd_value entry = host->entry(scope, &value, i, &name);
      const Member *member = find(*of.shape, view_of(name));
      if (member == nullptr || host->kind(&entry) == RXD_NULL) continue;
      if (!(member->is_list ? list(*member, entry, depth + 1, output) : field(*member, entry, depth + 1, output))) return false;
    }
    return true;
  }

  static const Member *find(const Shape &shape, std::string_view name) {
    for (size_t i = 0; i < shape.count; i++)
      if (shape.members[i].name == name) return &shape.members[i];
    return nullptr;
  }
};
} // namespace

bool request_of_json(rxd_scope *scope, const rxd_value &json, Signal signal, std::string &request, std::string &problem) {
  const Shape *shapes[SIGNALS] = {&logs, &metrics, &traces};
  Transcoder transcoder = {scope, {}};
  const Member all = {"request", 0, Kind::message, shapes[static_cast<int>(signal)]};
  if (transcoder.content(all, json, 0, request)) return true;
  problem = transcoder.problem;
  return false;
}

std::string json_text(std::string_view text) {
  std::string made = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c >= ' ' && c < 127 ? c : '?';
  }
  return made += '"';
}
