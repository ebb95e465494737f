// RankRunner: timing of layers.
#include "penstock/base/median.h"
#include "penstock/runtime/rank_runner.h"

namespace penstock {
void RankRunner::set_timing(bool on) {
  clocks_.clear();
  for (const auto& stage : stages_) {
    if (on) clocks_.push_back(std::make_unique<LayerClock>(stage->part().nodes.size()));
    stage->set_clock(on ? clocks_.back().get() : nullptr);
  }
}

std::vector<std::pair<std::string, torch::Tensor>> RankRunner::timed_nodes(std::size_t steps) const {
  std::vector<std::pair<std::string, torch::Tensor>> timed;
  for (std::size_t s = 0; s < clocks_.size(); ++s) {
    const std::vector<int>& nodes = stages_[s]->part().nodes;
    for (std::size_t call = 0; call < nodes.size(); ++call) {
      const LayerClock::Samples& samples = clocks_[s]->samples()[call];
      timed.emplace_back(
          std::to_string(nodes[call]),
          torch::tensor({median_of_steps(samples.forward, steps), median_of_steps(samples.backward, steps),
                         median_of_steps(samples.weight_grad, steps), static_cast<double>(samples.output_bytes),
                         static_cast<double>(stages_[s]->parameter_bytes(nodes[call]))},
                        torch::kFloat64));
    }
  }
  return timed;
}

}  // namespace penstock
