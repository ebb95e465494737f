#include "penstock/runtime/agreement.h"

#include <cstring>

#include "penstock/base/error.h"
#include "penstock/transport/text_message.h"

namespace penstock {
namespace {

void require_sample(const Tensors& sample, int inputs) {
  require<ConfigError>(static_cast<int>(sample.size()) == inputs,
                       "layers are measured on PipelineOptions::sample, which holds ", sample.size(),
                       " tensors, but the network takes ", inputs, ": give it the inputs of some samples");
  for (const torch::Tensor& input : sample)
    require<ConfigError>(input.defined() && input.numel() >= 1, "PipelineOptions::sample has no rows: give it some");
}

}  // namespace

void report_progress_of(const RankContext& context, const std::string& what) {
  Position position;
  std::strncpy(position.instruction, what.c_str(), sizeof(position.instruction) - 1);
  context.endpoint->report_progress(position);
}

std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide) {
  // Not one of the preflight's, which uses small numbers.
  const Tag tag{pipeline, Traffic::control, 0, -1, static_cast<std::int32_t>(topic), 0};
  std::string agreed;
  world.run_on_local_ranks([&](const RankContext& context) {
    std::string decision;
    if (context.rank == WorldRank(0)) {
      decision = decide(context);
      for (int r = 1; r < context.world_size(); ++r) context.endpoint->send(WorldRank(r), tag, text_message(decision));
    } else {
      decision = text_of(context.endpoint->receive(WorldRank(0), tag, "what rank 0 measures"));
    }
    if (context.collects) agreed = decision;
  });
  return agreed;
}

std::string Agreement::on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const {
  return decided_on_rank_0(world, pipeline, topic, [&](const RankContext& context) {
    // Here, where an error ends all ranks: only this one looks at the sample.
    require_sample(sample, graph.inputs);
    return decide(context);
  });
}

}  // namespace penstock
