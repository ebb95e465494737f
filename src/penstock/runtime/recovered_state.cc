#include "penstock/runtime/recovered_state.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "penstock/base/error.h"
#include "penstock/world/reason.h"

namespace penstock {
namespace {

/// Gathers from all ranks of this process, on a thread each, because they wait for each other.
std::map<std::string, torch::Tensor> gather_from(
    const std::vector<RecoveryRank>& ranks, const GatherTag& tag,
    const std::function<std::vector<std::pair<std::string, torch::Tensor>>(const RecoveryRank&)>& own) {
  std::map<std::string, torch::Tensor> all;
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        auto gathered = gather_tensors(ranks[i].context, tag, own(ranks[i]));
        if (ranks[i].context.rank == WorldRank(0)) all = std::move(gathered);
      } catch (...) {
        errors[i] = std::current_exception();
        ranks[i].context.endpoint->abort(reason_of(errors[i]));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return all;
}

}  // namespace

std::vector<std::pair<std::string, torch::Tensor>> state_of(const RankContext& context, const RankRunner& runner) {
  std::vector<std::pair<std::string, torch::Tensor>> own;
  if (context.replica() != Replica(0)) return own;
  for (const auto& stage : runner.stages())
    for (const Stage::Held& held : stage->state())
      if (held.all_uses.list.empty() || held.all_uses.owner() == stage->id()) own.emplace_back(held.name, held.value);
  return own;
}

std::map<std::string, torch::Tensor> recovered_state(const std::vector<RecoveryRank>& ranks, const GatherTag& tag,
                                                     const std::string& failure) {
  // By world rank: the number of updates of its stages.
  const auto counts = gather_from(ranks, {tag.pipeline, tag.round}, [](const RecoveryRank& rank) {
    const ParameterUpdater::Updates updates = rank.runner->updater().updates();
    return std::vector<std::pair<std::string, torch::Tensor>>{
        {say(rank.context.rank.value()), torch::tensor({updates.fewest, updates.most, std::int64_t{updates.torn}})}};
  });
  auto state = gather_from(ranks, {tag.pipeline, tag.round + 1},
                           [](const RecoveryRank& rank) { return state_of(rank.context, *rank.runner); });
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (const auto& [rank, numbers] : counts) {
    const auto number = [&](int i) { return numbers[i].item<std::int64_t>(); };
    require<RankFailure>(number(2) == 0, "rank ", rank, " failed in the middle of an update, so that no complete set ",
                         "of parameters is left: continue from a checkpoint (", failure, ")");
    fewest = std::min(fewest, number(0));
    most = std::max(most, number(1));
  }
  require<RankFailure>(counts.empty() || fewest == most, "some stages have taken update ", most,
                       ", others only update ", fewest, ", so that no complete set of parameters is left: continue ",
                       "from a checkpoint (", failure, ")");
  return state;
}

}  // namespace penstock
