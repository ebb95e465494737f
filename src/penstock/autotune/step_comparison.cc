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

constexpr double clearly_longer[] = {2, 1.10, 1.06, 1.03};  // after the first, second, ... turn
constexpr std::size_t least_turns = 5;
constexpr std::size_t most_turns = 12;
constexpr double clearly_shorter = 0.99;
constexpr double disturbed = 1.15;  // the longest turn of a candidate beside its shortest

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

/// A candidate's times, one of each turn in which it took part. All took part in the first turn, and none came back.
using TurnTimes = std::vector<double>;

double shortest(const TurnTimes& times) { return *std::ranges::min_element(times); }

/// Whether other programs disturb the measurements.
bool is_disturbed(const TurnTimes& times) { return *std::ranges::max_element(times) > disturbed * shortest(times); }

/// Whether `one` should leave: its shortest turn, and at least half of its turns beside those of `other`, were longer
/// by a factor that falls with their number. In the first two that is each turn.
bool is_clearly_longer(const TurnTimes& one, const TurnTimes& other) {
  const std::size_t turns = one.size();
  const bool is_early = turns < least_turns && is_disturbed(other);
  const double factor = clearly_longer[is_early ? 0 : std::min(turns, std::size(clearly_longer)) - 1];
  std::vector<double> ratios;
  for (std::size_t turn = 0; turn < turns; ++turn) ratios.push_back(one[turn] / other[turn]);
  const auto lower_median = ratios.begin() + static_cast<std::ptrdiff_t>((turns - 1) / 2);
  std::ranges::nth_element(ratios, lower_median);
  return *lower_median > factor && shortest(one) > factor * shortest(other);
}

}  // namespace

StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure) {
  std::vector<TurnTimes> times(count);
  std::vector<std::size_t> left(count);
  std::iota(left.begin(), left.end(), std::size_t{0});
  const std::int64_t begin = now_ns();
  for (std::size_t turn = 0; turn < most_turns && left.size() > 1; ++turn) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::size_t candidate = turn % 2 == 0 ? left[i] : left[left.size() - 1 - i];
      const std::vector<double> measured = of_rank_0(world, measure(candidate));
      require<InternalError>(!measured.empty(), "no step of a candidate was measured");
      times[candidate].push_back(lower_quartile(measured));
    }
    const std::size_t best =
        *std::ranges::min_element(left, {}, [&](std::size_t candidate) { return shortest(times[candidate]); });
    std::erase_if(left, [&](std::size_t candidate) { return is_clearly_longer(times[candidate], times[best]); });
    if (of_rank_0(world, {ms_since(begin)}).front() > how.budget_ms && turn + 1 >= least_turns) break;
  }
  StepComparison comparison{left.front(), {}};
  for (const std::size_t candidate : left)
    if (left.size() > 1 && shortest(times[candidate]) < clearly_shorter * shortest(times[comparison.best]))
      comparison.best = candidate;
  for (const TurnTimes& of_candidate : times)
    comparison.step_ms.push_back(of_candidate.empty() ? 0 : shortest(of_candidate));
  return comparison;
}

}  // namespace penstock
