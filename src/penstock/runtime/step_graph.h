// A rank's work in the training steps of a form (transport/data_plane.h) as one graph of its device, under
// PipelineOptions::capture_steps:
//
//   steps 0 and 1 of the form   executed as ever: libraries and layers make what they make once
//   step 2                      captured, which executes nothing, and replayed
//   from step 3 on              replayed: the host queues the copies of the batch and of some numbers, and the graph
//
// The graph contains all instructions but REDUCE, NORM and STEP, which come after it (schedule/updates_last.h).
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/base/device_graph.h"
#include "penstock/model/captured_numbers.h"
#include "penstock/runtime/batch_rows.h"
#include "penstock/runtime/job_results.h"
#include "penstock/runtime/rank_setting.h"

namespace penstock {

/// The graph and the memory that it uses. Used on its rank's thread.
struct StepGraph {
  explicit StepGraph(c10::Device device) : graph(device.type()) {}

  int executed = 0;   // steps until now
  DeviceDraws draws;  // of the last step before the capture
  DeviceGraph graph;
  CapturedNumbers numbers;
  BatchRows::FixedRows rows;
  // What a replay adds to, and what it leaves for the update and for the results, in memory that it writes again.
  std::map<StageId, Gradients::Sums> sums_before, sums;
  std::vector<JobResults::Counted> counted;

  /// Whether the next step is captured or replayed.
  bool is_due() const { return executed >= 2; }
};

/// Used on its rank's thread.
class StepGraphs {
 public:
  /// `setting` must outlive it.
  explicit StepGraphs(const RankSetting& setting) : setting_(setting) {}

  /// That of a job of `form`, which may be null; null for jobs that are not captured: without capture_steps; jobs
  /// without a form; and steps that keep their outputs, or whose layers are timed.
  StepGraph* of(const StepJob& job, const std::shared_ptr<const StepForm>& form, bool are_layers_timed,
                const RankStages& stages);
  /// To be called between steps, when the next ones compute something else.
  void clear() { graphs_.clear(); }
  /// To be called after a failure, which may have ended a capture.
  void forget_uncaptured() {
    std::erase_if(graphs_, [](const auto& known) { return !known.second.graph.is_captured(); });
  }

 private:
  const RankSetting& setting_;
  /// By form, and by the gradients of earlier steps to which the step adds: for each use of a parameter, whether there is
  /// one.
  std::map<std::pair<std::shared_ptr<const StepForm>, std::vector<bool>>, StepGraph> graphs_;
};

}  // namespace penstock
