// Partitions a list of layers into contiguous stages. Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/ids.h"

namespace penstock {

struct LayerSize {
  std::string name;
  std::int64_t parameters = 0;  // what partition_by_parameters() balances
  std::string cell = {};        // full name of the Cell that calls the layer; empty for the network itself
  std::string block = {};       // the block (Cell::is_block) around it; empty if there is none
};

/// The layers at which an automatic partition may begin a stage, ascending, the first of them 0: layers outside of
/// blocks, and the first of each block. `blocks` has LayerSize::block of each layer. If these are fewer than `stages`,
/// every layer.
std::vector<int> possible_begins(const std::vector<std::string>& blocks, int stages);
/// The number of these layers: the size of possible_begins() if it cuts no block.
int count_units(const std::vector<std::string>& blocks);
/// For people, why possible_begins() cuts blocks: "3 blocks and layers between them are too few for 4 stages"; empty if
/// it does not.
std::string remark_on_blocks(const std::vector<std::string>& blocks, int stages);

/// The stage of each layer: one entry per layer, in order of execution, ascending.
using Partition = std::vector<StageId>;

/// Minimises the number of parameters of the largest stage, exactly, for stages that begin at possible_begins(). No
/// stage is empty, except if there are fewer layers than stages; then the result is partition_uniformly's. Among the
/// optimal partitions, it chooses the most even one (the smallest sum of squared stage sizes), then the one whose last
/// stages have the fewest layers, so that a layer without parameters, such as an activation, stays with the previous
/// layer. `layers` are in order of execution. Throws ScheduleError if stages < 1 and for a negative size.
Partition partition_by_parameters(const std::vector<LayerSize>& layers, int stages);

/// n/S layers per stage; of a network with blocks n/S blocks, of which the first and the last stage also have the
/// layers before and after all blocks, unless there are fewer blocks than stages. If S does not divide n, the last
/// stages have one layer more (10 layers on 4 stages: 2, 2, 3, 3); with fewer layers than stages the first stages are
/// empty. Throws ScheduleError if stages < 1.
Partition partition_uniformly(const std::vector<LayerSize>& layers, int stages);

/// `partition` is "parameters", "uniform" or a list of the first layer of each stage but the first, by name or by
/// number (from 0), or by the name of the Cell that begins with it: "layer3", "4", "layer2,layer3", "model.layers.18".
/// If several layers have the name, it means the first one; names of layers precede names of Cells, and both precede
/// numbers. Throws ScheduleError, which lists the layers, if a layer does not exist or if there are not S - 1 layers in
/// ascending order.
Partition partition_layers(std::string_view partition, const std::vector<LayerSize>& layers, int stages);

/// The objective of a partition.
enum class PartitionKind {
  time,        // minimises the time of the slowest rank, with a share of its slowest stage, within the memory cap
  uniform,     // equal numbers of layers
  parameters,  // minimises the parameter bytes of the largest stage
  memory,      // minimises the memory of the fullest rank; tried if none of the others fits
  given,       // PlanConstraints::stages
  improved,    // another one, with boundaries moved as long as the simulated step became shorter
};

/// "time", "uniform", "parameters", "memory", "given", "improved".
const char* to_string(PartitionKind kind);

}  // namespace penstock
