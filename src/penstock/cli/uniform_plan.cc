#include "penstock/cli/uniform_plan.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/plan/partition.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

constexpr int most_layers = 1'000'000;

struct RankLayers {
  std::vector<int> stages;  // from 0
  std::vector<int> layers;  // from 1
};

std::vector<RankLayers> layers_of_ranks(const UniformPlan& plan) {
  for (const auto& [flag, number] :
       {std::pair("--layers", plan.layers), std::pair("--stages", plan.ranks), std::pair("--chunks", plan.chunks)})
    require<ConfigError>(number >= 1 && number <= most_layers, flag, " ", number, ": give 1 to ", most_layers);
  const std::int64_t stages = std::int64_t{plan.ranks} * plan.chunks;
  require<ConfigError>(stages <= plan.layers, "--layers ", plan.layers, " are fewer than the ", stages, " stages of ",
                       plan.ranks, " ranks with ", plan.chunks, " chunks each: give more layers, or fewer stages");
  const Schedule schedule = generate(plan.chunks == 1 ? "1f1b" : "interleaved", {plan.ranks, 1, plan.chunks});
  const std::vector<LayerSize> layers(static_cast<std::size_t>(plan.layers));
  const Partition partition = partition_uniformly(layers, static_cast<int>(stages));
  std::vector<RankLayers> ranks(static_cast<std::size_t>(plan.ranks));
  for (int stage = 0; stage < static_cast<int>(stages); ++stage)
    ranks[schedule.rank_of(StageId(stage)).index()].stages.push_back(stage);
  for (std::size_t layer = 0; layer < partition.size(); ++layer)
    ranks[schedule.rank_of(partition[layer]).index()].layers.push_back(static_cast<int>(layer) + 1);
  return ranks;
}

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += say(text.empty() ? "" : ", ", number);
  return text;
}

}  // namespace

std::string uniform_plan_text(const UniformPlan& plan) {
  const std::vector<RankLayers> ranks = layers_of_ranks(plan);
  std::string text =
      say("uniform partition of ", plan.layers, " layers (1 to ", plan.layers, ") into ", plan.ranks * plan.chunks,
          " stages: ", plan.ranks, " ranks with ", plan.chunks, plan.chunks == 1 ? " chunk each\n" : " chunks each\n");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    text += say("rank ", rank, " (device ", rank + 1, "): layers ", listed(ranks[rank].layers), "; stages ",
                listed(ranks[rank].stages), "\n");
  return text;
}

std::string uniform_plan_json(const UniformPlan& plan) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankLayers& rank : layers_of_ranks(plan))
    ranks.push_back({{"rank", ranks.size()}, {"stages", rank.stages}, {"layers", rank.layers}});
  const nlohmann::ordered_json document = {
      {"partition", "uniform"}, {"layers", plan.layers}, {"chunks", plan.chunks}, {"ranks", ranks}};
  return json_text(document, 2) + "\n";
}

}  // namespace penstock
