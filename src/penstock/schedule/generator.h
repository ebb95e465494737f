// What a generator of schedules is: a function from a shape to compute instructions, and what its source promises.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/costs.h"
#include "penstock/schedule/order.h"

namespace penstock {

struct ScheduleShape {
  int ranks = 1;          // p
  int micro_batches = 1;  // m
  int chunks = 1;         // v, stages per rank
};

/// What generators that fit a schedule to a machine go by; the others do not look at it.
struct Tuning {
  Costs costs;  // per stage
  /// Most live activations per rank, as Simulation::peak_activations counts them, in units of 1F1B's: its min(m, p).
  double memory_limit = 1;
};

/// One way to order the work, and what it promises.
struct Generator {
  std::string_view name;     // "1f1b"
  std::string_view summary;  // one line for --help, with its source
  Schedule (*generate)(const ScheduleShape&, const Tuning&);
  /// The most micro-batches whose activations a rank holds at once; a chunk counts 1 (of v). By rank.
  std::vector<int> (*activation_bound)(const ScheduleShape&, const Tuning&);
  bool fits_limit = false;  // makes its schedule fit Tuning::memory_limit; the others hold what they hold
  int default_chunks = 1;
  int min_chunks = 1;
  int max_chunks = 1;  // a generator for v = 1 refuses more, with a reason
  /// The source's formula for the idle time of a rank on the span, at C = 0, equal stages and m >= 2p; none where the
  /// source gives none. Costs are a stage's.
  double (*bubble_time)(const ScheduleShape&, const Costs&) = nullptr;
  /// The formulas as text, for tables: per rank, in the letters p, v, m, F, I, W (of a whole rank: all its chunks).
  std::string_view bubble_formula = "";
  std::string_view memory_formula = "";   // in micro-batches of a whole rank
  std::string_view message_formula = "";  // sent by all ranks in a step
};

}  // namespace penstock
