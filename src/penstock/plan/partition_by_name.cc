#include <algorithm>
#include <charconv>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/plan/cost_list.h"
#include "penstock/plan/partition.h"

namespace penstock {
namespace {

/// "0 layer1, 1 relu1, 2 layer2", shortened if there are many.
std::string listed(const std::vector<LayerSize>& layers) {
  constexpr std::size_t most = 60;
  std::string text;
  for (std::size_t i = 0; i < std::min(layers.size(), most); ++i)
    text += say(i > 0 ? ", " : "", i, " ", layers[i].name);
  return layers.size() > most ? say(text, ", ... ", layers.size() - 1, " ", layers.back().name) : text;
}

std::optional<std::size_t> find_layer(std::string_view name, const std::vector<LayerSize>& layers) {
  const auto named = std::find_if(layers.begin(), layers.end(), [&](const auto& layer) { return layer.name == name; });
  if (named != layers.end()) return static_cast<std::size_t>(named - layers.begin());
  std::size_t number = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = problem == std::errc() && end == name.data() + name.size();
  return is_number && number < layers.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

Partition partition_layers(std::string_view partition, const std::vector<LayerSize>& layers, int stages) {
  if (partition == "parameters") return partition_by_parameters(layers, stages);
  if (partition == "uniform") return partition_uniformly(layers, stages);

  const std::vector<std::string_view> names =
      partition.empty() ? std::vector<std::string_view>() : comma_separated(partition);
  require<ScheduleError>(stages >= 1 && names.size() == static_cast<std::size_t>(stages) - 1, "partition '", partition,
                         "' names ", names.size(), " layers, but ", stages, " stages need ", stages - 1,
                         ": the first layer of every stage but the first; the layers are ", listed(layers));
  Partition result(layers.size(), StageId(0));
  std::size_t previous = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto start = find_layer(names[i], layers);
    require<ScheduleError>(start.has_value(), "partition '", partition, "': there is no layer '", names[i],
                           "'; the layers are ", listed(layers));
    require<ScheduleError>(*start > previous, "partition '", partition, "': stage ", i + 1, " would begin at layer ",
                           *start, " (", names[i], "), not after layer ", previous, " where stage ", i,
                           " begins; name them in ascending order; the layers are ", listed(layers));
    std::fill(result.begin() + static_cast<std::ptrdiff_t>(*start), result.end(),
              StageId(static_cast<std::int32_t>(i + 1)));
    previous = *start;
  }
  return result;
}

}  // namespace penstock
