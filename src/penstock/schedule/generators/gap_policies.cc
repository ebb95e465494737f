#include "penstock/schedule/generators/gap_policies.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

namespace penstock {
namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

/// How the warm-up grows with the distance from the last stage.
enum class Growth { to_fill_memory, until_gradient, by_1, by_1_5, by_2, by_1_75, by_1_25 };

struct Ending {
  double factor;  // the allowance as a multiple of the gap that the warm-up leaves
  int punctual;
};

// The grid. Each list begins with the values that give the best schedule most often; a coarse grid uses only these.
constexpr Growth growths[] = {Growth::to_fill_memory, Growth::until_gradient, Growth::by_1,   Growth::by_1_5,
                              Growth::by_2,           Growth::by_1_75,        Growth::by_1_25};
constexpr double round_ups[] = {0.5, 0, 1 - rounding_error};
constexpr double ways[] = {1, 0, 1.5};
constexpr int all_punctual = std::numeric_limits<int>::max();
constexpr Ending endings[] = {{1, all_punctual},       {0, all_punctual}, {forever, 1}, {1.5, all_punctual},
                              {forever, all_punctual}, {forever, 2},      {forever, 4}};

class Grid {
 public:
  explicit Grid(const GapProblem& problem) : problem_(problem), wait_(problem.times.stages(), 0.0) {
    for (std::size_t s = wait_.size() - 1; s > 0; --s)
      wait_[s - 1] = wait_[s] + problem.times.forward(s) + problem.times.input_grad(s) + 2 * problem.times.message();
    double most = problem.times.micro_batches();
    for (const double limit : problem.cap.limits)
      most_.push_back(most = std::min(most, std::floor(limit + rounding_error)));
    const std::size_t instructions = 3 * wait_.size() * static_cast<std::size_t>(problem.times.micro_batches());
    is_coarse_ = instructions > (std::size_t{1} << 17);
  }

  std::vector<GapPolicy> policies() const {
    std::vector<GapPolicy> policies;
    for (const std::vector<int>& warm_up : warm_ups()) {
      const double gap = gap_after(warm_up);
      for (const double way : first(ways, 2))
        for (const Ending& ending : first(endings, 3)) {
          const bool is_repeated = gap <= 0 && (way > 0 || (ending.factor > 0 && ending.factor < forever));
          if (is_repeated) continue;
          policies.push_back({.warm_up = warm_up,
                              .idle_on_the_way = way * gap,
                              .idle_at_the_end = ending.factor < forever ? ending.factor * gap : forever,
                              .punctual = std::min(ending.punctual, problem_.times.micro_batches())});
        }
    }
    return policies;
  }

 private:
  template <class Value, std::size_t size>
  std::span<const Value> first(const Value (&list)[size], std::size_t coarse) const {
    return std::span(list).first(is_coarse_ ? coarse : size);
  }

  std::vector<std::vector<int>> warm_ups() const {
    std::vector<std::vector<int>> found;
    for (const Growth growth : first(growths, 3))
      for (const double round_up : first(round_ups, 2)) {
        std::vector<int> warm_up = warm_up_of(growth, round_up);
        if (std::find(found.begin(), found.end(), warm_up) == found.end()) found.push_back(std::move(warm_up));
      }
    return found;
  }

  std::vector<int> warm_up_of(Growth growth, double round_up) const {
    std::vector<int> warm_up(wait_.size(), 1);
    for (std::size_t s = warm_up.size() - 1; s > 0; --s) {
      const double forwards =
          std::min(most_[s - 1], 1 + std::floor(growth_at(s - 1, growth) + round_up + rounding_error));
      warm_up[s - 1] = std::max(warm_up[s], static_cast<int>(forwards));
    }
    return warm_up;
  }

  /// The number of forwards in the warm-up of stage `s`, without the one that every stage needs.
  double growth_at(std::size_t s, Growth growth) const {
    const auto stages = static_cast<double>(wait_.size());
    const double below = stages - 1 - static_cast<double>(s);
    switch (growth) {
      case Growth::to_fill_memory:
        return below * (std::floor(problem_.cap.limits[s] + rounding_error) - 1) / (stages - 1);
      case Growth::until_gradient: {
        const double f = problem_.times.forward(s);
        return wait_[s] < f * problem_.times.micro_batches() ? wait_[s] / f : problem_.times.micro_batches();
      }
      case Growth::by_1: return below;
      case Growth::by_1_25: return 1.25 * below;
      case Growth::by_1_5: return 1.5 * below;
      case Growth::by_1_75: return 1.75 * below;
      case Growth::by_2: return 2 * below;
    }
    return below;
  }

  /// The idle time of the worst stage before its first I, which no order of W's avoids.
  double gap_after(const std::vector<int>& warm_up) const {
    double busiest = 0;
    for (std::size_t s = 0; s < warm_up.size(); ++s) busiest = std::max(busiest, problem_.times.micro_batch(s));
    double gap = 0;
    for (std::size_t s = 0; s < warm_up.size(); ++s)
      gap = std::max(gap, wait_[s] - (warm_up[s] - 1) * problem_.times.forward(s) -
                              problem_.times.micro_batches() * (busiest - problem_.times.micro_batch(s)));
    return gap;
  }

  const GapProblem& problem_;
  std::vector<double> wait_;  // per stage: the time from the end of its first F to the arrival of its first gradient
  std::vector<double> most_;  // per stage: the most forwards that the memory of it and of those before it permits
  bool is_coarse_ = false;
};

}  // namespace

std::vector<GapPolicy> gap_policies(const GapProblem& problem) { return Grid(problem).policies(); }

}  // namespace penstock
