#include "rx_project.h"

#include "rx_json.h"

#include <simdjson.h>
#include <string.h>

#include <new>
#include <utility>

#include "rx_json_text.h"

using namespace simdjson;

namespace rx_json {

bool read_scalar(const char *start, const char *end, rx_value *out) {
  switch (*start) {
    case '"': {
      if (end - start < 2 || end[-1] != '"') return false;
      const size_t length = static_cast<size_t>(end - start) - 2;
      const bool escaped = memchr(start + 1, '\\', length) != nullptr;
      *out = make(RX_STRING, reinterpret_cast<const uint8_t *>(start) + 1, length, escaped ? RX_ESCAPED : 0);
      return true;
    }
    case 't':
      if (end - start != 4 || memcmp(start, "true", 4) != 0) return false;
      *out = make(RX_BOOL, uint64_t{1});
      return true;
    case 'f':
      if (end - start != 5 || memcmp(start, "false", 5) != 0) return false;
      *out = make(RX_BOOL, uint64_t{0});
      return true;
    case 'n':
      if (end - start != 4 || memcmp(start, "null", 4) != 0) return false;
      *out = make(RX_NULL, uint64_t{0});
      return true;
    default: {
      // Whole numbers of up to 18 digits, which most numbers are.
      const char *at = *start == '-' ? start + 1 : start;
      if (end - at > 18 || end == at || *at < '1' || *at > '9') return rx_json_number(start, static_cast<size_t>(end - start), out);
      int64_t number = 0;
      for (; at < end; at++) {
        if (*at < '0' || *at > '9') return rx_json_number(start, static_cast<size_t>(end - start), out);
        number = number * 10 + (*at - '0');
      }
      *out = make(RX_INT, static_cast<uint64_t>(*start == '-' ? -number : number));
      return true;
    }
  }
}

}  // namespace rx_json

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

rx_value text_value(rx_kind kind, const char *start, size_t length, uint8_t flags) {
  rx_value value{};
  value.payload = reinterpret_cast<uint64_t>(start);
  value.length = static_cast<uint32_t>(length);
  value.kind = kind;
  value.flags = flags;
  return value;
}

// Whether the raw key (the inside of a literal) means `key`.
bool key_equals(const char *raw, size_t raw_length, bool escaped, const char *key, size_t length) {
  if (!escaped) return raw_length == length && memcmp(raw, key, length) == 0;
  if (raw_length > 4096 || raw_length < length) return false;
  char buffer[4096];
  const size_t unescaped = rx_json_unescape(raw, raw_length, buffer);
  return unescaped == length && memcmp(buffer, key, length) == 0;
}

error_code fill_value(const rx_path_node *nodes, const rx_path_node &node, ondemand::value value, rx_value *slots);

error_code fill_object(
  const rx_path_node *nodes, const rx_path_node &parent, ondemand::object &object, rx_value *slots) {
  const rx_path_node *children = nodes + parent.first_child;
  const int count = parent.child_count;
  int left = count;
  uint64_t seen = 0;
  for (auto item : object) {
    ondemand::field field;
    SIMDJSON_TRY(std::move(item).get(field));
    const char *raw = field.key().raw();
    const char *end = raw;
    bool escaped = false;
    while (*end != '"') {
      if (*end == '\\') {
        escaped = true;
        end++;
      }
      end++;
    }
    const size_t raw_length = static_cast<size_t>(end - raw);
    for (int i = 0; i < count; i++) {
      const rx_path_node &child = children[i];
      if (i < 64 && (seen >> i & 1)) continue;
      if (!key_equals(raw, raw_length, escaped, child.key, child.key_length)) continue;
      if (i >= 64 && child.slot >= 0 && slots[child.slot].kind != RX_ABSENT) break;
      if (i < 64) seen |= uint64_t{1} << i;
      SIMDJSON_TRY(fill_value(nodes, child, field.value(), slots));
      left--;
      break;
    }
    if (left == 0) break;
  }
  return SUCCESS;
}

error_code fill_value(
  const rx_path_node *nodes, const rx_path_node &node, ondemand::value value, rx_value *slots) {
  std::string_view token;
  token = value.raw_json_token();
  const char *start = token.data();
  if (*start == '{') {
    ondemand::object object;
    SIMDJSON_TRY(value.get_object().get(object));
    if (node.slot >= 0) {
      if (node.presence_only) {
        slots[node.slot] = text_value(RX_JSON_MAP, start, 0, 0);
      } else {
        std::string_view text;
        SIMDJSON_TRY(object.raw_json().get(text));
        size_t length = text.size();
        while (length > 0 && is_space(text[length - 1])) length--;
        slots[node.slot] = text_value(RX_JSON_MAP, text.data(), length, 0);
        if (node.child_count > 0) SIMDJSON_TRY(object.reset().error());
      }
    }
    if (node.child_count > 0) return fill_object(nodes, node, object, slots);
    return SUCCESS;
  }
  if (*start == '[') {
    if (node.slot >= 0) {
      if (node.presence_only) {
        slots[node.slot] = text_value(RX_JSON_LIST, start, 0, 0);
      } else {
        ondemand::array array;
        SIMDJSON_TRY(value.get_array().get(array));
        std::string_view text;
        SIMDJSON_TRY(array.raw_json().get(text));
        size_t length = text.size();
        while (length > 0 && is_space(text[length - 1])) length--;
        slots[node.slot] = text_value(RX_JSON_LIST, text.data(), length, 0);
      }
    }
    return SUCCESS;
  }
  if (node.slot < 0) return SUCCESS;
  size_t length = token.size();
  while (length > 0 && is_space(start[length - 1])) length--;
  if (length == 0 || !rx_json::read_scalar(start, start + length, &slots[node.slot])) return TAPE_ERROR;
  return SUCCESS;
}

}  // namespace

struct rx_projector {
  ondemand::parser parser;
};

extern "C" {

rx_projector *rx_projector_create(void) { return new rx_projector; }

void rx_projector_free(rx_projector *projector) { delete projector; }

long rx_project(
  rx_projector *projector, const rx_path_node *nodes, int32_t root, const char *json, size_t length,
  rx_value *slots) {
  ondemand::document document;
  auto error = projector->parser.iterate(json, length, length + SIMDJSON_PADDING).get(document);
  if (error) return 0;
  ondemand::object object;
  error = document.get_object().get(object);
  if (!error) error = fill_object(nodes, nodes[root], object, slots);
  if (!error) return -1;
  const char *at = nullptr;
  if (document.current_location().get(at) || at < json || at > json + length) return 0;
  return at - json;
}

long rx_find(const char *text, size_t length, const char *needle, size_t needle_length) {
  const void *hit = memmem(text, length, needle, needle_length);
  return hit ? static_cast<const char *>(hit) - text : -1;
}

}  // extern "C"
