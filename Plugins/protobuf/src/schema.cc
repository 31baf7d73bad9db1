// Makes the tables of schema.h from descriptors, which libprotobuf links and checks.
#include "schema.h"

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

// Linked so that the generated pool contains the well-known types.
#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/field_mask.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/wrappers.pb.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pb = google::protobuf;

static rxd_text view(const std::string &text) { return {text.data(), text.size()}; }

namespace {

// The first error; the others mostly follow from it.
struct Errors : pb::DescriptorPool::ErrorCollector, pb::io::ErrorCollector {
  std::string first;
  void AddError(const std::string &file, const std::string &element, const pb::Message *, ErrorLocation, const std::string &message) override {
    if (!first.empty()) return;
    first = file + ": ";
    if (!element.empty() && element != file) first += element + ": ";
    first += message;
  }
  void AddError(int line, pb::io::ColumnNumber column, const std::string &message) override {
    if (first.empty()) first = "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1) + ": " + message;
  }
};

struct Message {
  message_type type{};
  std::vector<field_type> fields;
  std::vector<rxd_text> oneofs;
  std::vector<uint32_t> dense, buckets, path;
};

struct Enumeration {
  enumeration type{};
  std::vector<enum_value> by_number, by_name;
};

}  // namespace

struct schema {
  pb::SimpleDescriptorDatabase given;
  pb::DescriptorPoolDatabase known{*pb::DescriptorPool::generated_pool()};
  pb::MergedDescriptorDatabase both{&given, &known};
  Errors errors;
  std::unique_ptr<pb::DescriptorPool> pool;
  std::deque<std::string> texts;
  std::map<std::string, Message> messages;
  std::map<std::string, Enumeration> enumerations;
};

static bool has_fields(const pb::Descriptor *type, std::initializer_list<pb::FieldDescriptor::Type> kinds) {
  if (type->field_count() != static_cast<int>(kinds.size())) return false;
  int number = 1;
  for (auto kind : kinds) {
    const pb::FieldDescriptor *field = type->FindFieldByNumber(number++);
    if (field == nullptr || field->type() != kind) return false;
  }
  return true;
}

static known_type known_of(const pb::Descriptor *type) {
  using Field = pb::FieldDescriptor;
  const std::string &name = type->full_name();
  const std::string start = "google.protobuf.";
  if (name.compare(0, start.size(), start) != 0) return KNOWN_NONE;
  std::string rest = name.substr(start.size());
  if (rest == "Timestamp" && has_fields(type, {Field::TYPE_INT64, Field::TYPE_INT32})) return KNOWN_TIMESTAMP;
  if (rest == "Duration" && has_fields(type, {Field::TYPE_INT64, Field::TYPE_INT32})) return KNOWN_DURATION;
  if (rest == "Any" && has_fields(type, {Field::TYPE_STRING, Field::TYPE_BYTES})) return KNOWN_ANY;
  if (rest == "Struct" && has_fields(type, {Field::TYPE_MESSAGE}) && type->field(0)->is_map()) return KNOWN_STRUCT;
  if (rest == "ListValue" && has_fields(type, {Field::TYPE_MESSAGE}) && type->field(0)->is_repeated()) return KNOWN_LIST;
  if (rest == "Value" && has_fields(type, {Field::TYPE_ENUM, Field::TYPE_DOUBLE, Field::TYPE_STRING, Field::TYPE_BOOL, Field::TYPE_MESSAGE,
                                           Field::TYPE_MESSAGE}))
    return KNOWN_VALUE;
  if (rest == "FieldMask" && has_fields(type, {Field::TYPE_STRING}) && type->field(0)->is_repeated()) return KNOWN_MASK;
  const std::pair<const char *, Field::Type> wrappers[] = {
      {"DoubleValue", Field::TYPE_DOUBLE}, {"FloatValue", Field::TYPE_FLOAT}, {"Int64Value", Field::TYPE_INT64},
      {"UInt64Value", Field::TYPE_UINT64}, {"Int32Value", Field::TYPE_INT32}, {"UInt32Value", Field::TYPE_UINT32},
      {"BoolValue", Field::TYPE_BOOL}, {"StringValue", Field::TYPE_STRING}, {"BytesValue", Field::TYPE_BYTES}};
  for (auto &wrapper : wrappers)
    if (rest == wrapper.first && has_fields(type, {wrapper.second})) return KNOWN_WRAPPER;
  return KNOWN_NONE;
}

