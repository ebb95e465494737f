#include "penstock/schedule/generators/fill_gaps.h"

#include <algorithm>
#include <cstddef>

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

  double ready(std::size_t s, bool forward_next) const {
    const StageState& stage = stages_[s];
    if (forward_next) return s == 0 ? 0 : forward_ends_[cell(s - 1, stage.f)] + problem_.times.message();
    if (s + 1 == stages_.size()) return forward_ends_[cell(s, stage.i)];
    return input_grad_ends_[cell(s + 1, stage.i)] + problem_.times.message();
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

}  // namespace

GapOutcome fill_gaps(const GapProblem& problem, const GapPolicy& policy, std::vector<Order>* orders) {
  return Filling(problem, policy, orders).run();
}

}  // namespace penstock
