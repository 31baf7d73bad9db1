#include "rx_re2.h"

#include <re2/re2.h>

#include <memory>
#include <string>
#include <vector>

struct rx_re2 {
  std::unique_ptr<RE2> re;
  std::vector<std::string> names;  // by group number; empty: unnamed
  long error_offset = -1;
};

extern "C" {

rx_re2 *rx_re2_compile(const char *pattern, size_t length) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(8 << 20);
  auto *self = new rx_re2;
  const re2::StringPiece text(pattern, length);
  self->re = std::make_unique<RE2>(text, options);
  if (self->re->ok()) {
    self->names.resize(self->re->NumberOfCapturingGroups() + 1);
    for (const auto &entry : self->re->CapturingGroupNames()) self->names[entry.first] = entry.second;
  } else {
    const auto at = std::string(pattern, length).find(self->re->error_arg());
    if (!self->re->error_arg().empty() && at != std::string::npos) self->error_offset = static_cast<long>(at);
  }
  return self;
}

void rx_re2_free(rx_re2 *self) { delete self; }

const char *rx_re2_error(const rx_re2 *self, long *offset) {
  if (self->re->ok()) return nullptr;
  if (offset) *offset = self->error_offset;
  return self->re->error().c_str();
}

bool rx_re2_matches(const rx_re2 *self, const char *text, size_t length) {
  return RE2::PartialMatch(re2::StringPiece(text, length), *self->re);
}

int rx_re2_group_count(const rx_re2 *self) { return self->re->NumberOfCapturingGroups(); }

const char *rx_re2_group_name(const rx_re2 *self, int index) {
  if (index < 1 || index >= static_cast<int>(self->names.size()) || self->names[index].empty()) return nullptr;
  return self->names[index].c_str();
}

bool rx_re2_find(
  const rx_re2 *self, const char *text, size_t length, size_t start, int anchored, long *pairs, int count) {
  constexpr int inline_groups = 16;
  re2::StringPiece fixed[inline_groups];
  std::vector<re2::StringPiece> heap;
  re2::StringPiece *groups = fixed;
  if (count > inline_groups) {
    heap.resize(count);
    groups = heap.data();
  }
  const auto anchor = anchored == 2 ? RE2::ANCHOR_BOTH : anchored == 1 ? RE2::ANCHOR_START : RE2::UNANCHORED;
  if (!self->re->Match(re2::StringPiece(text, length), start, length, anchor, groups, count)) return false;
  for (int i = 0; i < count; i++) {
    const bool set = groups[i].data() != nullptr;
    pairs[2 * i] = set ? groups[i].data() - text : -1;
    pairs[2 * i + 1] = set ? pairs[2 * i] + static_cast<long>(groups[i].size()) : -1;
  }
  return true;
}

}  // extern "C"
