#include "penstock/world/collectives.h"

#include <utility>

#include "penstock/transport/transport.h"

namespace penstock {
namespace {

enum CollectivePhase : std::int32_t { to_rank_0, from_rank_0 };

}  // namespace

std::vector<Message> gather(const RankContext& context, const Tag& tag, Message own, const std::string& waiting_for) {
  if (context.rank != WorldRank(0)) {
    context.endpoint->send(WorldRank(0), in_phase(tag, to_rank_0), std::move(own));
    return {};
  }
  std::vector<Message> all{std::move(own)};
  for (int r = 1; r < context.world_size(); ++r)
    all.push_back(context.endpoint->receive(WorldRank(r), in_phase(tag, to_rank_0), waiting_for));
  return all;
}

Message broadcast(const RankContext& context, const Tag& tag, Message message, const std::string& waiting_for) {
  if (context.rank != WorldRank(0))
    return context.endpoint->receive(WorldRank(0), in_phase(tag, from_rank_0), waiting_for);
  for (int r = 1; r < context.world_size(); ++r)
    context.endpoint->send(WorldRank(r), in_phase(tag, from_rank_0), message);
  return message;
}

Message agree(const RankContext& context, const Tag& tag, Message own,
              const std::function<Message(const std::vector<Message>&)>& decide, const AwaitedMessages& awaited) {
  const std::vector<Message> all = gather(context, tag, std::move(own), awaited.parts);
  return broadcast(context, tag, context.rank == WorldRank(0) ? decide(all) : Message{}, awaited.decision);
}

}  // namespace penstock
