// The start of a job, the same for every verb that runs a network: settle() the flags, read files, make a Job, make its
// pipeline. What one process can find wrong by itself comes before the ranks start, so that no rank waits for a process
// that has failed.
#pragma once

#include <functional>
#include <memory>

#include "penstock/cli/job_flags.h"
#include "penstock/data/data.h"
#include "penstock/hf/weights.h"

namespace penstock::cli {

/// What a verb does with its network.
enum class Use {
  forward,  // no training steps: a batch of any size
  /// Training: at least one replica needs a sample for each of its micro-batches. (A short last batch of an epoch runs
  /// with fewer micro-batches.)
  train,
  /// Every replica needs a sample for each of its micro-batches: accounts and timelines show steps of all m.
  train_full_steps,
};

/// How a pipeline starts.
struct PipelineStart {
  /// Returns the first batch, the same on every process. Called only if the flags leave something to measuring.
  std::function<Batch()> sample;
  bool count_bytes = false;  // PipelineOptions::count_bytes
};

class Job {
 public:
  /// Makes the network, which takes its weights from `weights` (null: the initial ones of --seed, or of the model's own
  /// directory), and starts the ranks. `flags` are settled, and outlive the job. Throws ConfigError for flags that do
  /// not fit the network, the plan, the world or the use, and as Cell::take_weights_from.
  Job(JobFlags& flags, Use use, const std::shared_ptr<const hf::MappedWeights>& weights = nullptr);
  /// Where all ranks before this process's are lost, report_in_place_of_rank_0().
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  World& world() { return world_; }
  Cell& network() { return *network_; }

  /// A pipeline of the network as the flags describe it at this time, with an optimiser unless it runs forward only.
  /// Measures what the flags leave to measuring, and writes the choice of the schedule "auto" to the flags. Collective.
  /// Throws ConfigError if the pipeline is not the plan's.
  std::unique_ptr<Pipeline> make_pipeline(const PipelineStart& start);

 private:
  void require_batch() const;
  /// Logs how much memory the model of a Hugging Face directory needs.
  void log_need(const PipelineOptions& options) const;

  JobFlags& flags_;
  Use use_;
  std::unique_ptr<Cell> network_;
  OptimizerFactory optimizer_;  // none: forward only
  World world_;
};

}  // namespace penstock::cli
