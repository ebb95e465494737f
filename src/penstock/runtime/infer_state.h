// One inference as its ranks see it, and the meeting point of those ranks and whoever asks for the outputs.
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
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/session_state.h"

namespace penstock {

class Inferences;

class InferState : public std::enable_shared_from_this<InferState> {
 public:
  struct Expected {
    int parts = 0;         // replicas whose outputs come here; 0: none do
    std::string not_here;  // what to say then
    /// Makes this process receive what others send; empty where nothing is sent here.
    std::function<void(std::shared_ptr<InferState>)> fetch;
    BatchAxes axes = {};  // of the outputs
  };
  explicit InferState(Expected expected) : expected_(std::move(expected)) {}

  bool comes_here() const { return expected_.parts > 0; }
  /// Whether any of them is made by another process. Before the first fetch().
  bool is_sent_here() const { return expected_.fetch != nullptr; }
  const std::string& not_here() const { return expected_.not_here; }

  /// One replica's outputs, empty for one without rows.
  void add_part(Replica replica, Tensors outputs);
  void fail(std::exception_ptr error);

  /// Has the outputs of other processes received, once. They wait at their rank until then, so that this rank goes on
  /// with its next work meanwhile.
  void fetch();
  const Tensors& outputs();
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
