// Times the layers of a rank's stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "penstock/layers/layer_clock.h"
#include "penstock/rank/stage.h"
#include "penstock/world/device.h"

namespace penstock {

/// The times of one node of the graph for one micro-batch, in ms.
struct NodeTimes {
  static constexpr std::string_view record_name = "NodeTimes";  // sent to other ranks (transport/records.h)

  std::int64_t node = 0;
  double forward = 0;
  double backward = 0;  // B; I where it is split
  double weight_grad = 0;
  std::int64_t output_bytes = 0;
  std::int64_t parameter_bytes = 0;  // of parameters that require gradients
};

/// Used on its rank's thread.
class StageClocks {
 public:
  /// `stages` must outlive it.
  StageClocks(const RankStages& stages, const RankDevice& device) : stages_(stages), stream_(device.stream()) {}

  /// Switches timing on, from new on, or off. To be called between steps.
  void set_running(bool on);
  /// To be called after each step on a device: LayerClock::read_marks().
  void read_marks();
  /// The times of all nodes in the `steps` steps since set_running(true): medians over steps (base/clock.h).
  std::vector<NodeTimes> times(std::size_t steps) const;

 private:
  const RankStages& stages_;
  std::optional<c10::Stream> stream_;                // on a device
  std::vector<std::unique_ptr<LayerClock>> clocks_;  // by stage, while layers are timed
};

}  // namespace penstock
