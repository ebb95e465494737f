#include "penstock/runtime/plans.h"

#include <algorithm>
#include <filesystem>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The part of `schedule` that concerns the first `micro_batches`. What depends on fewer micro-batches cannot wait for
/// more than before, so a schedule that is live stays live.
Schedule restricted(const Schedule& schedule, int micro_batches) {
  Schedule part = schedule;
  part.micro_batches = micro_batches;
  for (Order& order : part.orders)
    std::erase_if(order, [&](const Instruction& i) { return is_compute(i.op()) && i.last().value() >= micro_batches; });
  return part;
}

/// The same placement, forward words only, in the order of the training schedule's forward words.
Schedule forward_part(const Schedule& schedule) {
  Schedule part = schedule;
  part.name = "forward-only";
  for (Order& order : part.orders)
    std::erase_if(order, [](const Instruction& i) { return i.op() != Op::forward; });
  return part;
}

bool names_a_file(const std::string& schedule) { return schedule.find_first_of("./") != std::string::npos; }

void check_words(const Schedule& schedule) {
  for (const Order& order : schedule.orders)
    for (const Instruction& i : order)
      require<PlanError>(i.op() == Op::forward || i.op() == Op::backward, "schedule '", schedule.name, "' holds ",
                         to_string(i), ": this version trains with F and B words alone, not with split backward "
                         "passes or norms");
}

}  // namespace

RunPlan::RunPlan(Schedule lowered, Links links)
    : schedule(std::move(lowered)), dependencies(schedule, std::move(links)) {
  for (const Order& order : schedule.orders) programs.emplace_back(order, dependencies);
}

Plans::Plans(const PlanRequest& request) : request_(request), from_file_(names_a_file(request.schedule)) {
  require<ConfigError>(request.micro_batches >= 1, "micro-batches = ", request.micro_batches,
                       ", but a step has at least 1");
  if (from_file_) {
    training_ = strip(load_schedule(request.schedule));
    require<ConfigError>(training_.rank_count() == request.ranks, "schedule file '", request.schedule, "' is for ",
                         training_.rank_count(), " ranks, but the pipeline has ", request.ranks, " stages: ask for ",
                         training_.rank_count(), " stages, or take another file");
    require<ConfigError>(training_.micro_batches == request.micro_batches, "schedule file '", request.schedule,
                         "' is for ", training_.micro_batches, " micro-batches, but the pipeline is asked for ",
                         request.micro_batches, ": ask for ", training_.micro_batches, ", or take another file");
    judge(training_).require_ok(training_);
  } else {
    training_ = generate(request.schedule, {.ranks = request.ranks, .micro_batches = request.micro_batches});
  }
  require<PlanError>(!training_.is_forward_only(), "schedule '", request.schedule,
                     "' has no backward words: it cannot train");
  check_words(training_);
}

Schedule Plans::compute_words(int micro_batches) const {
  if (from_file_) return restricted(training_, micro_batches);
  return generate(request_.schedule, {.ranks = request_.ranks, .micro_batches = micro_batches});
}

std::shared_ptr<const RunPlan> Plans::for_training(int micro_batches) {
  auto& plan = known_[{true, micro_batches}];
  if (!plan) plan = micro_batches > 0 ? training_plan(micro_batches) : plan_without_samples();
  return plan;
}

std::shared_ptr<const RunPlan> Plans::training_plan(int micro_batches) const {
  Schedule lowered = lower(compute_words(micro_batches), links_, {.reduce = request_.reduce, .step = true});
  JudgeOptions options{.links = links_, .activation_bound = std::nullopt};
  if (!from_file_)
    options.activation_bound =
        find_generator(request_.schedule).activation_bound({.ranks = request_.ranks, .micro_batches = micro_batches}, {});
  const Verdict verdict = judge(lowered, options);
  verdict.require_ok(lowered);
  auto plan = std::make_shared<RunPlan>(std::move(lowered), links_);
  plan->peak_activations = verdict.peak_activations;
  return plan;
}

// A replica whose share is empty still takes part in what belongs to the whole step.
std::shared_ptr<const RunPlan> Plans::plan_without_samples() {
  Schedule tail = for_training(1)->schedule;
  tail.micro_batches = 0;
  for (Order& order : tail.orders) std::erase_if(order, [](const Instruction& i) { return !is_step_wide(i.op()); });
  auto plan = std::make_shared<RunPlan>(std::move(tail), links_);
  plan->peak_activations.assign(static_cast<std::size_t>(request_.ranks), 0);
  return plan;
}

std::shared_ptr<const RunPlan> Plans::for_forward(int micro_batches) {
  auto& plan = known_[{false, micro_batches}];
  if (plan) return plan;
  const Schedule compute_words = forward_part(restricted(training_, micro_batches));
  Schedule lowered = lower(compute_words, links_, {.reduce = false, .step = false});
  if (micro_batches > 0) judge(lowered, {.links = links_, .activation_bound = std::nullopt}).require_ok(lowered);
  auto made = std::make_shared<RunPlan>(std::move(lowered), links_);
  made->peak_activations.assign(static_cast<std::size_t>(request_.ranks), 0);
  return plan = std::move(made);
}

}  // namespace penstock
