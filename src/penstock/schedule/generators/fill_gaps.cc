#include "penstock/schedule/generators/fill_gaps.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

/// The progress of one stage.
struct StageState {
  double clock = 0;
  double first_begin = 0;
  double idle = 0;       // since first_begin
  double allowance = 0;  // added to the policy's: the difference between the busiest stage's work and this one's
  double held = 0;       // the peak so far, counted as ActivationCap
  int f = 0;             // the number of instructions of each kind that have run
  int i = 0;
  int w = 0;
};

class Filling {
 public:
  Filling(const GapProblem& problem, const GapPolicy& policy, std::vector<Order>* orders)
      : problem_(problem), policy_(policy), orders_(orders), stages_(problem.times.stages()) {
    const std::size_t instructions = stages_.size() * static_cast<std::size_t>(problem.times.micro_batches());
    forward_ends_.resize(instructions);
    input_grad_ends_.resize(instructions);
    double busiest = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) busiest = std::max(busiest, problem.times.micro_batch(s));
    for (std::size_t s = 0; s < stages_.size(); ++s)
      stages_[s].allowance = problem.times.micro_batches() * (busiest - problem.times.micro_batch(s));
  }

  GapOutcome run() {
    for (std::size_t s = stages_.size(); s > 0; --s) runnable_.push_back(s - 1);
    while (!runnable_.empty()) {
      const std::size_t s = runnable_.back();
      runnable_.pop_back();
      advance(s);
    }
    GapOutcome outcome;
    for (const StageState& stage : stages_) {
      outcome.span = std::max(outcome.span, stage.clock - stage.first_begin);
      outcome.makespan = std::max(outcome.makespan, stage.clock);
      outcome.held = std::max(outcome.held, stage.held);
    }
    return outcome;
  }

 private:
  /// Runs the instructions of stage `s` until one depends on an instruction of another stage that has not run yet.
  void advance(std::size_t s) {
    StageState& stage = stages_[s];
    while (stage.i < problem_.times.micro_batches()) {
      const bool forward_next = stage.f < problem_.times.micro_batches() && stage.f < stage.i + policy_.warm_up[s];
      if (!is_known(s, forward_next)) return;
      const double gap = ready(s, forward_next) - stage.clock;
      if (stage.f == 0) {
        stage.clock = stage.first_begin = std::max(0.0, ready(s, forward_next));
      } else if (stage.w < stage.i && ((forward_next && !has_room(s)) || is_filled(s, gap))) {
        run_weight_grad(s);
        continue;
      } else if (gap > 0) {
        stage.idle += gap;
        stage.clock += gap;
      }
      if (forward_next)
        run_forward(s);
      else
        run_input_grad(s);
    }
    while (stage.w < problem_.times.micro_batches()) run_weight_grad(s);
  }

  bool is_filled(std::size_t s, double gap) const {
    const StageState& stage = stages_[s];
    const double w = problem_.times.weight_grad(s);
    if (gap <= rounding_error * w) return false;
    if (gap >= w * (1 - rounding_error)) return true;
    if (stage.f < problem_.times.micro_batches()) return stage.idle + gap > policy_.idle_on_the_way + stage.allowance;
    if (stage.i < problem_.times.micro_batches() - policy_.punctual) return true;
    return stage.idle + gap > policy_.idle_at_the_end + stage.allowance;
  }

  /// The activations that the stage holds after one more forward.
  double held_with_next(const StageState& stage) const {
    return stage.f + 1 - stage.i + problem_.cap.weight_share * (stage.i - stage.w);
  }

  bool has_room(std::size_t s) const { return held_with_next(stages_[s]) <= problem_.cap.limits[s] + rounding_error; }

  bool is_known(std::size_t s, bool forward_next) const {
    const StageState& stage = stages_[s];
    if (forward_next) return s == 0 || stages_[s - 1].f > stage.f;
    return s + 1 == stages_.size() || stages_[s + 1].i > stage.i;
  }

  double message(std::size_t from, std::size_t to) const {
    return problem_.times.message(StageId(static_cast<int>(from)), StageId(static_cast<int>(to))).time;
  }

  double ready(std::size_t s, bool forward_next) const {
    const StageState& stage = stages_[s];
    if (forward_next) return s == 0 ? 0 : forward_ends_[cell(s - 1, stage.f)] + message(s - 1, s);
    if (s + 1 == stages_.size()) return forward_ends_[cell(s, stage.i)];
    return input_grad_ends_[cell(s + 1, stage.i)] + message(s + 1, s);
  }

  void run_forward(std::size_t s) {
    StageState& stage = stages_[s];
    write(s, Op::forward, stage.f);
    stage.held = std::max(stage.held, held_with_next(stage));
    stage.clock += problem_.times.forward(s);
    forward_ends_[cell(s, stage.f++)] = stage.clock;
    if (s + 1 < stages_.size()) runnable_.push_back(s + 1);
  }

  void run_input_grad(std::size_t s) {
    StageState& stage = stages_[s];
    write(s, Op::input_grad, stage.i);
    stage.clock += problem_.times.input_grad(s);
    input_grad_ends_[cell(s, stage.i++)] = stage.clock;
    if (s > 0) runnable_.push_back(s - 1);
  }

  void run_weight_grad(std::size_t s) {
    StageState& stage = stages_[s];
    write(s, Op::weight_grad, stage.w++);
    stage.clock += problem_.times.weight_grad(s);
  }

  void write(std::size_t s, Op op, int micro_batch) {
    if (orders_)
      (*orders_)[s].push_back(Instruction::compute(op, StageId(static_cast<std::int32_t>(s)), MicroBatch(micro_batch)));
  }

  std::size_t cell(std::size_t s, int micro_batch) const {
    return s * static_cast<std::size_t>(problem_.times.micro_batches()) + static_cast<std::size_t>(micro_batch);
  }

  const GapProblem& problem_;
  const GapPolicy& policy_;
  std::vector<Order>* orders_;
  std::vector<StageState> stages_;
  std::vector<double> forward_ends_;     // by stage and micro-batch
  std::vector<double> input_grad_ends_;  // the same
  std::vector<std::size_t> runnable_;
};

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
    for (std::size_t s = wait_.size() - 1; s > 0; --s) {
      const StageId here(static_cast<int>(s)), before(static_cast<int>(s - 1));
      wait_[s - 1] = wait_[s] + problem.times.forward(s) + problem.times.input_grad(s) +
                     problem.times.message(before, here).time + problem.times.message(here, before).time;
    }
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

GapOutcome fill_gaps(const GapProblem& problem, const GapPolicy& policy, std::vector<Order>* orders) {
  return Filling(problem, policy, orders).run();
}

std::vector<GapPolicy> gap_policies(const GapProblem& problem) { return Grid(problem).policies(); }

}  // namespace penstock
