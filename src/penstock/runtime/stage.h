// One stage: its part of the graph, built; its forward and backward of one micro-batch.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/layers/gradients.h"
#include "penstock/layers/layer_clock.h"
#include "penstock/layers/recompute.h"
#include "penstock/layers/split_layer.h"
#include "penstock/model/stages.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// The live activations of one micro-batch: what F leaves behind for B or I, and what I leaves behind for W.
struct Activations {
  // For B or I.
  Tensors received;  // leaves over what came in, one per received value; undefined where no gradient goes back
  Tensors sent;      // what left with a graph behind it, one per sent value; undefined where no gradient comes back
  torch::Tensor loss;
  // For W.
  std::vector<Saved> kept;      // by split call
  std::size_t micro_batch = 0;  // its number in the step: gradients are summed in this order
  RandomPlace place;            // of what backward functions draw
};

/// What comes back to a stage for one micro-batch.
struct OutputGradients {
  std::vector<Message> messages;  // one per port of part().sends, undefined tensors where nothing came back
  torch::Tensor loss;             // what the loss is multiplied with; undefined where there is none
};

/// What the last stage does with the network's outputs; gives the loss to differentiate, or nothing.
using Finish = std::function<torch::Tensor(const Tensors& outputs)>;

struct StageSetting {
  std::uint64_t seed = 0;          // of the first weights
  c10::Device device = c10::kCPU;  // where its layers are, and what they work on
  std::shared_ptr<const KernelSelection> kernels = std::make_shared<const KernelSelection>();
};

class Stage {
 public:
  /// Builds the layers of `part`, which must outlive this together with `staged`.
  Stage(const StagedGraph& staged, const StagePart& part, const StageSetting& setting);

  StageId id() const { return part_.id; }
  const StagePart& part() const { return part_; }
  Gradients& gradients() { return gradients_; }
  const Gradients& gradients() const { return gradients_; }
  /// A parameter or buffer as this stage holds it.
  struct Held {
    std::string name;
    torch::Tensor value;
    ParameterUses all_uses;  // of a parameter, on all stages; empty for a buffer
  };
  /// Parameters, frozen ones too, and buffers, each once.
  const std::vector<Held>& state() const { return state_; }
  /// Whether a node of this stage has parameters that want gradients.
  bool trains(int node) const;
  /// Of a node's parameters that want gradients.
  std::int64_t parameter_bytes(int node) const;
  /// From now on, whether the parameters called `name`, or "`name`.something", want gradients. What was gathered of
  /// gradients is gone.
  void set_trainable(const std::string& name, bool trains);
  /// Switches dropout, batch statistics and the like.
  void set_training(bool training);

  /// Times every call from now on; null: none. The clock has a place for each of part().nodes.
  void set_clock(LayerClock* clock) { clock_ = clock; }

  struct Forwarded {
    std::vector<Message> sends;  // one per port of part().sends
    Activations activations;     // empty when no graph was asked for
  };
  /// What F works on.
  struct Arrivals {
    std::vector<Message> received;  // one message per port of part().receives
    Tensors inputs;                 // one tensor per part().graph_inputs
    RandomPlace place;              // of the micro-batch's random numbers; its call is set here
    MicroBatch micro_batch{0};
  };
  /// One micro-batch. `finish` is called on the last stage alone. Keeps a graph where grad mode is on.
  Forwarded forward(const Arrivals& arrivals, const Finish& finish);

  /// B: accumulates into gradients(); returns one message per port of part().receives.
  std::vector<Message> backward(Activations activations, const OutputGradients& from);
  /// I: the messages of B alone, and the parameter gradients of layers that do not split, which gradients() takes in
  /// order. `activations` holds what W needs afterwards, and nothing else.
  std::vector<Message> input_grad(Activations& activations, const OutputGradients& from);
  /// W of one micro-batch, or of several in this order: accumulates into gradients(). After B's I half for each,
  /// the bits are B's where they come one by one.
  void weight_grad(std::vector<Activations> group);

 private:
  struct Call {
    const Node* node = nullptr;
    std::optional<BuiltLayer> layer;
    std::optional<std::size_t> split;  // index into split_
    std::vector<std::size_t> inputs;   // slots
    std::size_t first_output = 0;      // slot
  };
  /// A value that comes from outside: from another stage, or from the batch.
  struct Arrival {
    std::size_t slot = 0;
    bool copy = false;  // a layer here changes it in place: it works on a copy
  };

  bool is_watched() const { return watched_[training_.value_or(false)]; }
  void build(const StagedGraph& staged);
  /// The module of `node`, its values shared with what the stage holds already, and what is new of them noted.
  BuiltLayer build_node(const StagedGraph& staged, const Node& node);
  void hold(const StagedGraph& staged, const Node& node, torch::nn::Module& module);
  /// Notes the parameters of `call` that want gradients, and whether its backward pass splits.
  void attach(Call& call);
  std::size_t slot_of(const ValueRef& value) const;
  Tensors take_arrivals(const Arrivals& from, Tensors& leaves);
  void find_segments();
  void run_call(const Call& call, ExecutionState& run) const;
  void run_call_unnamed(const Call& call, ExecutionState& run) const;
  /// Each call through `run_call`; those that are to be recomputed as segments, where a graph is kept.
  void run_calls(ExecutionState& run, const RunCall& run_call);
  void run_watching_for_changes(ExecutionState& run);
  Forwarded leave(const Tensors& slots) const;

  const Graph& graph_;
  const StagePart& part_;
  StageSetting setting_;
  std::vector<Call> calls_;
  std::map<ValueRef, std::size_t> slots_;  // where a value lies while F runs
  std::vector<Arrival> arrivals_;          // graph inputs, then received values by port
  std::array<bool, 2> watched_{};          // by training: its first F looks for layers that change their input
  std::optional<bool> training_;
  Gradients gradients_;
  std::vector<Held> state_;
  std::vector<std::unique_ptr<SplitLayer>> split_;  // in graph order
  std::vector<std::unique_ptr<Segment>> segments_;  // in order
  RunCall plain_call_;                              // a call as it is, by number
  LayerClock* clock_ = nullptr;
};

}  // namespace penstock