static const enumeration *add_enumeration(schema &all, const pb::EnumDescriptor *from) {
  auto [found, is_new] = all.enumerations.try_emplace(from->full_name());
  Enumeration &made = found->second;
  if (!is_new) return &made.type;
  for (int i = 0; i < from->value_count(); i++) made.by_number.push_back({view(from->value(i)->name()), from->value(i)->number()});
  made.by_name = made.by_number;
  std::stable_sort(made.by_number.begin(), made.by_number.end(), [](auto &a, auto &b) { return a.number < b.number; });
  auto last = std::unique(made.by_number.begin(), made.by_number.end(), [](auto &a, auto &b) { return a.number == b.number; });
  made.by_number.erase(last, made.by_number.end());
  std::sort(made.by_name.begin(), made.by_name.end(), [](auto &a, auto &b) {
    return std::string_view(a.name.bytes, a.name.count) < std::string_view(b.name.bytes, b.name.count);
  });
  made.type.name = view(from->full_name());
  made.type.by_number = made.by_number.data();
  made.type.number_count = static_cast<uint32_t>(made.by_number.size());
  made.type.by_name = made.by_name.data();
  made.type.name_count = static_cast<uint32_t>(made.by_name.size());
  made.type.is_closed = from->file()->syntax() == pb::FileDescriptor::SYNTAX_PROTO2;
  made.type.is_null = from->full_name() == "google.protobuf.NullValue";
  return &made.type;
}

static uint8_t wire_of(pb::FieldDescriptor::Type kind) {
  using Field = pb::FieldDescriptor;
  switch (kind) {
    case Field::TYPE_DOUBLE: case Field::TYPE_FIXED64: case Field::TYPE_SFIXED64: return WIRE_64;
    case Field::TYPE_FLOAT: case Field::TYPE_FIXED32: case Field::TYPE_SFIXED32: return WIRE_32;
    case Field::TYPE_STRING: case Field::TYPE_BYTES: case Field::TYPE_MESSAGE: return WIRE_BYTES;
    case Field::TYPE_GROUP: return WIRE_GROUP;
    default: return WIRE_VARINT;
  }
}

static void put_default(const pb::FieldDescriptor *from, field_type &made) {
  using Field = pb::FieldDescriptor;
  if (from->is_repeated()) return;
  switch (from->cpp_type()) {
    case Field::CPPTYPE_INT32: made.otherwise.integer = from->default_value_int32(); break;
    case Field::CPPTYPE_INT64: made.otherwise.integer = from->default_value_int64(); break;
    case Field::CPPTYPE_UINT32: made.otherwise.number = from->default_value_uint32(); break;
    case Field::CPPTYPE_UINT64: made.otherwise.number = from->default_value_uint64(); break;
    case Field::CPPTYPE_DOUBLE: made.otherwise.real = from->default_value_double(); break;
    case Field::CPPTYPE_FLOAT: made.otherwise.real = from->default_value_float(); break;
    case Field::CPPTYPE_BOOL: made.otherwise.integer = from->default_value_bool(); break;
    case Field::CPPTYPE_ENUM: made.otherwise.integer = from->default_value_enum()->number(); break;
    case Field::CPPTYPE_STRING: made.otherwise.text = view(from->default_value_string()); break;
    case Field::CPPTYPE_MESSAGE: break;
  }
}

