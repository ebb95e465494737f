// The stages of one rank: who holds which, the layers that each builds, F and B of one micro-batch, and their times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/layers/gradients.h"
#include "penstock/layers/layer_clock.h"
#include "penstock/layers/recompute.h"
#include "penstock/layers/split_layer.h"
#include "penstock/model/stages.h"
#include "penstock/transport/transport.h"
#include "penstock/world/device.h"
#include "penstock/world/rank_context.h"

namespace penstock::rank {

/// The ranks that hold the stages of one pipeline, as one of these ranks sees them. A plain value. Used on its rank's
/// thread.
class StagePlacement {
 public:
  /// `rank_of_stage` is that of the pipeline's schedules; `pipeline` is part of message tags.
  StagePlacement(std::uint32_t pipeline, RankContext context, std::vector<Rank> rank_of_stage)
      : pipeline_(pipeline), context_(std::move(context)), rank_of_stage_(std::move(rank_of_stage)) {}

  std::uint32_t pipeline() const { return pipeline_; }
  const RankContext& context() const { return context_; }
  Transport& endpoint() const { return *context_.endpoint; }
  /// This rank.
  Rank rank() const { return context_.pipeline_rank(); }
  Replica replica() const { return context_.replica(); }

  int stage_count() const { return static_cast<int>(rank_of_stage_.size()); }
  StageId last_stage() const { return StageId(stage_count() - 1); }
  /// Whether this rank holds `stage`.
  bool is_local(StageId stage) const { return rank_of_stage_[stage.index()] == rank(); }
  /// The rank that holds `stage` of a replica; without one, of this rank's replica.
  WorldRank holder_of(StageId stage, Replica replica) const {
    return context_.rank_of(rank_of_stage_[stage.index()], replica);
  }
  WorldRank holder_of(StageId stage) const { return holder_of(stage, replica()); }

 private:
  std::uint32_t pipeline_;
  RankContext context_;
  std::vector<Rank> rank_of_stage_;
};

/// The live activations of one micro-batch on one stage: what F stores for B or I, and I for W.
struct Activations {
  // For B or I.
  Tensors received;  // autograd leaves of received values, one per value; undefined where no gradient is sent back
  Tensors sent;      // sent values with their graph, one per value; undefined where no gradient comes back
  torch::Tensor loss;
  // For W.
  std::vector<layers::Saved> saved;  // by split call
  std::size_t micro_batch = 0;       // its number in the step; gradients are summed in this order
  RandomPlace place;                 // of random numbers drawn in the backward pass
};

/// The gradients that a stage receives for one micro-batch.
struct OutputGradients {
  std::vector<Message> messages;  // one per port of part().sends, with undefined tensors where there is no gradient
  torch::Tensor loss;             // the gradient of the loss; undefined where there is no loss
};

/// Called by the last stage with the network's outputs. Returns the loss to differentiate, or an undefined tensor.
using Finish = std::function<torch::Tensor(const Tensors& outputs)>;

/// Whether the parameter of a full name trains from now on; none: as before.
using Trains = std::function<std::optional<bool>(const std::string& name)>;

struct StageSetting {
  std::uint64_t seed = 0;          // of the initial weights
  c10::Device device = c10::kCPU;  // of the layers and their inputs
  std::shared_ptr<const kernels::KernelSelection> kernels = std::make_shared<const kernels::KernelSelection>();
};

/// Builds the layers of its part of the graph; computes forward and backward of one micro-batch. Used on its rank's
/// thread.
class Stage {
 public:
  /// Builds the layers of `part`. `staged` and `part` must outlive the stage.
  Stage(const StagedGraph& staged, const StagePart& part, const StageSetting& setting);

  StageId id() const { return part_.id; }
  const StagePart& part() const { return part_; }
  layers::Gradients& gradients() { return gradients_; }
  const layers::Gradients& gradients() const { return gradients_; }
  /// A parameter or buffer of this stage.
  struct Held {
    std::string name;
    torch::Tensor value;
    StatePlace place;        // in the network's state dict
    ParameterUses all_uses;  // of a parameter, on all stages; empty for a buffer

    bool is_buffer() const { return all_uses.list.empty(); }
    /// Whether `stage`, which holds it, is the one whose value is stored.
    bool is_owned_by(StageId stage) const { return is_buffer() || all_uses.owner() == stage; }
  };
  /// Parameters, including frozen ones, and buffers, each once.
  const std::vector<Held>& state() const { return state_; }
  /// The bytes of a node's parameters that require gradients.
  std::int64_t parameter_bytes(int node) const;
  /// The full names of the parameters of all calls, each with its owner's name, which is another one if it is tied.
  std::vector<std::pair<std::string, std::string>> parameter_names() const;
  /// Sets which parameters require gradients: asks `trains` with the name of each parameter's owner. Discards all
  /// accumulated gradients.
  void set_trainable(const Trains& trains);
  /// Switches the layers between training and evaluation mode (dropout, batch statistics).
  void set_training(bool training);

