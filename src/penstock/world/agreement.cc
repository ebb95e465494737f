#include "penstock/world/agreement.h"

#include <cstring>

#include "penstock/base/error.h"
#include "penstock/transport/records.h"

namespace penstock {
void report_progress_of(const RankContext& context, const std::string& what) {
  Position position;
  std::strncpy(position.instruction, what.c_str(), sizeof(position.instruction) - 1);
  context.endpoint->report_progress(position);
}

std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide) {
  // Differs from the tags of the preflight, whose from_stage is 0 or 1.
  const Tag tag{pipeline, Traffic::control, 0, -1, static_cast<std::int32_t>(topic), 0};
  std::string agreed;
  world.run_on_local_ranks([&](const RankContext& context) {
    std::string decision;
    if (context.rank == WorldRank(0)) {
      decision = decide(context);
      for (int r = 1; r < context.world_size(); ++r) context.endpoint->send(WorldRank(r), tag, message_of(decision));
    } else {
      decision = text_in(context.endpoint->receive(WorldRank(0), tag, "what rank 0 measures"));
    }
    if (context.collects) agreed = decision;
  });
  return agreed;
}

}  // namespace penstock
