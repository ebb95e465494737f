#include "penstock/rank/stage_clocks.h"

#include "penstock/base/clock.h"

namespace penstock {

void StageClocks::set_running(bool on) {
  clocks_.clear();
  for (const auto& stage : stages_) {
    if (on) clocks_.push_back(std::make_unique<LayerClock>(stage->part().nodes.size(), stream_));
    stage->set_clock(on ? clocks_.back().get() : nullptr);
  }
}

void StageClocks::read_marks() {
  for (const auto& clock : clocks_) clock->read_marks();
}

std::vector<NodeTimes> StageClocks::times(std::size_t steps) const {
  std::vector<NodeTimes> times;
  for (std::size_t s = 0; s < clocks_.size(); ++s) {
    const std::vector<int>& nodes = stages_[s]->part().nodes;
    for (std::size_t call = 0; call < nodes.size(); ++call) {
      const LayerClock::Samples& samples = clocks_[s]->samples()[call];
      times.push_back({nodes[call], median_of_steps(samples.forward, steps), median_of_steps(samples.backward, steps),
                       median_of_steps(samples.weight_grad, steps), samples.output_bytes,
                       stages_[s]->parameter_bytes(nodes[call])});
    }
  }
  return times;
}

}  // namespace penstock
