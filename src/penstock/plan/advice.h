// Recommendations that would make the steps of a traced run faster. The saving of each is computed by a simulation with
// the measured times of the run's own instructions. Pure functions: any thread may call them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/cluster.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/trace/recorder.h"

namespace penstock {

enum class RecommendationKind {
  schedule,        // another schedule for the same ranks and micro-batches
  fused,           // one W per stage and step instead of one per micro-batch
  partition,       // the best partition that the planner finds for the same schedule
  even_partition,  // without costs of layers: stages that all take the same time; an upper bound of the saving
  messages,        // messages that take no time; an upper bound
  update,          // an optimiser's step that takes no time; an upper bound
  loader,          // steps that begin when the previous one has ended
};

/// The name in reports: "schedule", "fused", "cut", "even_cut", "messages", "update" or "loader".
const char* to_string(RecommendationKind kind);

struct Recommendation {
  RecommendationKind kind = RecommendationKind::schedule;
  double step_ms = 0;    // the predicted time of a step with it, including the time to the next step
  double saved = 0;      // the saved share of Advice::step_ms; 0 or less if it does not help
  std::string sentence;  // for people, without a full stop
};

struct Advice {
  /// The simulated time of a step with the measured times of the run's own instructions, and the time to the next step.
  double step_ms = 0;
  std::vector<Recommendation> recommendations;  // at most one of each kind, the largest saving first
  std::string sentence;                         // the best recommendation, or that none saves enough
};

/// Advice::sentence does not mention recommendations that save a smaller share of the step.
inline constexpr double least_saving = 0.02;

/// Adds the costs of layers to the settings of a trace, for advise(). Adds nothing if the trace does not name the
/// layers
/// of its stages.
void note_costs(const LayerCosts& costs, Trace& trace);

/// Recommendations for the run of `trace`. `costs` has the costs of the model's layers, in any unit and for any size of
/// micro-batch; they are scaled to the measured times. Without `costs`, those in the settings of the trace are used.
/// Without either, partitions, fused W's and schedules that split a B which the run did not split cannot be simulated,
/// and are not recommended. If the costs have a memory cap, all recommendations respect it.
///
/// With a `cluster`, on whose first devices the ranks ran, a stage on another rank takes its speed into account, and
/// messages cost what its links cost.
///
/// Throws DataError if no step of the trace counts (see account.h), for malformed settings, and for layers that differ
/// from those of the costs; ConfigError if `costs` or a cluster are given and the trace does not name the layers of its
/// stages, and for a cluster with fewer devices than ranks.
Advice advise(const Trace& trace, const std::optional<LayerCosts>& costs = {},
              const std::optional<Cluster>& cluster = {});

}  // namespace penstock
