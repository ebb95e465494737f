// A network as a list of nodes in execution order: the plain value that is partitioned, printed and executed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/layer_record.h"

namespace penstock {

/// The parameter of another layer that a parameter is tied to.
struct OwnerParameter {
  std::shared_ptr<LayerRecord> layer;
  std::string layer_path;  // full name of the layer
  std::string name;        // of the parameter within the layer's module

  std::string full_name() const { return penstock::full_name(*layer, layer_path, name); }
};

/// One call of a layer or of a function, or one use of a raw parameter (a layer without inputs).
struct Node {
  std::string name;                    // "layer1", "head.fc"; unique: repeated calls are numbered, "flatten_2"
  std::shared_ptr<LayerRecord> layer;  // empty for a function
  std::string layer_path;              // full name of the layer: the prefix of its parameters' names
  TensorFunction function;             // empty for a layer
  std::vector<ValueRef> inputs;
  int outputs = 1;
  std::optional<int> stage;                      // annotation of the layer, or of a Cell around the call
  std::optional<bool> recompute = std::nullopt;  // likewise
  /// Nodes with equal numbers are recomputed together. Numbers the calls of Cells: of the innermost enclosing Cell that
  /// is annotated with recompute, or else of the outermost Cell below the network. 0 for what the network itself calls.
  int block = 0;
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

}  // namespace penstock
