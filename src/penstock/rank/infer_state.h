// The state of one inference: written by its ranks, read through InferResult.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "penstock/base/ids.h"
#include "penstock/rank/batch_axes.h"
#include "penstock/rank/session_state.h"
#include "penstock/world/rank_watch.h"

namespace penstock {

class Inferences;

/// Thread-safe.
class InferState : public std::enable_shared_from_this<InferState> {
 public:
  struct Expected {
    int parts = 0;         // number of replicas whose outputs come to this process
    std::string not_here;  // the error text where that is 0
    /// Starts receiving the outputs that other processes send; empty where none are sent here.
    std::function<void(std::shared_ptr<InferState>)> fetch;
    BatchAxes axes = {};                                    // of the outputs
    std::shared_ptr<const RankWatch> rank_watch = nullptr;  // never null
  };
  explicit InferState(Expected expected) : expected_(std::move(expected)) {}

  bool comes_here() const { return expected_.parts > 0; }
  /// Whether another process sends outputs here. To be called before the first fetch().
  bool is_sent_here() const { return expected_.fetch != nullptr; }
  const std::string& not_here() const { return expected_.not_here; }

  /// Adds one replica's outputs, which are empty for a replica without rows.
  void add_part(Replica replica, Tensors outputs);
  void fail(std::exception_ptr error);

  /// Starts receiving the outputs of other processes, at the first call. Until then the messages wait in the mailbox,
  /// so that this rank can begin its next job.
  void fetch();
  /// Waits for the outputs of all parts; throws the error of fail(), and that of RankWatch::wait().
  const Tensors& outputs();
  /// Whether outputs() would return without waiting.
  bool ready();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Expected expected_;
  std::map<Replica, Tensors> parts_;
  std::optional<Tensors> outputs_;
  std::exception_ptr error_;
};

/// One inference, as every local rank gets it. Immutable.
struct Inference {
  bool broadcast = false;
  ReplicaInput replicas = ReplicaInput::share;
  std::optional<std::uint64_t> session;
  std::shared_ptr<InferState> state;
};

}  // namespace penstock
