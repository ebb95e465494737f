// Hand-made graphs, for testing the rules about stages without a network.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/model/graph.h"

namespace penstock::test {

inline const ValueRef network_input{-1, 0};
inline const ValueRef second_input{-1, 1};

class HandMadeGraph {
 public:
  /// Returns the node's first output.
  ValueRef layer(const std::string& name, std::vector<ValueRef> inputs, std::optional<int> stage = {}) {
    Node node;
    auto record = std::make_shared<LayerRecord>();
    record->name = record->path = name;
    node.layer = std::move(record);
    node.layer_path = name;
    return add(name, std::move(node), std::move(inputs), stage);
  }
  ValueRef function(const std::string& name, std::vector<ValueRef> inputs, std::optional<int> stage = {}) {
    Node node;
    node.function = [](const Tensors& x) { return Tensors{x[0]}; };
    return add(name, std::move(node), std::move(inputs), stage);
  }
  Graph done(std::vector<ValueRef> outputs) {
    graph_.outputs = std::move(outputs);
    return graph_;
  }

 private:
  ValueRef add(const std::string& name, Node node, std::vector<ValueRef> inputs, std::optional<int> stage) {
    node.name = name;
    node.inputs = std::move(inputs);
    node.stage = stage;
    for (const ValueRef& input : node.inputs)
      if (input.is_graph_input()) graph_.inputs = std::max(graph_.inputs, input.output + 1);
    graph_.nodes.push_back(std::move(node));
    return {static_cast<int>(graph_.nodes.size()) - 1, 0};
  }

  Graph graph_;
};

/// Stages as plain numbers.
inline std::vector<int> numbers(const std::vector<StageId>& stages) {
  std::vector<int> all;
  for (StageId stage : stages) all.push_back(stage.value());
  return all;
}

}  // namespace penstock::test
