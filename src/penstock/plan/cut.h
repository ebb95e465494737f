// Cutting a list of layers into contiguous stages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/ids.h"

namespace penstock {

/// What the partitioner needs to know of one layer, in order of execution.
struct LayerSize {
  std::string name;
  std::int64_t parameters = 0;
};

/// Which stage each layer goes to: ascending, one entry per layer.
using Cut = std::vector<StageId>;

/// The smallest possible largest stage, counted in parameters (a layer without any counts 1, so that stages are not
/// left empty while there are layers enough). Exact; among equals the one whose later stages are lighter... (decide and
/// document). Throws PlanError when stages < 1.
Cut cut_by_parameters(const std::vector<LayerSize>& layers, int stages);

/// n/S layers each; the last stages take one more where it does not divide (10 layers on 4: 2, 2, 3, 3).
Cut cut_uniformly(const std::vector<LayerSize>& layers, int stages);

/// `cut`: "parameters", "uniform", or the first layer of each stage but the first, by name or number:
/// "layer3", "4", "layer2,layer3". Throws PlanError that lists the layers.
Cut cut_layers(std::string_view cut, const std::vector<LayerSize>& layers, int stages);

}  // namespace penstock
