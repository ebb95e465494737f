// What would make the steps of a traced run faster, and by how much: computed by simulation with the times of the run's
// own instructions, not guessed. Functions of plain values: any thread may call them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/trace/recorder.h"

namespace penstock {

enum class RecommendationKind {
  schedule,        // another schedule, for the same ranks and micro-batches
  fused,           // one W for the step in place of one per micro-batch
  partition,       // other layers for the stages: the best partition that the planner finds for the same instructions
  even_partition,  // where nothing is known of layers: stages that all take the same
  messages,        // messages that take no time: a bound
  update,          // an optimiser's step that takes no time: a bound
  loader,          // steps that begin when the one before them has ended
};

/// "schedule", "fused", "cut", "even_cut", "messages", "update", "loader".
const char* to_string(RecommendationKind kind);

struct Recommendation {
  RecommendationKind kind = RecommendationKind::schedule;
  double step_ms = 0;    // what a step would take with it, and the time to the next one
  double saved = 0;      // the share of Advice::step_ms; not above 0 where it does not help
  std::string sentence;  // without a full stop
};

struct Advice {
  /// What a step takes: simulated with what the run's own instructions took, and the time to the next step.
  double step_ms = 0;
  std::vector<Recommendation> recommendations;  // at most one of each kind, the largest saving first
  std::string sentence;                         // the best of them, or that none saves enough
};

/// Recommendations that save less than this are not advised.
inline constexpr double least_saving = 0.02;

/// `costs` (in any unit, for any size of micro-batch) tell layers apart; without them, those that the trace's settings
/// carry are taken. Without either, partitions, fused W's and schedules that split a B that the run did not split cannot be
/// validated, and are not among the recommendations. Where the costs have a memory cap, what exceeds it is no recommendation.
///
/// Throws DataError when no step of the trace counts (account()), for settings that are not of their form and for
/// layers that are not those of the costs; ConfigError for `costs` where the trace does not say which layers its stages
/// have.
Advice advise(const Trace& trace, const std::optional<LayerCosts>& costs = {});

}  // namespace penstock
