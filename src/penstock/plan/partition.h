// Partitioning a list of layers into contiguous stages. Pure functions: any thread may call them.
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
using Partition = std::vector<StageId>;

/// The smallest possible largest stage, counted in parameters; no stage is empty while there are layers enough (fewer
/// layers than stages are partitioned as partition_uniformly does). Exact. Among the partitions that reach it, the most even one (the
/// smallest sum of squared stage sizes); then the one whose last stages have the fewest layers, so that a layer without
/// parameters, an activation say, stays with the layer before it.
/// Throws ScheduleError when stages < 1 and for a negative size.
Partition partition_by_parameters(const std::vector<LayerSize>& layers, int stages);

/// n/S layers each; the last stages take one more where it does not divide (10 layers on 4: 2, 2, 3, 3), so that with
/// fewer layers than stages the first stages are empty. Throws ScheduleError when stages < 1.
Partition partition_uniformly(const std::vector<LayerSize>& layers, int stages);

/// `cut`: "parameters", "uniform", or the first layer of each stage but the first, by name or number (from 0):
/// "layer3", "4", "layer2,layer3". A name means its first layer; it goes before a number. Throws ScheduleError that lists
/// the layers when a layer is not there, the layers do not ascend or are not S - 1.
Partition partition_layers(std::string_view partition, const std::vector<LayerSize>& layers, int stages);

/// How the layers of a candidate were partitioned.
enum class PartitionKind {
  time,        // the slowest rank as fast as can be, within the memory cap; then the slowest stage
  uniform,     // as many layers for each stage
  parameters,  // the largest stage as small as can be, counted in parameter bytes
  memory,      // the fullest rank as empty as can be: where none of the others fits
};

/// "time", "uniform", "parameters", "memory".
const char* to_string(PartitionKind kind);

}  // namespace penstock
