#include "penstock/autotune/step_comparison.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <sstream>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/world/agreement.h"

namespace penstock {
namespace {

constexpr double clearly_longer[] = {2, 1.10, 1.06, 1.03};  // after the first, second, ... round
constexpr std::size_t least_rounds = 5;
constexpr std::size_t most_rounds = 12;
constexpr double clearly_shorter = 0.99;
constexpr double disturbed = 1.15;  // the longest round of a candidate beside its shortest

double lower_quartile(std::vector<double> values) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

/// The numbers of world rank 0.
std::vector<double> of_rank_0(World& world, const std::vector<double>& own) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  for (const double number : own) text << number << " ";
  std::istringstream agreed(
      decided_on_rank_0(world, world.next_pipeline(), Topic::steps, [&](const RankContext&) { return text.str(); }));
  std::vector<double> numbers;
  for (double number = 0; agreed >> number;) numbers.push_back(number);
  return numbers;
}

/// A candidate's times, one of each round in which it took part. All took part in the first round, and none came back.
using RoundTimes = std::vector<double>;

double shortest(const RoundTimes& times) { return *std::ranges::min_element(times); }

/// Whether other programs disturb the measurements.
bool is_disturbed(const RoundTimes& times) { return *std::ranges::max_element(times) > disturbed * shortest(times); }

/// Whether `one` should leave: its shortest round, and at least half of its rounds beside those of `other`, were longer
/// by a factor that falls with their number. In the first two that is each round.
bool is_clearly_longer(const RoundTimes& one, const RoundTimes& other) {
  const std::size_t rounds = one.size();
  const bool is_early = rounds < least_rounds && is_disturbed(other);
  const double factor = clearly_longer[is_early ? 0 : std::min(rounds, std::size(clearly_longer)) - 1];
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds; ++round) ratios.push_back(one[round] / other[round]);
  const auto lower_median = ratios.begin() + static_cast<std::ptrdiff_t>((rounds - 1) / 2);
  std::ranges::nth_element(ratios, lower_median);
  return *lower_median > factor && shortest(one) > factor * shortest(other);
}

}  // namespace

StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure) {
  std::vector<RoundTimes> times(count);
  std::vector<std::size_t> left(count);
  std::iota(left.begin(), left.end(), std::size_t{0});
  const std::int64_t begin = now_ns();
  for (std::size_t round = 0; round < most_rounds && left.size() > 1; ++round) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::size_t candidate = round % 2 == 0 ? left[i] : left[left.size() - 1 - i];
      const std::vector<double> measured = of_rank_0(world, measure(candidate));
      require<InternalError>(!measured.empty(), "no step of a candidate was measured");
      times[candidate].push_back(lower_quartile(measured));
    }
    const std::size_t best =
        *std::ranges::min_element(left, {}, [&](std::size_t candidate) { return shortest(times[candidate]); });
    std::erase_if(left, [&](std::size_t candidate) { return is_clearly_longer(times[candidate], times[best]); });
    if (of_rank_0(world, {ms_since(begin)}).front() > how.budget_ms && round + 1 >= least_rounds) break;
  }
  StepComparison comparison{left.front(), {}};
  for (const std::size_t candidate : left)
    if (left.size() > 1 && shortest(times[candidate]) < clearly_shorter * shortest(times[comparison.best]))
      comparison.best = candidate;
  for (const RoundTimes& of_candidate : times)
    comparison.step_ms.push_back(of_candidate.empty() ? 0 : shortest(of_candidate));
  return comparison;
}

}  // namespace penstock