static void add_message(schema &all, const pb::Descriptor *from, bool uses_json_names) {
  Message &made = all.messages[from->full_name()];
  std::vector<const pb::FieldDescriptor *> fields;
  for (int i = 0; i < from->field_count(); i++) fields.push_back(from->field(i));
  std::vector<const pb::FieldDescriptor *> extensions;
  all.pool->FindAllExtensions(from, &extensions);
  fields.insert(fields.end(), extensions.begin(), extensions.end());
  std::sort(fields.begin(), fields.end(), [](auto *a, auto *b) { return a->number() < b->number(); });

  for (auto *field : fields) {
    field_type one{};
    one.number = static_cast<uint32_t>(field->number());
    one.kind = static_cast<uint8_t>(field->type());
    one.wire = wire_of(field->type());
    one.is_repeated = field->is_repeated();
    one.is_map = field->is_map();
    one.is_packed = field->is_packed();
    one.can_pack = field->is_packable();
    one.has_presence = field->has_presence();
    one.is_required = field->is_required();
    one.oneof = field->real_containing_oneof() == nullptr ? -1 : field->real_containing_oneof()->index();
    if (field->is_extension()) {
      all.texts.push_back("[" + field->full_name() + "]");
      one.name = one.other = view(all.texts.back());
    } else {
      one.name = view(uses_json_names ? field->json_name() : field->name());
      one.other = view(uses_json_names ? field->name() : field->json_name());
    }
    if (field->message_type() != nullptr) one.message = &all.messages[field->message_type()->full_name()].type;
    if (field->enum_type() != nullptr) one.enumeration = add_enumeration(all, field->enum_type());
    put_default(field, one);
    made.type.required_count += one.is_required;
    made.fields.push_back(one);
  }
  for (int i = 0; i < from->real_oneof_decl_count(); i++) made.oneofs.push_back(view(from->oneof_decl(i)->name()));

  uint32_t most = static_cast<uint32_t>(std::max<size_t>(64, made.fields.size() * 4));
  for (auto &field : made.fields)
    if (field.number < most) made.type.dense_count = field.number + 1;
  made.dense.resize(made.type.dense_count);
  size_t bucket_count = 4;
  while (bucket_count < made.fields.size() * 4) bucket_count *= 2;
  made.buckets.resize(bucket_count);
  auto put_name = [&](rxd_text name, uint32_t index) {
    uint32_t bucket = hash_of_name(name.bytes, name.count) & static_cast<uint32_t>(bucket_count - 1);
    while (made.buckets[bucket] != 0) bucket = (bucket + 1) & static_cast<uint32_t>(bucket_count - 1);
    made.buckets[bucket] = index + 1;
  };
  // A field's name in events takes precedence over the other name of another field.
  for (uint32_t i = 0; i < made.fields.size(); i++) {
    if (made.fields[i].number < made.type.dense_count) made.dense[made.fields[i].number] = i + 1;
    put_name(made.fields[i].name, i);
  }
  for (uint32_t i = 0; i < made.fields.size(); i++)
    if (std::string_view(made.fields[i].name.bytes, made.fields[i].name.count) != std::string_view(made.fields[i].other.bytes, made.fields[i].other.count))
      put_name(made.fields[i].other, i);
  for (const pb::Descriptor *at = from; at != nullptr; at = at->containing_type()) made.path.insert(made.path.begin(), static_cast<uint32_t>(at->index()));

  made.type.name = view(from->full_name());
  made.type.known = known_of(from);
  made.type.is_map_entry = from->options().map_entry();
  made.type.fields = made.fields.data();
  made.type.field_count = static_cast<uint32_t>(made.fields.size());
  made.type.oneofs = made.oneofs.data();
  made.type.oneof_count = static_cast<uint32_t>(made.oneofs.size());
  made.type.dense = made.dense.data();
  made.type.buckets = made.buckets.data();
  made.type.bucket_count = static_cast<uint32_t>(bucket_count);
  made.type.path = made.path.data();
  made.type.path_count = static_cast<uint32_t>(made.path.size());
}

static void add_messages(schema &all, const pb::Descriptor *from, bool uses_json_names) {
  add_message(all, from, uses_json_names);
  for (int i = 0; i < from->nested_type_count(); i++) add_messages(all, from->nested_type(i), uses_json_names);
}

static void report(schema_problem *problem, const char *at, const std::string &message) {
  snprintf(problem->at, sizeof problem->at, "%s", at);
  // The message as one sentence without a full stop and line feeds, cut between characters.
  std::string text = message.substr(0, sizeof problem->message - 1);
  while (!text.empty() && text.size() < message.size() && (static_cast<unsigned char>(message[text.size()]) & 0xc0) == 0x80) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  memcpy(problem->message, text.c_str(), text.size() + 1);
}

