#include "penstock/autotune/step_comparison.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <sstream>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/median.h"
#include "penstock/world/agreement.h"

namespace penstock {
namespace {

constexpr double clearly_longer[] = {2, 1.10, 1.06, 1.03};  // after the first, second, ... turn
constexpr int least_turns = 5;
constexpr int most_turns = 12;
constexpr double clearly_shorter = 0.99;
constexpr double turns_won = 0.75;

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

/// How much longer the steps of `one` are, for each turn that both took part in: a turn's times were measured one after
/// the other, so that a change of the machine's speed from turn to turn does not matter.
std::vector<double> ratios(const TurnTimes& one, const TurnTimes& other) {
  std::vector<double> all;
  for (std::size_t turn = 0; turn < std::min(one.size(), other.size()); ++turn) all.push_back(one[turn] / other[turn]);
  return all;
}
double ratio(const TurnTimes& one, const TurnTimes& other) { return median(ratios(one, other)); }

/// Whether `one` should leave. In at least half of the turns it was longer by a factor that falls with their number: in
/// the first two in each, because other programs may double the time of a turn.
bool is_clearly_longer(const TurnTimes& one, const TurnTimes& other) {
  std::vector<double> all = ratios(one, other);
  const std::size_t turns = all.size();
  const auto lower_median = all.begin() + static_cast<std::ptrdiff_t>((turns - 1) / 2);
  std::nth_element(all.begin(), lower_median, all.end());
  return *lower_median > clearly_longer[std::min(turns, std::size(clearly_longer)) - 1];
}

/// Whether `one` is shorter beyond doubt, although the prediction prefers `other`.
bool replaces(const TurnTimes& one, const TurnTimes& other) {
  const std::size_t turns = std::min(one.size(), other.size());
  std::size_t won = 0;
  for (std::size_t turn = 0; turn < turns; ++turn) won += one[turn] < other[turn] ? 1 : 0;
  return ratio(one, other) < clearly_shorter && static_cast<double>(won) >= turns_won * static_cast<double>(turns);
}

}  // namespace

StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure) {
  std::vector<TurnTimes> times(count);
  std::vector<std::size_t> left(count);
  std::iota(left.begin(), left.end(), std::size_t{0});
  const std::int64_t begin = now_ns();
  for (int turn = 0; turn < most_turns && left.size() > 1; ++turn) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::size_t candidate = turn % 2 == 0 ? left[i] : left[left.size() - 1 - i];
      const std::vector<double> measured = of_rank_0(world, measure(candidate));
      require<InternalError>(!measured.empty(), "no step of a candidate was measured");
      times[candidate].push_back(lower_quartile(measured));
    }
    const TurnTimes& first = times[left.front()];
    const std::size_t shortest =
        *std::ranges::min_element(left, {}, [&](std::size_t candidate) { return ratio(times[candidate], first); });
    std::erase_if(left, [&](std::size_t candidate) { return is_clearly_longer(times[candidate], times[shortest]); });
    if (of_rank_0(world, {ms_since(begin)}).front() > how.budget_ms && turn + 1 >= least_turns) break;
  }
  StepComparison comparison{left.front(), {}};
  for (const std::size_t candidate : left)
    if (replaces(times[candidate], times[comparison.best])) comparison.best = candidate;
  const TurnTimes& best = times[comparison.best];
  const double best_ms = best.empty() ? 0 : lower_quartile(best);
  for (const TurnTimes& of_candidate : times)
    comparison.step_ms.push_back(best.empty() ? 0 : best_ms * ratio(of_candidate, best));
  return comparison;
}

}  // namespace penstock
