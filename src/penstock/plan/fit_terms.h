// Fits the terms of a step (StepTerms) to measured steps: what the times of layers do not show.
//
// The terms minimise the largest relative error over all runs, to which their mean error is added with a small weight.
// The largest, because a plan is only as good as its worst prediction; the median would ignore half of the runs, and
// two terms could fit half of a few runs exactly. The mean decides between terms that the largest error leaves open.
//
// For given orders, a simulated step is the longest path through its instructions: convex and piecewise linear in the
// terms. So the fit simulates each run for its slopes, minimises the error of the linear model exactly, moves there or
// as far in that direction as the true error falls, and repeats. Deterministic; any thread may call it.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/instruction.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// A step that was run.
struct MeasuredStep {
  Schedule schedule;    // its orders; lowered or not
  StageCosts costs;     // of its stages, without terms
  double measured = 0;  // the time of the step, in the unit of the costs
  /// Whether a rank begins the next step when its own work is done: then the span of the step is measured, and the
  /// makespan otherwise.
  bool overlaps = false;
  std::string label = {};  // for people: "1f1b, 4 ranks, m = 8"
};

/// The terms that may differ from 0.
struct FittedTerms {
  bool slowdown = true;
  bool send_share = true;
  bool per_step = true;
};

/// Parses "slowdown,per_step". Throws ConfigError, which suggests the nearest term, for other names.
FittedTerms fitted_terms_named(std::string_view text);

struct TermFit {
  StepTerms terms;
  std::vector<double> predicted;  // of each step
  std::vector<double> errors;     // of each step: predicted / measured - 1
  double median_error = 0;        // of the absolute errors
  double worst_error = 0;
  double worst_error_without = 0;     // with no terms at all
  std::vector<std::string> warnings;  // what these runs cannot decide
};

/// Fits terms that are not negative. Throws ConfigError without steps, and for a measured time that is not a positive
/// finite number; ScheduleError and ConfigError like simulate().
TermFit fit_terms(std::span<const MeasuredStep> steps, const FittedTerms& which = {});

/// The prediction for `step` with `terms`.
double predicted_step(const MeasuredStep& step, const StepTerms& terms);

/// A table with a line for each run, the terms, the median and the worst error, and the warnings.
std::string to_table(const TermFit& fit, std::span<const MeasuredStep> steps);

}  // namespace penstock
