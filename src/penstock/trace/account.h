// Accounts for the time of a step, measured and predicted. Pure functions: any thread may call them.
//
// A step counts if every rank ran exactly the compute instructions of the trace's schedule in it, which excludes
// shorter last batches and evaluation passes. If several steps count, the first one is left out, because it warms
// caches. Times of different ranks are compared, so they must come from the clock of one host.
//
// Idle time of a rank belongs to one of three phases, which follow from the rank's own instructions:
//
//   steady   if F's and gradients alternate (1F1B), from the first B (or I) to the last F:  F F [B F B F] B B
//            otherwise from the first to the last F, and from the first to the last B or I:  [F F F F] [B B B B]
//   warm-up  before and between: the pipeline fills, or the first gradient has not arrived
//   drain    after the steady phase
//
// If all stages take the same time, no rank idles in the steady phase of GPipe or 1F1B.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/schedule/simulate.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// One rank's share of a step, in milliseconds. The parts sum to `total`.
struct RankAccount {
  std::vector<StageId> stages;
  double total = 0;            // the step's makespan, the same for every rank
  double compute = 0;          // F, B, I, W
  double update = 0;           // STEP
  double synchronisation = 0;  // REDUCE and NORM, and waits for them
  double communication = 0;    // handing messages over
  double wait_message = 0;     // waits while the message was in transit, in any phase
  double wait_late = 0;        // waits after the message had arrived, until the rank ran again, in any phase
  double wait_warmup = 0;      // other waits in the warm-up phase
  double wait_imbalance = 0;   // other waits in the steady phase: the peer was still computing
  double wait_drain = 0;       // other waits in the drain phase
  double other = 0;            // gaps between spans: the executor's own work
  double waiting() const { return wait_message + wait_late + wait_warmup + wait_imbalance + wait_drain; }
};

struct Account {
  std::uint64_t step = 0;  // the step of the account: the one of median makespan
  std::size_t steps = 0;   // the number of steps that count
  double shortest_ms = 0;  // the smallest and the largest makespan of these
  double longest_ms = 0;
  std::vector<RankAccount> ranks;  // by world rank
  double measured_ms = 0;          // the makespan of that step
  /// The time from the end of a step on the last rank to the start of the next step on the first rank; 0 if the steps
  /// overlap. The median over the steps that count; none if no two of them are consecutive.
  std::optional<double> between_steps_ms;
  double predicted_ms = 0;  // the simulated makespan with measured_costs()
  /// The makespan that the planner predicted before the run, from the trace's setting `planned_ms`; none without a plan
  /// in milliseconds.
  std::optional<double> planned_ms;
  double bubble_measured = 0;  // the idle share of rank time in the makespan; compute and update are busy
  double bubble_predicted = 0;
  double bubble_span_measured = 0;  // the same with the span as the cost
  double bubble_span_predicted = 0;
};

/// The measured times of the instructions of each stage, in milliseconds: for F, B, I and W the mean within a step and
/// the median over the steps that count; the median time of the update (REDUCE, NORM and STEP together) and of a
/// message. A B that is not split counts as input_grad, with weight_grad 0; a fused W counts per micro-batch; messages
/// whose transit time is unknown do not count. Throws DataError if no step counts.
StageCosts measured_costs(const Trace& trace);

/// The account of the step of median makespan. The makespan is the time from the earliest begin of a compute
/// instruction to the latest end of a compute or update instruction over all world ranks. The prediction is
/// simulate(trace.schedule, measured_costs(trace)). Throws DataError if no step counts.
Account account(const Trace& trace);

/// The name of the trace's setting with Account::planned_ms, as text.
inline constexpr const char* planned_ms_setting = "planned_ms";

/// The account as a table for people, followed by the time between steps, and by step time and bubble, measured and
/// predicted.
std::string to_table(const Account& account);

}  // namespace penstock
