// The shapes and dtypes of the values of a network while it is traced. The calls run on zeros, once with two and once
// with three samples: a size that differs is a multiple of the number of samples. (LibTorch's meta device would be
// cheaper, but without Python it lacks embedding and batch normalisation.) Internal to this module.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "penstock/model/graph.h"

namespace penstock {

class TracedShapes {
 public:
  /// Without inputs in `sample`, no shape is known.
  explicit TracedShapes(const TraceSample& sample);

  /// Runs the nodes up to that of `value` which did not run yet, in evaluation mode, with one layer built at a time.
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

}  // namespace penstock
