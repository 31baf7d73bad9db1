#include "walk.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace {
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

struct Field {
  int number;
  bool has_bytes;         /* the field is length-delimited */
  std::string_view bytes;
  uint64_t integer;       /* otherwise, the value of a varint */
};

/* False: malformed, or `take` has returned false. */
template <typename Take> bool each_field(std::string_view message, Take take) {
  CodedInputStream input(reinterpret_cast<const uint8_t *>(message.data()), static_cast<int>(message.size()));
  while (uint32_t tag = input.ReadTag()) {
    Field field = {WireFormatLite::GetTagFieldNumber(tag), false, {}, 0};
    switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
      uint32_t count = 0;
      if (!input.ReadVarint32(&count) || count > message.size() - static_cast<size_t>(input.CurrentPosition())) return false;
      field.has_bytes = true;
      field.bytes = message.substr(static_cast<size_t>(input.CurrentPosition()), count);
      if (!input.Skip(static_cast<int>(count))) return false;
      break;
    }
    case WireFormatLite::WIRETYPE_VARINT:
      if (!input.ReadVarint64(&field.integer)) return false;
      break;
    default:
      if (field.number == 0 || !WireFormatLite::SkipField(&input, tag)) return false;
    }
    if (field.number == 0 || !take(field)) return false;
  }
  /* A tag of 0 does not end a message. */
  return input.ConsumedEntireMessage() && static_cast<size_t>(input.CurrentPosition()) == message.size();
}

bool walk_metric(std::string_view metric, Visitor &visitor) {
  MetricHead head;
  bool is_sound = each_field(metric, [&](const Field &field) {
    if (!field.has_bytes) return true;
    switch (field.number) {
    case 1: head.name = field.bytes; break;
    case 2: head.description = field.bytes; break;
    case 3: head.unit = field.bytes; break;
    case 12: head.metadata.push_back(field.bytes); break;
    case GAUGE: case SUM: case HISTOGRAM: case EXPONENTIAL: case SUMMARY:
      head.data = field.number;
      head.data_bytes = field.bytes;
      break;
    }
    return true;
  });
  is_sound = is_sound && each_field(head.data_bytes, [&](const Field &field) {
    if (field.has_bytes) return true;
    if (field.number == 2) head.temporality = static_cast<int>(field.integer);
    if (field.number == 3) head.is_monotonic = field.integer != 0;
    return true;
  });
  return is_sound && visitor.metric(head) && each_field(head.data_bytes, [&](const Field &field) {
    return field.number != 1 || !field.has_bytes || visitor.record(field.bytes);
  });
}

/* Calls `begin` with the contents of fields 1 and 3, then `take` with each field 2. */
template <typename Begin, typename Take> bool walk_group(std::string_view message, Begin begin, Take take) {
  std::vector<std::string_view> heads;
  std::string_view schema;
  bool is_sound = each_field(message, [&](const Field &field) {
    if (field.has_bytes && field.number == 1) heads.push_back(field.bytes);
    if (field.has_bytes && field.number == 3) schema = field.bytes;
    return true;
  });
  return is_sound && begin(heads, schema)
         && each_field(message, [&](const Field &field) { return !field.has_bytes || field.number != 2 || take(field.bytes); });
}
} // namespace

bool walk(std::string_view request, Signal signal, Visitor &visitor) {
  auto take_record = [&](std::string_view record) {
    return signal == Signal::metrics ? walk_metric(record, visitor) : visitor.record(record);
  };
  auto take_scope = [&](std::string_view scope) {
    return walk_group(scope, [&](auto &heads, auto schema) { return visitor.scope(heads, schema); }, take_record);
  };
  return each_field(request, [&](const Field &field) {
    if (!field.has_bytes || field.number != 1) return true;
    return walk_group(field.bytes, [&](auto &heads, auto schema) { return visitor.resource(heads, schema); }, take_scope);
  });
}
