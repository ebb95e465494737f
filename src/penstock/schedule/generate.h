// Generators: who computes what, in which order. They write compute words only; `lower` adds the rest.
// Every one is valid for every p >= 1 and m >= 1.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "penstock/schedule/order.h"

namespace penstock {

struct ScheduleShape {
  int ranks = 1;          // p
  int micro_batches = 1;  // m
  int chunks = 1;         // v, stages per rank
};

struct Generator {
  std::string_view name;     // "1f1b"
  std::string_view summary;  // one line for --help, with its source
  Schedule (*generate)(const ScheduleShape&);
  /// The most micro-batches whose activations a rank holds at once; a chunk counts 1 (of v). By rank.
  std::vector<int> (*activation_bound)(const ScheduleShape&);
  int default_chunks = 1;
  int max_chunks = 1;        // a generator for v = 1 refuses more, with a reason
};

/// All generators, in the order in which --help lists them.
std::span<const Generator> generators();
/// Throws ConfigError that lists the known names.
const Generator& find_generator(std::string_view name);
/// find_generator(name).generate(shape), after checking the shape (ConfigError).
Schedule generate(std::string_view name, const ScheduleShape& shape);

Schedule sequential(const ScheduleShape& shape);    // generate_sequential.cc
Schedule gpipe(const ScheduleShape& shape);         // generate_gpipe.cc
Schedule one_f_one_b(const ScheduleShape& shape);   // generate_1f1b.cc
Schedule forward_only(const ScheduleShape& shape);  // generate_forward_only.cc

}  // namespace penstock
