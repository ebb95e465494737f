// Pipeline::time_layers.
#include "penstock/base/error.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/rank_runner.h"
#include "penstock/runtime/time_layers.h"
#include "penstock/world/agreement.h"
#include "penstock/world/cache_share.h"
#include "penstock/world/gather.h"

namespace penstock {

TimedSteps Pipeline::time_layers(const BatchTensors& inputs, const BatchTensors& targets, int steps) {
  require<ConfigError>(steps >= 1, "layers timed over ", steps, " steps: give at least 1");
  const auto run = [&](int count) {
    while (count-- > 0) train_step(inputs, targets).wait();
  };
  run(untimed_steps - 1);
  clear_trace();
  run(1);
  on_each_rank([](RankRunner& runner) { runner.set_timing(true); });
  run(steps);
  const Trace steps_taken = trace();
  const GatherTag tag = next_gathering();
  std::map<std::string, torch::Tensor> timed;
  on_each_rank([&](RankRunner& runner) {
    std::vector<std::pair<std::string, torch::Tensor>> own;
    if (runner.context().replica() == Replica(0)) own = runner.timed_nodes(static_cast<std::size_t>(steps));
    auto gathered = gather_tensors(runner.context(), tag, own);
    if (runner.context().rank == WorldRank(0)) timed = std::move(gathered);
  });
  on_each_rank([](RankRunner& runner) { runner.set_timing(false); });
  return timed_steps_from(decided_on_rank_0(world(), tag.pipeline, Topic::layer_times, [&](const RankContext& context) {
    TimedSteps combined = put_together(stages(), timed, steps_taken);
    if (options().device == "cpu")
      combined.costs.cache_bytes = static_cast<double>(cache_share(ranks_on_host(*context.endpoint)));
    return to_text(combined);
  }));
}

}  // namespace penstock
