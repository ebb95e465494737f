#include "penstock/model/ties.h"

#include <algorithm>

namespace penstock {

StageId ParameterUses::owner() const {
  const auto first = std::min_element(list.begin(), list.end(),
                                      [](const ParameterUse& a, const ParameterUse& b) { return a.stage < b.stage; });
  return first->stage;
}

bool ParameterUses::is_tied() const {
  return std::any_of(list.begin(), list.end(),
                     [&](const ParameterUse& use) { return use.stage != list.front().stage; });
}

bool ParameterUses::are_on(StageId stage) const {
  return std::any_of(list.begin(), list.end(), [&](const ParameterUse& use) { return use.stage == stage; });
}

ParameterUses uses_of(const StagedGraph& staged, const LayerRecord& owner, const std::string& parameter) {
  ParameterUses uses;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n) {
    const Node& node = staged.graph.nodes[n];
    const bool own = node.layer.get() == &owner;
    const bool tied = std::any_of(node.ties.begin(), node.ties.end(), [&](const auto& tie) {
      return tie.second.layer.get() == &owner && tie.second.name == parameter;
    });
    if (own || tied) uses.list.push_back({static_cast<int>(n), staged.stage_of_node[n]});
  }
  return uses;
}

}  // namespace penstock
