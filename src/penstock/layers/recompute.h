// Recompute: calls whose activations are not kept. F runs them, keeps what goes in and drops the rest; B or I runs them
// once more, with a graph, and differentiates that.
//
//   F   inputs -> [ call call call ] -> outputs        kept: the inputs, and the buffers that the calls will change
//   B   inputs -> [ call call call ] -> outputs        again, the same bits; then backward through these alone
//
// The same bits as without recompute: F runs as it otherwise would, but without a graph and letting go of every value
// after its last reader; the second run draws the random numbers of the first (model/random_place.h), finds its
// precision and buffers, and leaves no other trace than gradients (running statistics move once). Which outputs want
// gradients cannot be seen without a graph: the first F builds one, drops it at its end and remembers, as does every F
// whose inputs and parameters want gradients otherwise than any before, or none of whose outputs wanted one.
// A value's gradients are added in the order in which the engine would have added them,
// a call of the segment at a time. That is another order than the engine's in one case: a call that uses one input
// several times inside, while a layer behind the segment uses it too.
//
// What a module remembers outside of its parameters and buffers changes in both runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/layers/split_layer.h"
#include "penstock/model/random_place.h"

namespace penstock {

/// One micro-batch on its way through the calls of a stage.
struct ExecutionState {
  Tensors slots;
  std::vector<Saved> kept;  // by split call; empty where no graph is kept
  RandomPlace place;
};

/// What a segment needs to know of a call.
struct CallShape {
  std::string name;  // for messages
  bool recompute = false;
  std::vector<std::size_t> inputs;  // slots
  std::size_t first_output = 0;     // slot
  std::size_t outputs = 1;
  std::shared_ptr<torch::nn::Module> module = nullptr;  // null for a function
  int block = 0;                                        // Node::block
};

/// Runs the call with this number.
using RunCall = std::function<void(std::size_t call, ExecutionState& state)>;

/// Calls that follow each other in a stage and are run again together: a block. Lives on its rank's thread, at one
/// address.
class Segment {
 public:
  /// Calls `begin` to `end` of `calls`; `leaving` are the slots that the stage hands out.
  Segment(const std::vector<CallShape>& calls, std::size_t begin, std::size_t end,
          const std::vector<std::size_t>& leaving);

  std::size_t begin() const { return begin_; }
  std::size_t end() const { return end_; }

  /// F, where grad mode is on. `again` is how the calls run the second time; it must live as long as this.
  void forward(ExecutionState& state, const RunCall& run_call, const RunCall& again);
  /// When all calls of the stage have run: sees which inputs were changed in place afterwards.
  void finish(const ExecutionState& state);

  struct Memory;  // of one micro-batch
  /// B or I: the gradients of what forward() made the segment's node depend on; undefined where none comes.
  Tensors backward(Memory& memory, const Tensors& output_gradients) const;

 private:
  struct Input {
    std::size_t slot = 0;
    bool changes_inside = false;     // in place: the calls work on a copy
    bool changes_later = false;      // what is kept is a copy
    std::int64_t first_version = 0;  // as it came in the first F
  };
  /// A call's look at an input.
  struct Use {
    std::size_t call = 0;
    std::size_t input = 0;
  };

  enum class OutputKind { absent, wants_none, wants_gradient };
  std::vector<OutputKind> kinds_of_outputs(const ExecutionState& state) const;
  /// What wants a gradient of what comes in: inputs, then parameters.
  std::vector<bool> wanting(const Memory& memory) const;
  void run_without_graph(ExecutionState& state, const RunCall& run_call) const;
  torch::Tensor keep(const Input& input, const torch::Tensor& value) const;
  torch::Tensor to_work_on(const Input& input, const torch::Tensor& leaf) const;
  void leave(ExecutionState& state, const c10::intrusive_ptr<Memory>& memory, const Tensors& originals,
             const std::vector<OutputKind>& kinds) const;
  void require_unchanged(const Memory& memory) const;
  void require_foreseen(const Memory& memory, const ExecutionState& state) const;

  std::string name_;  // of its calls, for messages
  std::size_t begin_, end_;
  std::vector<Input> inputs_;
  std::vector<Use> uses_;                            // last call first: the order in which the engine adds gradients
  std::vector<std::size_t> outputs_;                 // slots of what is needed behind the segment
  std::vector<std::size_t> inner_;                   // slots of what is not
  std::vector<std::vector<std::size_t>> last_read_;  // by call of the segment: the inner slots that no later one reads
  std::map<std::vector<bool>, std::vector<OutputKind>> seen_;  // by wanting(): the outputs of an F with a graph
  Tensors parameters_;
  Tensors buffers_;       // once it is watched: those that F changes
  bool watched_ = false;  // the first F looks for changes
};

/// The calls that are to be recomputed, in order: those of one block that follow each other are one segment. Outside of
/// any block (0), a module that holds modules is a segment by itself.
std::vector<std::unique_ptr<Segment>> find_segments(const std::vector<CallShape>& calls,
                                                    const std::vector<std::size_t>& leaving);

}  // namespace penstock
