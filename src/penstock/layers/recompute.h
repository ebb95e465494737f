// Recompute: segments of calls whose activations are not stored. F runs the calls, stores their inputs and drops the
// rest; B or I runs them again with a graph and differentiates that.
//
//   F   inputs -> [ call call call ] -> outputs        stored: the inputs, and the buffers that the calls will change
//   B   inputs -> [ call call call ] -> outputs        again, the same bits; then backward through these only
//
// Results are bitwise those without recompute. F computes the same values, without a graph, and drops each one after
// its last reader. The second run draws the random numbers of the first (model/random_place.h), uses its precision and
// its buffers, and changes nothing but gradients (running statistics are updated once).
//
// Some kernels compute other bits without a graph (on some processors, oneDNN's LSTM). So the first F runs the calls in
// both ways and compares; if the results differ, every F of the segment builds a graph, and drops it.
//
// Without a graph F cannot see which outputs require gradients. So the first F builds a graph, drops it at its end and
// records the answer; so does every later F whose inputs and parameters require gradients in a combination that is new,
// or whose combination had no output that required one.
//
// A value's gradients are added in the order in which the autograd engine would add them without recompute, one call of
// the segment at a time. The order differs in one case: a call that uses one input several times inside, while a layer
// after the segment uses the input too.
//
// State of a module outside of its parameters and buffers changes in every run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/layers/split_layer.h"
#include "penstock/model/random_place.h"

namespace penstock::layers {

/// The state of one micro-batch's forward pass through the calls of a stage.
struct ExecutionState {
  Tensors slots;             // values by slot
  std::vector<Saved> saved;  // saved for W, by split call; empty without a graph
  RandomPlace place;
};

/// The description of a call that a segment needs.
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

/// Consecutive calls of a stage that are recomputed together. Lives on its rank's thread, at a fixed address.
class Segment {
 public:
  /// The calls [begin, end) of `calls`; `leaving` are the slots of the stage's outputs.
  Segment(const std::vector<CallShape>& calls, std::size_t begin, std::size_t end,
          const std::vector<std::size_t>& leaving);

  std::size_t begin() const { return begin_; }
  std::size_t end() const { return end_; }

  /// F, with grad mode on. Runs the calls by `run_call`, and in the backward pass by `again`, which must outlive this.
  void forward(ExecutionState& state, const RunCall& run_call, const RunCall& again);
  /// To be called after all calls of the stage: records which inputs were changed in place after the segment.
  void finish(const ExecutionState& state);

  struct Memory;  // what F stores of one micro-batch
  /// B or I: the gradients of the segment's inputs and parameters, in the order of its autograd node's inputs;
  /// undefined where there is none.
  Tensors backward(Memory& memory, const Tensors& output_gradients) const;

 private:
  struct Input {
    std::size_t slot = 0;
    bool changes_inside = false;     // a call changes it in place, so the calls work on a copy
    bool changes_later = false;      // a later call changes it in place, so F stores a copy
    std::int64_t first_version = 0;  // its version in the first F
  };
  /// A call that reads an input.
  struct Use {
    std::size_t call = 0;
    std::size_t input = 0;
  };

  enum class OutputKind { absent, wants_none, wants_gradient };
  std::vector<OutputKind> kinds_of_outputs(const ExecutionState& state) const;
  /// Whether each of the inputs, then of the parameters, requires a gradient.
  std::vector<bool> wanting(const Memory& memory) const;
  void run_without_graph(ExecutionState& state, const RunCall& run_call) const;
  /// Whether the outputs in `done`, which were computed with a graph, have other bits without one.
  bool needs_graph(const ExecutionState& done, const Memory& memory, const RunCall& again) const;
  torch::Tensor keep(const Input& input, const torch::Tensor& value) const;
  torch::Tensor to_work_on(const Input& input, const torch::Tensor& leaf) const;
  void leave(ExecutionState& state, const c10::intrusive_ptr<Memory>& memory, const Tensors& originals,
             const std::vector<OutputKind>& kinds) const;
  void require_unchanged(const Memory& memory) const;
  void require_known_outputs(const Memory& memory, const ExecutionState& state) const;

  std::string name_;  // the names of its calls, for messages
  std::size_t begin_, end_;
  std::vector<Input> inputs_;
  std::vector<Use> uses_;                            // last call first: the order in which the engine adds gradients
  std::vector<std::size_t> outputs_;                 // slots that are read after the segment
  std::vector<std::size_t> inner_;                   // slots that are not
  std::vector<std::vector<std::size_t>> last_read_;  // by call: the inner slots that no later call reads
  std::map<std::vector<bool>, std::vector<OutputKind>> seen_;  // by wanting(): the outputs of an F with a graph
  Tensors parameters_;
  Tensors buffers_;       // the buffers that F changes, once watched_
  bool watched_ = false;  // the first F has checked which inputs and buffers change
  bool needs_graph_ = false;
};

/// The segments of the calls that are to be recomputed, in order. Consecutive calls of one block form a segment.
/// Outside of any block (block 0), a module that contains modules is a segment by itself.
std::vector<std::unique_ptr<Segment>> find_segments(const std::vector<CallShape>& calls,
                                                    const std::vector<std::size_t>& leaving);

}  // namespace penstock::layers
