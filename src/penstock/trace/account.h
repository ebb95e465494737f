// Where the time of a step went, measured beside predicted. Functions of a plain value: any thread may call them.
//
// A step counts when every rank ran exactly the compute instructions of the trace's schedule in it (so shorter last batches
// and evaluation passes do not), and the first such step is left out if there are more: it warms caches. Times of
// different ranks are compared, so they must come from one host's clock.
//
// A rank that idles is in one of three phases, told from its own instructions:
//
//   steady   from its first B (or I) to its last F, where they alternate (1F1B):   F F [B F B F] B B
//            otherwise among its F's and among its gradients, each by themselves:  [F F F F] [B B B B]
//   warm-up  before and between: the pipeline fills, the first gradient is on its way back
//   drain    behind
//
// Of equally fast stages nobody idles in the steady phase of GPipe or 1F1B.
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
  double wait_message = 0;     // the end of a wait, while the message was on its way already, in any phase
  double wait_late = 0;        // woken late: the message was there, and the rank did not run yet, in any phase
  double wait_warmup = 0;      // idle in the warm-up phase
  double wait_imbalance = 0;   // idle in the steady phase: the peer was still computing
  double wait_drain = 0;       // idle in the drain phase
  double other = 0;            // the executor's own work and what the clock missed
  double waiting() const { return wait_message + wait_late + wait_warmup + wait_imbalance + wait_drain; }
};

struct Account {
  std::uint64_t step = 0;          // the step shown: the median one of those kept
  std::vector<RankAccount> ranks;  // by world rank
  double measured_ms = 0;          // makespan of that step
  /// From the last rank's end of a step to the first one's begin of the next, when nobody had anything to do; 0 where
  /// steps overlap. The median over steps that count; none where no two of them follow each other.
  std::optional<double> between_steps_ms;
  double predicted_ms = 0;  // simulated again, with the times that this run's own instructions took
  /// The step that the planner expected before the run: the trace's setting `planned_ms`; none where no plan was made,
  /// or one in another unit.
  std::optional<double> planned_ms;
  double bubble_measured = 0;  // idle share of rank time in the makespan (compute and update are busy)
  double bubble_predicted = 0;
  double bubble_span_measured = 0;  // the same with the span as the cost
  double bubble_span_predicted = 0;
};

/// What each stage's F, B (or I and W) takes, the median over the steps that count of the mean within a step, and the
/// median time of its update (REDUCE, NORM and STEP together) and of a message. B is given as input_grad where it is
/// not split; a fused W counts per micro-batch; a message whose time on the way is unknown does not count.
/// Milliseconds. Throws DataError when no step counts.
Costs measured_costs(const Trace& trace);

/// The account of the step of median makespan: earliest begin of a compute instruction to latest end of a compute or update
/// instruction, over all world ranks. The prediction is simulate(trace.schedule, measured_costs(trace)). Throws DataError
/// when no step counts.
Account account(const Trace& trace);

/// The trace's setting that carries Account::planned_ms, as text.
inline constexpr const char* planned_ms_setting = "planned_ms";

/// The account as a table for people, ending with the time between steps, and step time and bubble, predicted and
/// measured.
std::string to_table(const Account& account);

}  // namespace penstock
