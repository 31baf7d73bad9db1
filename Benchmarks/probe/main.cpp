// What the machine can do: the work of the pipelines next to this, as plain loops over the same simdjson On-Demand, on
// one thread. `probe WORK INPUT OUTPUT`.
#include <fcntl.h>

#include <cstdio>

#include "probe.hpp"

namespace {

const struct {
  std::string_view name;
  probe::work work;
} all[] = {
  {"filter", probe::filter}, {"filters", probe::filters}, {"changes", probe::changes}, {"distinct", probe::distinct},
  {"lines", probe::lines}, {"map", probe::map}, {"set", probe::set}, {"serialise", probe::serialise},
  {"canonical", probe::canonical},
  {"groups", probe::groups}, {"windows", probe::windows},
  {"statistics", probe::statistics}, {"join", probe::join}, {"access", probe::access}, {"ints", probe::ints}, {"copies", probe::copies},
  {"line-ends", probe::line_ends}, {"one-field", probe::one_field}, {"reads", probe::reads},
  {"writes", probe::writes},
};

}  // namespace

int main(int argc, char **argv) {
  probe::work work = nullptr;
  for (const auto &known : all) {
    if (argc == 4 && known.name == argv[1]) work = known.work;
  }
  if (work == nullptr) {
    fprintf(stderr, "usage: probe WORK INPUT OUTPUT, WORK being one of");
    for (const auto &known : all) fprintf(stderr, " %s", known.name.data());
    fprintf(stderr, "\n");
    return 64;
  }
  const int input = open(argv[2], O_RDONLY);
  const int file = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0640);
  if (input < 0 || file < 0) {
    perror("probe");
    return 66;
  }
  probe::output out{file};
  work(input, out);
  out.flush();
  if (getenv("PROBE_VERBOSE")) {
    fprintf(stderr, "simdjson %s, stage 1 %s, On-Demand compiled for %s\n",
      SIMDJSON_STRINGIFY(SIMDJSON_VERSION), simdjson::get_active_implementation()->name().c_str(),
      simdjson::builtin_implementation()->name().c_str());
  }
  return 0;
}
