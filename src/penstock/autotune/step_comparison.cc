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

constexpr double clearly_longer[] = {1.15, 1.10, 1.06, 1.03};  // after the first, second, ... turn
constexpr int least_turns = 2;
constexpr int most_turns = 12;
constexpr double as_short = 1.01;

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

}  // namespace

StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure) {
  StepComparison comparison{.best = 0, .step_ms = std::vector<double>(count, 0)};
  std::vector<std::vector<double>> times(count);
  std::vector<std::size_t> left(count);
  std::iota(left.begin(), left.end(), std::size_t{0});
  const std::int64_t begin = now_ns();
  double shortest = 0;
  for (int turn = 0; turn < most_turns && left.size() > 1; ++turn) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::size_t candidate = turn % 2 == 0 ? left[i] : left[left.size() - 1 - i];
      const std::vector<double> measured = of_rank_0(world, measure(candidate));
      require<InternalError>(!measured.empty(), "no step of a candidate was measured");
      times[candidate].insert(times[candidate].end(), measured.begin(), measured.end());
      comparison.step_ms[candidate] = lower_quartile(times[candidate]);
    }
    shortest = std::numeric_limits<double>::infinity();
    for (const std::size_t candidate : left) shortest = std::min(shortest, comparison.step_ms[candidate]);
    const double longest =
        clearly_longer[std::min<std::size_t>(static_cast<std::size_t>(turn), std::size(clearly_longer) - 1)];
    std::erase_if(left, [&](std::size_t candidate) { return comparison.step_ms[candidate] > longest * shortest; });
    if (of_rank_0(world, {ms_since(begin)}).front() > how.budget_ms && turn + 1 >= least_turns) break;
  }
  for (const std::size_t candidate : left)
    if (comparison.step_ms[candidate] <= as_short * shortest) {
      comparison.best = candidate;
      break;
    }
  return comparison;
}

}  // namespace penstock