static schema *make(const char *set, size_t set_count, const char *proto, size_t proto_count, bool uses_json_names, schema_problem *problem) {
  pb::LogSilencer no_lines_on_standard_error;
  auto all = std::make_unique<schema>();
  const char *at = proto != nullptr ? "proto" : "descriptors";
  std::vector<std::string> files;
  if (proto != nullptr) {
    pb::io::ArrayInputStream input(proto, static_cast<int>(proto_count));
    pb::io::Tokenizer tokenizer(&input, &all->errors);
    pb::compiler::Parser parser;
    parser.RecordErrorsTo(&all->errors);
    pb::FileDescriptorProto file;
    if (!parser.Parse(&tokenizer, &file) || !all->errors.first.empty()) {
      report(problem, at, all->errors.first);
      return nullptr;
    }
    file.set_name("proto");
    all->given.Add(file);
    files.push_back("proto");
  } else {
    pb::FileDescriptorSet found;
    if (!found.ParseFromArray(set, static_cast<int>(set_count))) {
      report(problem, at, "the file is not a descriptor set, which 'protoc --include_imports --descriptor_set_out=FILE' writes");
      return nullptr;
    }
    if (found.file_size() == 0) {
      report(problem, at, "the descriptor set is empty");
      return nullptr;
    }
    for (auto &file : found.file()) {
      if (!all->given.Add(file)) {
        report(problem, at, "the descriptor set has '" + file.name() + "', or what it declares, twice");
        return nullptr;
      }
      files.push_back(file.name());
    }
    pb::FileDescriptorProto ignored;
    for (auto &file : found.file())
      for (auto &needed : file.dependency())
        if (!all->both.FindFileByName(needed, &ignored)) {
          report(problem, at, "'" + file.name() + "' imports '" + needed + "', which the descriptor set lacks: protoc needs --include_imports");
          return nullptr;
        }
  }
  all->pool = std::make_unique<pb::DescriptorPool>(&all->both, &all->errors);
  std::vector<const pb::FileDescriptor *> linked;
  for (auto &name : files) {
    const pb::FileDescriptor *file = all->pool->FindFileByName(name);
    if (file == nullptr || !all->errors.first.empty()) {
      report(problem, at, all->errors.first.empty() ? "'" + name + "' cannot be linked" : all->errors.first);
      return nullptr;
    }
    linked.push_back(file);
  }
  // Includes imported files and the well-known types, which an Any may contain.
  for (const char *name : {"any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"}) {
    const pb::FileDescriptor *file = all->pool->FindFileByName(std::string("google/protobuf/") + name + ".proto");
    if (file != nullptr) linked.push_back(file);
  }
  std::set<const pb::FileDescriptor *> seen;
  for (size_t i = 0; i < linked.size(); i++) {
    const pb::FileDescriptor *file = linked[i];
    if (!seen.insert(file).second) continue;
    for (int j = 0; j < file->dependency_count(); j++) linked.push_back(file->dependency(j));
    for (int j = 0; j < file->message_type_count(); j++) add_messages(*all, file->message_type(j), uses_json_names);
  }
  return all.release();
}

schema *make_schema(const char *set, size_t set_count, const char *proto, size_t proto_count, bool uses_json_names, schema_problem *problem) {
  const size_t most = 256 << 20;
  if (set_count > most || proto_count > most) {
    report(problem, proto != nullptr ? "proto" : "descriptors", "has more than 256 MiB");
    return nullptr;
  }
  try {
    return make(set, set_count, proto, proto_count, uses_json_names, problem);
  } catch (const std::exception &error) {
    report(problem, proto != nullptr ? "proto" : "descriptors", error.what());
    return nullptr;
  }
}

void free_schema(schema *schema) { delete schema; }

const message_type *find_message(const schema *schema, rxd_text name) {
  try {
    auto found = schema->messages.find(std::string(name.bytes, name.count));
    return found == schema->messages.end() || found->second.type.is_map_entry ? nullptr : &found->second.type;
  } catch (const std::exception &) {
    return nullptr;
  }
}

void explain_missing(const schema *schema, rxd_text name, schema_problem *problem) {
  std::string wanted(name.bytes, std::min<size_t>(name.count, 100)), last = wanted.substr(wanted.rfind('.') + 1), meant, others;
  int count = 0;
  for (auto &[known, message] : schema->messages) {
    if (message.type.is_map_entry) continue;
    if (meant.empty() && known.substr(known.rfind('.') + 1) == last) meant = known;
    if (known.compare(0, 16, "google.protobuf.") == 0) continue;
    if (++count <= 5) others += (others.empty() ? "" : ", ") + known;
  }
  std::string text = "there is no message '" + wanted + "'";
  if (!meant.empty()) text += "; did you mean '" + meant + "'?";
  else if (count > 0) text += "; there are " + others + (count > 5 ? " and " + std::to_string(count - 5) + " more" : "");
  report(problem, "message", text);
}
