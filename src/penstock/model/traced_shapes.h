// The shapes and dtypes of the values of a network while it is traced: its calls run with two and with three samples of
// zeros, so that it shows which sizes go with the number of samples. (Not on LibTorch's meta device: without Python, it
// has no embedding and no batch normalisation.) Inside this module only.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "penstock/model/graph.h"

namespace penstock {

class TracedShapes {
 public:
  /// Of the graph's inputs; none: nothing is known.
  explicit TracedShapes(const TraceSample& sample);

  /// Runs what was not run yet of the nodes up to the value's, in evaluation mode, building a layer at a time. Throws
  /// ScheduleError, which says why, where the shape is not known.
  TracedShape of(const Graph& graph, const ValueRef& value);

 private:
  static constexpr std::array<std::int64_t, 2> samples{2, 3};
  /// With two and with three samples.
  using Pair = std::array<torch::Tensor, 2>;
  struct Outputs {
    std::vector<Pair> values;
    std::string failure;  // why there are none
  };
  void run(const Node& node, Outputs& outputs);
  const Pair& pair_of(const ValueRef& value) const;

  bool is_known_ = false;
  std::vector<Pair> inputs_;
  std::vector<Outputs> of_node_;  // of those that were run, from the first on
};

}  // namespace penstock
