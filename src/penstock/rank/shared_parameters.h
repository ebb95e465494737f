// Who holds the same parameters: the replicas of a stage, and the stages that use a tied parameter; and how they send
// to each other. Internal to this module.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "penstock/rank/stage.h"

namespace penstock::rank {

/// What a message between replicas contains. Those from `state` on are counted separately.
enum class Phase : std::int32_t { parts, sums, values, state, buffers, optimizer };

/// The replicas of a stage of this rank. `round`: the step, or a counter of other operations.
struct ReplicaGroup {
  const StagePlacement& placement;
  StageId stage;
  Traffic traffic;
  std::uint64_t round;
  int piece = 0;  // of tied gradients; bucket of others

  int count() const { return placement.context().replicas; }
  Replica own() const { return placement.replica(); }
  template <class Visit>
  void for_each_other(const Visit& visit) const {
    for (Replica r(0); r.value() < count(); r = r.next())
      if (r != own()) visit(r);
  }
  Tag tag(Phase phase) const {
    return {placement.pipeline(), traffic, round, stage.value(), static_cast<std::int32_t>(phase), -1 - piece};
  }
  void send(Replica to, Phase phase, Message message) const {
    placement.endpoint().send(placement.holder_of(stage, to), tag(phase), std::move(message));
  }
  Message receive(Replica from, Phase phase, const char* what) const {
    return placement.endpoint().receive(placement.holder_of(stage, from), tag(phase), what);
  }
  /// Whether receive() would wait for none of the others.
  bool have_arrived(Phase phase) const {
    bool all = true;
    for_each_other(
        [&](Replica r) { all &= placement.endpoint().has_arrived(placement.holder_of(stage, r), tag(phase)); });
    return all;
  }
};

enum class Content : std::int32_t { uses, totals, values };
constexpr std::int32_t contents = 3;

struct Way {
  StageId from;
  StageId to;
  Content content;
  int piece = 0;
};

/// The way of messages about tied parameters between the stages of one pipeline replica.
struct TieRoute {
  const StagePlacement& placement;
  std::uint64_t round = 0;  // the step; for values a counter of their synchronisations

  Tag tag(const Way& way) const {
    const Traffic traffic = way.content == Content::values ? Traffic::tied_values : Traffic::ties;
    const std::int32_t number = contents * way.piece + static_cast<std::int32_t>(way.content);
    return {placement.pipeline(), traffic, round, way.from.value(), way.to.value(), number};
  }
  void send(const Way& way, Message message) const {
    placement.endpoint().send(placement.holder_of(way.to), tag(way), std::move(message));
  }
  Message receive(const Way& way, const char* what) const {
    return placement.endpoint().receive(placement.holder_of(way.from), tag(way), what);
  }
};

/// The indices of the tied parameters among `items` (TrainedParameter or Stage::Held) that stage `owner` owns and stage
/// `user` uses, in the order of their names, so that both stages use the same order.
template <class Items>
std::vector<std::size_t> shared(const Items& items, StageId owner, StageId user) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ParameterUses& all_uses = items[i].all_uses;
    if (!all_uses.list.empty() && all_uses.owner() == owner && all_uses.are_on(user)) by_name[items[i].name] = i;
  }
  std::vector<std::size_t> indices;
  for (const auto& [name, index] : by_name) indices.push_back(index);
  return indices;
}

/// The other stages that share parameters among `items` with `stage`: with `is_owner` the users of those that `stage`
/// owns, otherwise the owners of the others.
template <class Items>
std::set<StageId> partners(const Items& items, StageId stage, bool is_owner) {
  std::set<StageId> found;
  for (const auto& item : items) {
    if (item.all_uses.list.empty()) continue;
    const StageId owner = item.all_uses.owner();
    if ((owner == stage) != is_owner) continue;
    found.insert(owner);
    if (is_owner)
      for (const ParameterUse& use : item.all_uses.list) found.insert(use.stage);
  }
  found.erase(stage);
  return found;
}

}  // namespace penstock::rank
