#include "penstock/plan/partition.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/base/split.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

using Size = std::int64_t;

void require_stages(int stages) {
  require<ScheduleError>(stages >= 1, "cannot partition a model into ", stages, " stages: ask for at least 1");
}

/// The smallest number of stages of which none is larger than `most`. Filling one stage after the other is optimal.
int stages_needed(const std::vector<LayerSize>& layers, Size most) {
  int stages = 1;
  Size filled = 0;
  for (const LayerSize& layer : layers) {
    if (filled + layer.parameters > most) {
      ++stages;
      filled = 0;
    }
    filled += layer.parameters;
  }
  return stages;
}

/// The size of the largest stage in the best partition. Fewer stages than `stages` are enough: if there are as many
/// layers, splitting a stage gives the remaining ones and enlarges none.
Size smallest_largest(const std::vector<LayerSize>& layers, int stages) {
  Size low = 0;
  Size high = 0;
  for (const LayerSize& layer : layers) {
    low = std::max(low, layer.parameters);
    high += layer.parameters;
  }
  while (low < high) {
    const Size middle = low + (high - low) / 2;
    if (stages_needed(layers, middle) <= stages)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// "0 layer1, 1 relu1, 2 layer2", shortened if there are many.
std::string list_of_layers(const std::vector<LayerSize>& layers) {
  constexpr std::size_t most = 60;
  std::string text;
  for (std::size_t i = 0; i < std::min(layers.size(), most); ++i)
    text += say(i > 0 ? ", " : "", i, " ", layers[i].name);
  return layers.size() > most ? say(text, ", ... ", layers.size() - 1, " ", layers.back().name) : text;
}

std::optional<std::size_t> find_layer(std::string_view name, const std::vector<LayerSize>& layers) {
  const auto named = std::find_if(layers.begin(), layers.end(), [&](const auto& layer) { return layer.name == name; });
  if (named != layers.end()) return static_cast<std::size_t>(named - layers.begin());
  const std::string inside = say(name, ".");
  const auto called = std::find_if(layers.begin(), layers.end(), [&](const LayerSize& layer) {
    return layer.cell == name || layer.cell.starts_with(inside);
  });
  if (called != layers.end()) return static_cast<std::size_t>(called - layers.begin());
  const auto number = number_of<std::size_t>(name);
  return number && *number < layers.size() ? number : std::nullopt;
}

std::vector<std::string> blocks_of(const std::vector<LayerSize>& layers) {
  std::vector<std::string> blocks;
  for (const LayerSize& layer : layers) blocks.push_back(layer.block);
  return blocks;
}

std::vector<int> unit_begins(const std::vector<std::string>& blocks) {
  std::vector<int> begins;
  for (std::size_t n = 0; n < blocks.size(); ++n)
    if (n == 0 || blocks[n].empty() || blocks[n] != blocks[n - 1]) begins.push_back(static_cast<int>(n));
  return begins;
}

/// Partitions the layers as `method` does the units that begin at `begins`.
template <class Method>
Partition by_units(const std::vector<LayerSize>& layers, const std::vector<int>& begins, Method method) {
  std::vector<LayerSize> units;
  Partition partition;
  for (std::size_t n = 0; n < layers.size(); ++n) {
    if (units.size() < begins.size() && static_cast<std::size_t>(begins[units.size()]) == n)
      units.push_back({layers[n].name});
    units.back().parameters += layers[n].parameters;
    partition.emplace_back(static_cast<std::int32_t>(units.size()) - 1);
  }
  const Partition of_units = method(units);
  for (StageId& stage : partition) stage = of_units[stage.index()];
  return partition;
}

Partition even_partition(const std::vector<LayerSize>& layers, int stages) {
  const auto n = static_cast<std::int64_t>(layers.size());
  Partition partition(layers.size());
  // split() puts the larger parts first; here they are last.
  for (int s = 0; s < stages; ++s) {
    const RowRange mirrored = split(n, {.index = stages - 1 - s, .of = stages});
    std::fill(partition.end() - mirrored.end, partition.end() - mirrored.begin, StageId(s));
  }
  return partition;
}

Partition smallest_partition(const std::vector<LayerSize>& layers, int stages) {
  const std::size_t n = layers.size();
  const auto stage_count = static_cast<std::size_t>(stages);
  if (n < stage_count) return even_partition(layers, stages);
  const Size most = smallest_largest(layers, stages);

  // best[end] is the smallest sum of squared sizes if the first `end` layers are on the stages so far, none of which is
  // empty or above `most`; starts[s][end] is the first layer of the last of them, stage s, in that case: the latest
  // possible.
  constexpr long double unreachable = std::numeric_limits<long double>::infinity();
  std::vector<long double> best(n + 1, unreachable);
  best[0] = 0;
  std::vector<std::vector<std::size_t>> starts(stage_count, std::vector<std::size_t>(n + 1, 0));
  for (std::size_t s = 0; s < stage_count; ++s) {
    std::vector<long double> next(n + 1, unreachable);
    for (std::size_t end = s + 1; end <= n; ++end) {
      Size size = 0;
      for (std::size_t start = end; start-- > s;) {
        size += layers[start].parameters;
        if (size > most) break;
        const long double squares = best[start] + static_cast<long double>(size) * static_cast<long double>(size);
        if (squares < next[end]) {
          next[end] = squares;
          starts[s][end] = start;
        }
      }
    }
    best = std::move(next);
  }

  Partition partition(n);
  std::size_t end = n;
  for (std::size_t s = stage_count; s-- > 0;) {
    const std::size_t start = starts[s][end];
    std::fill(partition.begin() + static_cast<std::ptrdiff_t>(start),
              partition.begin() + static_cast<std::ptrdiff_t>(end), StageId(static_cast<std::int32_t>(s)));
    end = start;
  }
  return partition;
}

}  // namespace

int count_units(const std::vector<std::string>& blocks) { return static_cast<int>(unit_begins(blocks).size()); }

std::vector<int> possible_begins(const std::vector<std::string>& blocks, int stages) {
  std::vector<int> begins = unit_begins(blocks);
  if (static_cast<int>(begins.size()) < stages) {
    begins.resize(blocks.size());
    std::iota(begins.begin(), begins.end(), 0);
  }
  return begins;
}

std::string remark_on_blocks(const std::vector<std::string>& blocks, int stages) {
  const int units = count_units(blocks);
  if (units >= stages || units == static_cast<int>(blocks.size())) return "";
  return say(units, " blocks and layers between them are too few for ", stages, " stages");
}

Partition partition_by_parameters(const std::vector<LayerSize>& layers, int stages) {
  require_stages(stages);
  for (const LayerSize& layer : layers)
    require<ScheduleError>(layer.parameters >= 0, "layer '", layer.name, "' has ", layer.parameters,
                           " parameters: a size is not negative");
  return by_units(layers, possible_begins(blocks_of(layers), stages),
                  [&](const std::vector<LayerSize>& units) { return smallest_partition(units, stages); });
}

Partition partition_uniformly(const std::vector<LayerSize>& layers, int stages) {
  require_stages(stages);
  std::vector<std::string> blocks = blocks_of(layers);
  // Layers outside of blocks join the block before them or, at the start, the first one.
  const auto first =
      std::find_if(blocks.begin(), blocks.end(), [](const std::string& block) { return !block.empty(); });
  if (first != blocks.end()) {
    std::fill(blocks.begin(), first, *first);
    for (std::size_t n = 1; n < blocks.size(); ++n)
      if (blocks[n].empty()) blocks[n] = blocks[n - 1];
    if (count_units(blocks) < stages) blocks = blocks_of(layers);
  }
  return by_units(layers, possible_begins(blocks, stages),
                  [&](const std::vector<LayerSize>& units) { return even_partition(units, stages); });
}

const char* to_string(PartitionKind kind) {
  switch (kind) {
    case PartitionKind::time: return "time";
    case PartitionKind::uniform: return "uniform";
    case PartitionKind::parameters: return "parameters";
    case PartitionKind::memory: return "memory";
    case PartitionKind::given: return "given";
    case PartitionKind::improved: return "improved";
  }
  return "";
}

Partition partition_layers(std::string_view partition, const std::vector<LayerSize>& layers, int stages) {
  if (partition == "parameters") return partition_by_parameters(layers, stages);
  if (partition == "uniform") return partition_uniformly(layers, stages);

  const std::vector<std::string_view> names =
      partition.empty() ? std::vector<std::string_view>() : separated(partition, ',');
  require<ScheduleError>(stages >= 1 && names.size() == static_cast<std::size_t>(stages) - 1, "partition '", partition,
                         "' names ", names.size(), " layers, but ", stages, " stages need ", stages - 1,
                         ": the first layer of every stage but the first; the layers are ", list_of_layers(layers));
  Partition result(layers.size(), StageId(0));
  std::size_t previous = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto start = find_layer(names[i], layers);
    require<ScheduleError>(start.has_value(), "partition '", partition, "': there is no layer or Cell '", names[i],
                           "'; the layers are ", list_of_layers(layers));
    require<ScheduleError>(*start > previous, "partition '", partition, "': stage ", i + 1, " would start at layer ",
                           *start, " (", names[i], "), not after layer ", previous, " where stage ", i,
                           " begins; name them in ascending order; the layers are ", list_of_layers(layers));
    std::fill(result.begin() + static_cast<std::ptrdiff_t>(*start), result.end(),
              StageId(static_cast<std::int32_t>(i + 1)));
    previous = *start;
  }
  return result;
}

}  // namespace penstock
