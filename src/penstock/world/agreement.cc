#include "penstock/world/agreement.h"

#include <cstring>

#include "penstock/world/collectives.h"

namespace penstock {

void report_progress_of(const RankContext& context, const std::string& what) {
  Position position;
  std::strncpy(position.instruction, what.c_str(), sizeof(position.instruction) - 1);
  context.endpoint->report_progress(position);
}

std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide) {
  std::string agreed;
  world.run_on_local_ranks([&](const RankContext& context) {
    const bool decides = context.rank == WorldRank(0);
    const Message decision = broadcast(context, control_tag(pipeline, topic),
                                       decides ? message_of(decide(context)) : Message{}, "what rank 0 measures");
    if (context.collects) agreed = text_in(decision);
  });
  return agreed;
}

}  // namespace penstock
