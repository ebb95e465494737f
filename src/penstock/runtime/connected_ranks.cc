#include "penstock/runtime/connected_ranks.h"

#include <set>

namespace penstock {

std::vector<RankPair> pairs_of(const StagedGraph& staged, const StagePlacement& placement,
                               const std::vector<std::unique_ptr<Stage>>& own_stages) {
  const WorldRank own = placement.context().rank;
  std::set<WorldRank> others;
  for (const StagePart& part : staged.parts)
    for (const Port& port : part.sends) {
      if (placement.is_local(part.id)) others.insert(placement.holder_of(port.peer));
      if (placement.is_local(port.peer)) others.insert(placement.holder_of(part.id));
    }
  for (const auto& stage : own_stages) {
    for (Replica replica(0); replica.value() < placement.context().replicas; replica = replica.next())
      others.insert(placement.holder_of(stage->id(), replica));
    for (const Stage::Held& held : stage->state())
      for (const ParameterUse& use : held.all_uses.list) others.insert(placement.holder_of(use.stage));
  }
  others.erase(own);
  std::set<RankPair> pairs;
  for (const WorldRank other : others) {
    pairs.insert({own, other});
    pairs.insert({other, own});
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace penstock
