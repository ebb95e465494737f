// A network as a list of nodes in execution order. A plain value: what is partitioned, shown and run.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/layer_record.h"

namespace penstock {

/// What a parameter of a layer is tied to.
struct OwnerParameter {
  std::shared_ptr<LayerRecord> layer;
  std::string layer_path;  // full name of the layer
  std::string name;        // of the parameter within the layer's module

  std::string full_name() const { return penstock::full_name(*layer, layer_path, name); }
};

/// One call of a layer, or of a function on values; or one use of a raw parameter, which is a layer without inputs.
struct Node {
  std::string name;                    // "layer1", "head.fc"; unique: repeated calls are numbered, "flatten_2"
  std::shared_ptr<LayerRecord> layer;  // empty for a function
  std::string layer_path;              // full name of the layer: the prefix of its parameters' names
  TensorFunction function;             // empty for a layer
  std::vector<ValueRef> inputs;
  int outputs = 1;
  std::optional<int> stage;                      // as annotated on the layer, or on a Cell around the call
  std::optional<bool> recompute = std::nullopt;  // likewise
  /// What it is recomputed together with: the call of the innermost Cell around it that is annotated with recompute, or
  /// else of the outermost Cell within the network. 0 for what the network itself calls.
  int block = 0;
  std::map<std::string, OwnerParameter> ties = {};  // by parameter of the layer: those that are not its own

  bool is_parameter() const { return layer && layer->is_parameter; }
  bool is_layer() const { return layer != nullptr; }
};

struct Graph {
  int inputs = 1;
  std::vector<Node> nodes;
  std::vector<ValueRef> outputs;
  std::vector<std::string> uncalled = {};  // full names of layers that were added, and that forward never used

  /// "layer1", or "input 0" for a graph input: for messages.
  std::string name_of(const ValueRef& value) const;
};

/// What a network is traced with, so that the shapes and dtypes of its values are known: an input each. Their numbers
/// are not looked at, and the number of samples is left open.
struct TraceSample {
  Tensors inputs = {};
  /// The dimension of each input along which samples lie; none: there is none. Dimension 0 where nothing is said.
  std::vector<std::optional<int>> samples_along = {};
};

}  // namespace penstock
