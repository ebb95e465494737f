#include "penstock/runtime/recovered_state.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "penstock/base/error.h"
#include "penstock/world/collectives.h"
#include "penstock/world/reason.h"

namespace penstock {
namespace {

/// What rank 0 tells all ranks: the step before which they give their state, or that there is none.
struct Decision {
  static constexpr std::string_view record_name = "Decision";
  std::uint64_t step = 0;
  std::uint64_t is_possible = 1;
};

/// The newest step before which every rank knows the state. `known` is by world rank.
Decision decided(const std::vector<StageHistories::KnownSteps>& known, int replicas) {
  std::uint64_t all_completed = known.front().completed, completed = all_completed, oldest = 0;
  for (std::size_t rank = 0; rank < known.size(); ++rank) {
    all_completed = std::min(all_completed, known[rank].completed);
    if (rank % static_cast<std::size_t>(replicas) != 0) continue;  // replica 0 gives the state
    completed = std::min(completed, known[rank].completed);
    oldest = std::max(oldest, known[rank].oldest);
  }
  // Where another replica is far behind, replica 0 may have forgotten the state before the step that failed there.
  const std::uint64_t step = std::max(all_completed, oldest);
  return {step, step <= completed};
}

/// Called on every rank's thread.
Decision decide_together(const RecoveryRank& rank, const Tag& tag) {
  const auto decide = [&](const std::vector<Message>& messages) {
    std::vector<StageHistories::KnownSteps> known;
    for (const Message& message : messages) known.push_back(record_in<StageHistories::KnownSteps>(message));
    return message_of(decided(known, rank.context.replicas));
  };
  return record_in<Decision>(
      agree(rank.context, control_tag(tag.pipeline, Topic::state, tag.step),
            message_of(rank.runner->histories().known_steps()), decide,
            {.parts = "the steps that it has completed", .decision = "which step's state rank 0 takes"}));
}

/// Parameters and buffers whose owner `runner` is, with the values that `value_of` gives.
std::vector<std::pair<std::string, torch::Tensor>> owned(
    const RankContext& context, const RankRunner& runner,
    const std::function<torch::Tensor(const Stage&, const Stage::Held&)>& value_of) {
  std::vector<std::pair<std::string, torch::Tensor>> own;
  if (context.replica() != Replica(0)) return own;
  for (const auto& stage : runner.stages())
    for (const Stage::Held& held : stage->state())
      if (held.is_owned_by(stage->id())) own.emplace_back(held.name, value_of(*stage, held));
  return own;
}

}  // namespace

std::vector<std::pair<std::string, torch::Tensor>> state_of(const RankContext& context, const RankRunner& runner) {
  return owned(context, runner, [](const Stage&, const Stage::Held& held) { return held.value; });
}

std::map<std::string, torch::Tensor> recovered_state(const std::vector<RecoveryRank>& ranks, const Tag& tag,
                                                     const std::string& failure) {
  std::map<std::string, torch::Tensor> state;
  std::optional<std::uint64_t> torn_update;  // counted from 1
  std::vector<std::exception_ptr> errors(ranks.size());
  const auto recover = [&](const RecoveryRank& rank) {
    const RankContext& context = rank.context;
    const Decision decision = decide_together(rank, tag);
    if (context.rank == WorldRank(0) && decision.is_possible == 0) torn_update = decision.step;
    if (decision.is_possible == 0) return;
    auto all =
        gather_tensors(context, tag, owned(context, *rank.runner, [&](const Stage& stage, const Stage::Held& held) {
                         return rank.runner->histories().of(stage.id()).value_before(decision.step, held);
                       }));
    if (context.rank == WorldRank(0)) state = std::move(all);
  };
  std::vector<std::thread> threads;  // of each rank, because ranks wait for each other
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        const RankDeviceGuard guard(ranks[i].runner->device());
        recover(ranks[i]);
      } catch (...) {
        errors[i] = std::current_exception();
        ranks[i].context.endpoint->abort(reason_of(errors[i]));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  require<RankFailure>(!torn_update, "update ", torn_update.value_or(0), " is not complete on all stages, so that no ",
                       "complete set of parameters is left: continue from a checkpoint, or train with keep_last_step ",
                       "(--keep-last-step), which keeps the set before each update (", failure, ")");
  return state;
}

}  // namespace penstock