  /// Calls `check` after every call of F with the node's number and its outputs; null: does not.
  using Check = std::function<void(int node, const Tensors& outputs)>;
  void set_check(Check check) { check_ = std::move(check); }
  /// Times every call with `clock`, which must have an entry for each of part().nodes and outlive its use; null: none.
  void set_clock(layers::LayerClock* clock) { clock_ = clock; }

  struct Forwarded {
    std::vector<Message> sends;  // one per port of part().sends
    Activations activations;     // empty without grad mode
  };
  /// The inputs of F.
  struct Arrivals {
    std::vector<Message> received;  // one message per port of part().receives
    Tensors inputs;                 // one tensor per part().graph_inputs
    RandomPlace place;              // of the micro-batch's random numbers; the stage sets its call
    MicroBatch micro_batch{0};
  };
  /// F of one micro-batch. Calls `finish` on the last stage alone. Builds a graph where grad mode is on. Throws
  /// ScheduleError where a layer changes a value in place that is read afterwards, and the errors of layers.
  Forwarded forward(const Arrivals& arrivals, const Finish& finish);

  /// B: accumulates into gradients(); returns one message per port of part().receives.
  std::vector<Message> backward(Activations activations, const OutputGradients& from);
  /// I: returns the messages of B, and accumulates the parameter gradients of layers that do not split. Leaves in
  /// `activations` only what W needs.
  std::vector<Message> input_grad(Activations& activations, const OutputGradients& from);
  /// W of one micro-batch, or fused of several in this order, after I of each: accumulates into gradients(). For one
  /// micro-batch at a time, I and W give the same bits as B.
  void weight_grad(std::vector<Activations> group);

 private:
  struct Call {
    const Node* node = nullptr;
    std::optional<BuiltLayer> layer;
    std::optional<std::size_t> split;  // index into split_
    std::vector<std::size_t> inputs;   // slots
    std::size_t first_output = 0;      // slot
  };
  /// A value from another stage or from the batch.
  struct Arrival {
    std::size_t slot = 0;
    bool copy = false;  // a layer of this stage changes it in place, so the stage works on a copy
  };

  bool is_watched() const { return watched_[training_.value_or(false)]; }
  void build(const StagedGraph& staged);
  /// The module of `node`. Parameters that the stage holds already share their values; new ones are added to state_.
  BuiltLayer build_node(const StagedGraph& staged, const Node& node);
  void hold(const StagedGraph& staged, const Node& node, torch::nn::Module& module);
  /// Adds the parameters of `call` that require gradients to gradients_, and splits its backward pass where possible.
  void attach(Call& call);
  std::size_t slot_of(const ValueRef& value) const;
  Tensors take_arrivals(const Arrivals& from, Tensors& leaves);
  void find_segments();
  void run_call(const Call& call, layers::ExecutionState& run) const;
  /// Runs all calls by `run_call`; in grad mode, calls that are to be recomputed run as segments.
  void run_calls(layers::ExecutionState& run, const layers::RunCall& run_call);
  void run_watching_for_changes(layers::ExecutionState& run);
  Forwarded leave(const Tensors& slots) const;

  const Graph& graph_;
  const StagePart& part_;
  StageSetting setting_;
  std::vector<Call> calls_;
  std::map<ValueRef, std::size_t> slots_;  // index of a value in ExecutionState::slots
  std::vector<Arrival> arrivals_;          // graph inputs, then received values by port
  std::array<bool, 2> watched_{};          // by training_: the first F has checked for layers that change their input
  std::optional<bool> training_;
  layers::Gradients gradients_;
  std::vector<Held> state_;
  std::vector<std::unique_ptr<layers::SplitLayer>> split_;  // in graph order
  std::vector<std::unique_ptr<layers::Segment>> segments_;  // in order
  layers::RunCall plain_call_;                              // runs the call with a number, without checks
  layers::LayerClock* clock_ = nullptr;
  Check check_;
};

/// The stages of one rank, in ascending order.
using RankStages = std::vector<std::unique_ptr<Stage>>;

/// The times of one node of the graph for one micro-batch, in ms.
struct NodeTimes {
  static constexpr std::string_view record_name = "NodeTimes";  // sent to other ranks (transport/records.h)

  std::int64_t node = 0;
  double forward = 0;
  double backward = 0;  // B; I where it is split
  double weight_grad = 0;
  std::int64_t output_bytes = 0;
  std::int64_t parameter_bytes = 0;  // of parameters that require gradients
};

/// Times the layers of a rank's stages. Used on its rank's thread.
class StageClocks {
 public:
  /// `stages` must outlive it.
  StageClocks(const RankStages& stages, const RankDevice& device) : stages_(stages), stream_(device.stream()) {}

  /// Switches timing on, from new on, or off. To be called between steps.
  void set_running(bool on);
  /// To be called after each step on a device: LayerClock::read_marks().
  void read_marks();
  /// The times of all nodes in the `steps` steps since set_running(true): medians over steps (base/clock.h).
  std::vector<NodeTimes> times(std::size_t steps) const;

 private:
  const RankStages& stages_;
  std::optional<c10::Stream> stream_;                        // on a device
  std::vector<std::unique_ptr<layers::LayerClock>> clocks_;  // by stage, while layers are timed
};

}  // namespace penstock::rank
