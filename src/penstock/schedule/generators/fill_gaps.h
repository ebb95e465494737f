// Places the W's of a 1F1B-like schedule in the idle times of its ranks: the inner step of zb-auto, and the policies
// that it tries. Inside this module only.
#pragma once

#include <vector>

#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// Sums of times and shares that differ by less than this share are equal but for rounding.
constexpr double rounding_error = 1e-9;

/// The activations that each rank may hold: a micro-batch counts 1 from its F to its I, and `weight_share` from there
/// to its W.
struct ActivationCap {
  std::vector<double> limits;  // per stage, at least 1
  double weight_share = 1;
};

/// The work of one step, one stage per rank. The heuristic counts no time that caching saves.
struct GapProblem {
  InstructionTimes times;
  ActivationCap cap;
};

/// The parameters of the heuristic. A gap as long as W is always filled. Filling a shorter gap delays the next
/// instruction; the policy decides which of them are filled. An allowance is the time that the busiest rank may idle
/// before it fills short gaps too; the allowance of a rank with less work is larger by the difference.
struct GapPolicy {
  std::vector<int> warm_up;    // per stage: forwards before the first I; never more on a later stage
  double idle_on_the_way = 0;  // the allowance while forwards remain
  double idle_at_the_end = 0;  // the allowance when only I's and W's remain
  int punctual = 0;            // the second allowance applies to so many last I's; earlier I's are always delayed
};

struct GapOutcome {
  double span = 0;      // equal to Simulation::span of the orders
  double makespan = 0;  // equal to Simulation::makespan
  double held = 0;      // the peak of a rank's activations, counted as ActivationCap
};

/// Runs the instructions of every stage as early as possible: `warm_up` forwards, then I and F alternately, then the
/// remaining I's; W's in gaps, before an F for which there is no memory, and at the end. Appends the instructions to
/// `orders`, which has one order per stage, unless it is null. Linear in the number of instructions.
GapOutcome fill_gaps(const GapProblem& problem, const GapPolicy& policy, std::vector<Order>* orders = nullptr);

/// The policies for `problem`: every warm-up with every treatment of short gaps, some hundreds in all.
///
///   warm-up      grows from the last stage to the first: by 1, 1.25, 1.5, 1.75 or 2 forwards per stage, by as many
///                forwards as fit in before the first gradient arrives, or evenly up to the number that fills the
///                memory; rounded down, to the nearest or up. The memory limits it on every stage
///   short gaps   while forwards remain: an allowance of 0, 1 or 1.5 times the gap that this warm-up leaves before the
///                first I of the worst stage. After that: the same allowances, an unlimited one, or one that is
///                unlimited only for the last 1, 2 or 4 I's
///
/// The best warm-up depends on costs and memory. The best allowance depends on whether idle time or a late last
/// gradient determines the span. For more than 2^17 instructions there are at most 36 policies: those that are best
/// most often.
std::vector<GapPolicy> gap_policies(const GapProblem& problem);

}  // namespace penstock
