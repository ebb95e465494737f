// Where the time of a step went, measured beside predicted.
#pragma once

#include <string>
#include <vector>

#include "penstock/schedule/simulate.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// One rank's share of a step, in milliseconds. The parts sum to `total`.
struct RankAccount {
  double total = 0;          // the step's makespan, the same for every rank
  double compute = 0;        // F, B, I, W
  double update = 0;         // REDUCE, NORM, STEP
  double communication = 0;  // handing messages over
  double wait_warmup = 0;    // idle before the rank's first compute word
  double wait_steady = 0;    // idle between its first and last compute word
  double wait_drain = 0;     // idle after its last compute word
  double other = 0;          // the executor's own work and what the clock missed
  double waiting() const { return wait_warmup + wait_steady + wait_drain; }
};

struct Account {
  std::uint64_t step = 0;               // the step shown: the median one of those kept
  std::vector<RankAccount> ranks;       // by world rank
  double measured_ms = 0;               // makespan of that step
  double predicted_ms = 0;              // simulated from the medians of this run's own instruction times
  double bubble_measured = 0;           // idle share of rank time in the makespan (compute and update are busy)
  double bubble_predicted = 0;
  double bubble_span_measured = 0;      // the same with the span as the cost
  double bubble_span_predicted = 0;
};

/// The median time of each stage's F, B (or I and W) and STEP, and of a message, over the kept steps. B is given as
/// input_grad where it is not split. Milliseconds. Throws DataError when the trace is empty.
Costs measured_costs(const Trace& trace);

/// Throws DataError when the trace holds no complete step.
Account account(const Trace& trace);

/// The account as a table for people, ending with predicted and measured step time and bubble.
std::string to_table(const Account& account);

}  // namespace penstock
