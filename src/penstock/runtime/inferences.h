// The inferences of one pipeline, on the side of the program: what is under way, and which sessions are open.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/runtime/rank_runner.h"
#include "penstock/world/world.h"

namespace penstock {

/// Queues work for every local rank, behind what was submitted before. False where the pipeline is gone.
using PostToRunners = std::function<bool(const std::function<void(RankRunner&)>&)>;

class Inferences {
 public:
  /// What stays the same for all of them.
  struct Setting {
    int inputs = 1;         // of the network
    int micro_batches = 1;  // of the pipeline
    Rank last;              // holds the last stage
    BatchAxesOf axes = {};
  };
  /// `world` must outlive it.
  Inferences(const World& world, const Setting& setting) : world_(world), setting_(setting) {}

  std::shared_ptr<SessionState> open_session(const PostToRunners& post);

  /// The job of step `step`, all but its plans and its state. Throws ConfigError for what cannot be.
  StepJob make_job(std::uint64_t step, const Tensors& inputs, const InferOptions& options, const PostToRunners& post);
  /// How many micro-batches a replica has of it.
  int micro_batches(const StepJob& job, Replica replica) const;
  /// Takes note of a job that is about to be posted. Waits where too many are under way.
  void add(const StepJob& job);
  /// Waits for all of them; throws what made one fail, unless somebody has been told and the pipeline goes on.
  void finish();
  /// The same, and throws nothing.
  void settle() noexcept;

 private:
  std::int64_t rows_of(const Tensors& inputs) const;
  void join_session(SessionState& session, std::int64_t rows, const InferOptions& options) const;
  InferState::Expected expected_outputs(std::uint64_t step, const InferOptions& options,
                                        const PostToRunners& post) const;
  std::size_t most_under_way();
  void finish_oldest();

  const World& world_;
  Setting setting_;
  /// Since the last finish(). With the outputs' state where this process has to receive them.
  std::deque<std::pair<std::shared_ptr<StepState>, std::shared_ptr<InferState>>> under_way_;
  std::vector<std::weak_ptr<SessionState>> sessions_;
  std::uint64_t next_session_ = 0;
};

}  // namespace penstock
