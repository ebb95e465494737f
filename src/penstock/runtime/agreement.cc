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

void tell_progress(const Member& member, const std::string& what) {
  Position position;
  std::strncpy(position.word, what.c_str(), sizeof(position.word) - 1);
  member.endpoint->report_progress(position);
}

std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const Member&)>& decide) {
  // Not one of the preflight's, which uses small numbers.
  const Tag tag{pipeline, Traffic::control, 0, -1, static_cast<std::int32_t>(topic), 0};
  std::string agreed;
  world.run_on_local_ranks([&](const Member& member) {
    std::string decision;
    if (member.rank == WorldRank(0)) {
      decision = decide(member);
      for (int r = 1; r < member.world_size(); ++r) member.endpoint->send(WorldRank(r), tag, text_message(decision));
    } else {
      decision = text_of(member.endpoint->receive(WorldRank(0), tag, "what rank 0 measures"));
    }
    if (member.collects) agreed = decision;
  });
  return agreed;
}

std::string Agreement::on(Topic topic, const std::function<std::string(const Member&)>& decide) const {
  return decided_on_rank_0(world, pipeline, topic, [&](const Member& member) {
    // Here, where a complaint ends all ranks: only this one looks at the sample.
    require_sample(sample, graph.inputs);
    return decide(member);
  });
}

}  // namespace penstock
