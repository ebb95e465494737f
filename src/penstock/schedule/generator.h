// A schedule generator: a function from a shape to compute instructions, and the properties that its source states.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/instruction.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

struct ScheduleShape {
  int ranks = 1;          // p
  int micro_batches = 1;  // m
  int chunks = 1;         // v: stages per rank
};

/// The input of generators that adapt to a machine. The other generators ignore it.
struct Tuning {
  StageCosts costs;  // per stage
  /// The upper bound of the live activations per rank, counted as in Simulation::peak_activations. 1 time 1F1B:
  /// min(m, p); bytes: those that fit with the `costs`' activation_bytes, but at least one micro-batch.
  MemoryLimit memory_limit = TimesOf1F1B{1};
};

/// One way to order the instructions of a step, and its properties.
struct ScheduleGenerator {
  std::string_view name;     // "1f1b"
  std::string_view summary;  // one line for --help, with its source
  /// Call generate() instead, which checks the shape and the tuning before, and sets the name.
  Schedule (*generate)(const ScheduleShape&, const Tuning&);
  /// Per rank, the upper bound of live micro-batches; a micro-batch counts once for each chunk.
  std::vector<int> (*activation_bound)(const ScheduleShape&, const Tuning&);
  bool fits_limit = false;  // true: the schedule adapts to Tuning; false: it depends only on the shape
  int default_chunks = 1;
  int min_chunks = 1;
  int max_chunks = 1;
  /// False: several pipelines share the ranks (Schedule::more_pipelines). It can be validated, simulated, drawn and
  /// written, but a pipeline cannot execute it, and the planner leaves it out.
  bool single_owner = true;
  /// The formula of the source for the idle time of a rank on the span, at C = 0, equal stages and m >= 2p; null if the
  /// source states none. The costs are of one stage.
  double (*bubble_time)(const ScheduleShape&, const StageCosts&) = nullptr;
  /// The formulas as text, for tables: per rank, in the symbols p, v, m, F, I, W. Here F, I and W are those of a whole
  /// rank, the sums over its chunks.
  std::string_view bubble_formula = "";
  std::string_view memory_formula = "";   // live activations, in micro-batches of a whole rank
  std::string_view message_formula = "";  // messages of all ranks in a step
};

}  // namespace penstock
