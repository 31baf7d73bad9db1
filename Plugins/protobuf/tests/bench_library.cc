// Benchmarks of libprotobuf for comparison with the plugin, over a file of delimited messages: with the generated
// class, and with dynamic messages.
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <memory>
#include <vector>

#include "bench.pb.h"

static google::protobuf::Message *fresh() {
  static auto &factory = *new google::protobuf::DynamicMessageFactory; // must outlive the messages
  static const bool is_dynamic = getenv("DYNAMIC") != nullptr;
  static const google::protobuf::Message *prototype = factory.GetPrototype(bench::Reading::descriptor());
  if (is_dynamic) return prototype->New();
  return new bench::Reading;
}

extern "C" int library_decode(const char *bytes, size_t count) {
  google::protobuf::io::ArrayInputStream input(bytes, (int)count);
  google::protobuf::io::CodedInputStream coded(&input);
  coded.SetTotalBytesLimit(1 << 30);
  bool is_end = false;
  while (!is_end) {
    std::unique_ptr<google::protobuf::Message> one(fresh());
    if (!google::protobuf::util::ParseDelimitedFromCodedStream(one.get(), &coded, &is_end) && !is_end) return 0;
  }
  return 1;
}

static std::vector<std::unique_ptr<google::protobuf::Message>> all_messages;

extern "C" void library_prepare(const char *bytes, size_t count) {
  google::protobuf::io::ArrayInputStream input(bytes, (int)count);
  google::protobuf::io::CodedInputStream coded(&input);
  bool is_end = false;
  while (true) {
    std::unique_ptr<google::protobuf::Message> one(fresh());
    if (!google::protobuf::util::ParseDelimitedFromCodedStream(one.get(), &coded, &is_end)) return;
    all_messages.push_back(std::move(one));
  }
}

extern "C" size_t library_encode(void) {
  size_t all = 0;
  for (auto &one : all_messages) all += one->SerializeAsString().size();
  return all;
}
