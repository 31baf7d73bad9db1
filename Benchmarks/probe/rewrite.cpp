// Probes that write every line, copied with changes or rebuilt.
#include "probe.hpp"

namespace probe {

using namespace simdjson;

void lines(int input, output &out) {
  each_line(input, [&](const char *line, size_t length) { out.add(line, length); });
}

/// An object of four fields: two copied, one computed, one concatenated from two texts.
void map(int input, output &out) {
  each_document(input, [&](auto &document, std::string_view) {
    std::string_view id, service, method, path;
    ondemand::object request;
    double latency;
    if (document.find_field("id").raw_json_token().get(id)) return;
    if (document.find_field("service").raw_json_token().get(service)) return;
    if (document.find_field("request").get_object().get(request)) return;
    if (request.find_field("method").get_string().get(method)) return;
    if (request.find_field("path").get_string().get(path)) return;
    if (document.find_field("latency").get_double().get(latency)) return;
    out.add("{\"id\":");
    out.add(id);
    out.add(",\"service\":");
    out.add(service);
    out.add(",\"us\":");
    out.add_double(latency * 1000);
    out.add(",\"what\":\"");
    out.add_escaped(method);
    out.add(' ');
    out.add_escaped(path);
    out.add("\"}\n");
  });
}

/// Every line with its `status` increased by one, the rest copied unchanged: what a program can do that knows in
/// advance what it will change.
void set(int input, output &out) {
  each_document(input, [&](auto &document, std::string_view line) {
    std::string_view token;
    int64_t status;
    ondemand::value value;
    if (document.find_field("status").get(value)) return;
    token = value.raw_json_token();
    if (value.get(status)) return;
    const size_t start = token.data() - line.data();
    size_t length = token.size();
    while (length > 0 && static_cast<unsigned char>(token[length - 1]) <= ' ') length--;
    out.add(line.substr(0, start));
    out.add_number(status + 1);
    out.add(line.substr(start + length));
  });
}

namespace {

bool write(ondemand::value value, output &out) {
  ondemand::json_type type;
  if (value.type().get(type)) return false;
  switch (type) {
    case ondemand::json_type::object: {
      out.add('{');
      bool is_first = true;
      ondemand::object object;
      if (value.get(object)) return false;
      for (auto member : object) {
        std::string_view key;
        if (member.unescaped_key().get(key)) return false;
        out.add(is_first ? "\"" : ",\"");
        is_first = false;
        out.add_escaped(key);
        out.add("\":");
        if (!write(member.value(), out)) return false;
      }
      out.add('}');
      return true;
    }
    case ondemand::json_type::array: {
      out.add('[');
      bool is_first = true;
      ondemand::array array;
      if (value.get(array)) return false;
      for (auto element : array) {
        if (!is_first) out.add(',');
        is_first = false;
        ondemand::value inner;
        if (element.get(inner) || !write(inner, out)) return false;
      }
      out.add(']');
      return true;
    }
    case ondemand::json_type::string: {
      std::string_view text;
      if (value.get(text)) return false;
      out.add('"');
      out.add_escaped(text);
      out.add('"');
      return true;
    }
    case ondemand::json_type::number: {
      ondemand::number number;
      if (value.get_number().get(number)) return false;
      if (number.is_double()) {
        out.add_double(number.get_double());
      } else if (number.is_uint64()) {
        out.add_number(number.get_uint64());
      } else {
        out.add_number(number.get_int64());
      }
      return true;
    }
    case ondemand::json_type::boolean: {
      bool truth;
      if (value.get(truth)) return false;
      out.add(truth ? "true" : "false");
      return true;
    }
    case ondemand::json_type::null:
      out.add("null");
      return true;
  }
  return false;
}

}  // namespace

namespace {

/// Parses every event, with its strings unescaped and its numbers read, and writes it again.
template <bool increases>
void write_all(int input, output &out) {
  each_document(input, [&](auto &document, std::string_view) {
    ondemand::object object;
    if (document.get_object().get(object)) return;
    bool is_first = true;
    out.add('{');
    for (auto member : object) {
      std::string_view key;
      ondemand::value value;
      if (member.unescaped_key().get(key) || member.value().get(value)) return;
      out.add(is_first ? "\"" : ",\"");
      is_first = false;
      out.add_escaped(key);
      out.add("\":");
      if (increases && key == "status") {
        int64_t status;
        if (value.get(status)) return;
        out.add_number(status + 1);
      } else if (!write(value, out)) {
        return;
      }
    }
    out.add("}\n");
  });
}

}  // namespace

/// Like `set`, but everything is parsed and written again.
void serialise(int input, output &out) { write_all<true>(input, out); }

/// The events in a canonical form, to compare outputs that differ only in the form of strings and numbers.
void canonical(int input, output &out) { write_all<false>(input, out); }

/// The fields of lines in the combined log format, all as texts, found by code written for this format only.
void access(int input, output &out) {
  each_line(input, [&](const char *line, size_t length) {
    const std::string_view text(line, length - 1);
    size_t at = 0;
    const auto up_to = [&](char end) {
      const size_t found = text.find(end, at);
      const std::string_view part = text.substr(at, found - at);
      at = found + 1;
      return part;
    };
    const auto add = [&](std::string_view key, std::string_view value) {
      out.add(key);
      out.add_escaped(value);
      out.add('"');
    };
    add("{\"clientip\":\"", up_to(' '));
    add(",\"ident\":\"", up_to(' '));
    add(",\"auth\":\"", up_to(' '));
    at++;
    add(",\"timestamp\":\"", up_to(']'));
    at += 2;
    add(",\"verb\":\"", up_to(' '));
    add(",\"request\":\"", up_to(' '));
    at += 5;
    add(",\"httpversion\":\"", up_to('"'));
    at++;
    add(",\"response\":\"", up_to(' '));
    add(",\"bytes\":\"", up_to(' '));
    const auto quoted = [&] {
      const size_t start = at;
      at = text.find('"', at + 1) + 1;
      return text.substr(start, at - start);
    };
    add(",\"referrer\":\"", quoted());
    at++;
    add(",\"agent\":\"", quoted());
    out.add("}\n");
  });
}

}  // namespace probe
