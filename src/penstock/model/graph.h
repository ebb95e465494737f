// A network as a list of nodes in execution order: the plain value that is partitioned, printed and executed.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/cell.h"
#include "penstock/model/layer_record.h"

namespace penstock {

/// The parameter of another layer that a parameter is tied to.
struct OwnerParameter {
  std::shared_ptr<LayerRecord> layer;
  std::string layer_path;        // full name of the layer
  std::size_t layer_number = 0;  // its place among the network's layers
  std::string name;              // of the parameter within the layer's module

  std::string full_name() const { return penstock::full_name(*layer, layer_path, name); }
};

/// One call of a layer or of a function, or one use of a raw parameter (a layer without inputs).
struct Node {
  std::string name;                    // "layer1", "head.fc"; unique: repeated calls are numbered, "flatten_2"
  std::shared_ptr<LayerRecord> layer;  // empty for a function
  std::string layer_path;              // full name of the layer: the prefix of its parameters' names
  std::size_t layer_number = 0;        // its place among the network's layers
  TensorFunction function;             // empty for a layer
  std::vector<ValueRef> inputs;
  int outputs = 1;
  std::optional<int> stage;                      // annotation of the layer, or of a Cell around the call
  std::optional<bool> recompute = std::nullopt;  // likewise
  /// Nodes with equal numbers are recomputed together. Numbers the calls of Cells: of the innermost enclosing Cell that
  /// is annotated with recompute, or else of the outermost Cell below the network. 0 for what the network itself calls.
  int block = 0;
  std::string cell = {};  // full name of the Cell whose forward makes the call; empty for the network
  std::string in_block =
      {};  // the call of the outermost Cell around it with is_block, "block1"; empty if there is none
  std::map<std::string, OwnerParameter> ties = {};  // for each tied parameter of the layer, its owner

  bool is_parameter() const { return layer && layer->is_parameter; }
  bool is_layer() const { return layer != nullptr; }
};

struct Graph {
  int inputs = 1;
  std::vector<Node> nodes;
  std::vector<ValueRef> outputs;
  std::vector<std::string> uncalled = {};  // full names of layers that were added but not called by forward

  /// "layer1", or "input 0" for a graph input: for messages.
  std::string name_of(const ValueRef& value) const;
};

/// Example inputs for tracing, one tensor per graph input, from which the shapes and dtypes of all values follow. Only
/// their shapes and dtypes are used, and the number of samples is replaced.
struct TraceSample {
  Tensors inputs = {};
  /// For each input the dimension that holds the samples; std::nullopt if it has none. Inputs beyond the end of this
  /// list use dimension 0.
  std::vector<std::optional<int>> samples_along = {};
};

/// The shapes and dtypes of the values of a network while it is traced. The calls run on zeros, once with two and once
/// with three samples: a size that differs is a multiple of the number of samples. (LibTorch's meta device would be
/// cheaper, but without Python it lacks embedding and batch normalisation.) Internal to this module.
class TracedShapes {
 public:
  /// Without inputs in `sample`, no shape is known.
  explicit TracedShapes(const TraceSample& sample);

  /// Runs the nodes up to `value` that did not run yet, in evaluation mode, with one layer built at a time.
  /// Throws ScheduleError with the reason if the shape is not known.
  TracedShape of(const Graph& graph, const ValueRef& value);

 private:
  static constexpr std::array<std::int64_t, 2> samples{2, 3};
  /// The results with two and with three samples.
  using Pair = std::array<torch::Tensor, 2>;
  struct Outputs {
    std::vector<Pair> values;
    std::string failure;  // the reason if `values` is empty
  };
  void run(const Node& node, Outputs& outputs);
  const Pair& pair_of(const ValueRef& value) const;

  bool is_known_ = false;
  std::vector<Pair> inputs_;
  std::vector<Outputs> of_node_;  // of the nodes that ran: a prefix of the graph's
};

/// Runs `network.forward` once on `inputs` symbolic values and records the calls. Throws ScheduleError for
/// contradicting annotations, for a forward that mixes real and symbolic values, and for one that returns nothing.
Graph trace_graph(Cell& network, int inputs = 1, const TraceSample& sample = {});

}  // namespace penstock
