// Puts the W's of a 1F1B-like schedule where its ranks would idle: the inner step of zb-auto. Inside this module only.
#pragma once

#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

struct StageCosts {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;

  double busy() const { return forward + input_grad + weight_grad; }  // per micro-batch
};

/// What a rank may hold: a micro-batch counts 1 from its F to its I, and `weight_share` from there to its W.
struct ActivationCap {
  double limit = 1;
  double weight_share = 1;
};

/// The work of one step, one stage per rank.
struct GapProblem {
  std::vector<StageCosts> stages;
  double message = 0;
  int micro_batches = 1;
  ActivationCap cap;
};

/// The choices that the work leaves open. A gap as long as W is always filled; these say what becomes of shorter ones,
/// where a W makes the next instruction late. An allowance is the time that the slowest rank may idle before it fills short
/// gaps too; a rank with less to do may idle for so much longer.
struct GapPolicy {
  std::vector<int> warm_up;    // per stage: forwards before the first I; never more on a later stage
  double idle_on_the_way = 0;  // allowance as long as forwards are left
  double idle_at_the_end = 0;  // allowance when only I's and W's are left
  int punctual = 0;            // the last so many I's to which that second allowance applies; all others may be late
};

struct GapOutcome {
  double span = 0;      // what `simulate` would say of the orders
  double makespan = 0;  // the same
  double held = 0;      // the most that a rank holds, as the cap counts
};

/// Lets every stage run its instructions as early as it can: `warm_up` forwards, then I and F in turns, then the I's; W in
/// gaps, before an F that finds no memory, and at the end. The orders are written where asked for. Linear in the instructions.
GapOutcome fill_gaps(const GapProblem& problem, const GapPolicy& policy, std::vector<Order>* orders = nullptr);

}  // namespace penstock
