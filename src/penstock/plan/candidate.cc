#include "penstock/plan/candidate.h"

#include <algorithm>
#include <tuple>

namespace penstock {
namespace {

constexpr double accuracy_of_predictions = 1.1;
constexpr double accuracy_of_weight_gradients = 1.5;

bool streams(const Candidate& candidate) { return candidate.weight_gradients == WeightGradients::stream; }

/// Whether they differ at most in a memory limit that their generator fits.
bool are_alike(const Candidate& a, const Candidate& b) {
  return a.schedule == b.schedule && a.chunks == b.chunks && a.micro_batches == b.micro_batches &&
         a.weight_gradients == b.weight_gradients;
}

/// Whether both run the same step.
bool are_twins(const Plan& a, const Plan& b) {
  return a.schedule.micro_batches == b.schedule.micro_batches && a.schedule.rank_of_stage == b.schedule.rank_of_stage &&
         a.schedule.orders == b.schedule.orders && a.stages == b.stages;
}

}  // namespace

std::size_t simplest_within(std::span<const Candidate> candidates, double share) {
  if (share == 0) return 0;
  const Candidate& first = candidates.front();
  const auto is_near = [&](const Candidate& one) {
    return one.fits && one.ranks == first.ranks && one.replicas == first.replicas &&
           one.micro_batches == first.micro_batches &&
           one.prediction.makespan <= first.prediction.makespan * (1 + share);
  };
  const auto simplest = std::ranges::min_element(candidates, {}, [&](const Candidate& one) {
    return std::tuple(!is_near(one), one.chunks, one.weight_gradients != WeightGradients::stream);
  });
  return static_cast<std::size_t>(simplest - candidates.begin());
}

std::vector<std::size_t> finalists_of(std::span<const Candidate> candidates, int most,
                                      const std::function<Plan(std::size_t)>& plan_of) {
  std::vector<std::size_t> chosen;
  std::vector<Plan> plans;  // of the chosen ones
  const auto take = [&](std::size_t index) {
    const auto is_alike = [&](std::size_t other) { return are_alike(candidates[other], candidates[index]); };
    if (std::any_of(chosen.begin(), chosen.end(), is_alike)) return;
    Plan plan = plan_of(index);
    if (std::any_of(plans.begin(), plans.end(), [&](const Plan& other) { return are_twins(other, plan); })) return;
    chosen.push_back(index);
    plans.push_back(std::move(plan));
  };
  const auto is_within = [&](const Candidate& candidate, double factor) {
    return candidate.fits && candidate.prediction.makespan <= factor * candidates.front().prediction.makespan;
  };
  if (most < 1 || candidates.empty() || !candidates.front().fits) return chosen;
  take(0);
  const Candidate& best = candidates.front();
  const auto take_first = [&](const std::function<bool(const Candidate&)>& suits) {
    const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
      return streams(candidate) != streams(best) && suits(candidate);
    });
    if (chosen.size() < static_cast<std::size_t>(most) && found != candidates.end() &&
        is_within(*found, accuracy_of_weight_gradients))
      take(static_cast<std::size_t>(found - candidates.begin()));
  };
  take_first([](const Candidate&) { return true; });
  take_first([&](const Candidate& candidate) {
    return candidate.schedule == best.schedule && candidate.chunks == best.chunks &&
           candidate.micro_batches == best.micro_batches;
  });
  for (std::size_t i = 1; i < candidates.size() && chosen.size() < static_cast<std::size_t>(most); ++i) {
    if (!is_within(candidates[i], accuracy_of_predictions)) break;
    take(i);
  }
  return chosen;
}

}  // namespace penstock
