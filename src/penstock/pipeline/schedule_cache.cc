#include "penstock/pipeline/schedule_cache.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {

namespace {

/// `schedule` without the instructions of all but the first `micro_batches`. Removing instructions only removes
/// dependencies, so a schedule without deadlock stays without deadlock.
Schedule restricted(const Schedule& schedule, int micro_batches) {
  Schedule part = schedule;
  part.micro_batches = micro_batches;
  const MicroBatch last(micro_batches - 1);
  for (Order& order : part.orders) {
    std::erase_if(order, [&](const Instruction& i) { return is_compute(i.op()) && i.first() > last; });
    for (Instruction& i : order)
      if (i.last() > last) i = Instruction::fused_weight_grad(i.stage(), i.first(), last);
  }
  return part;
}

/// The same placement, forward instructions only, in the order of the training schedule's forward instructions.
Schedule forward_part(const Schedule& schedule) {
  Schedule part = schedule;
  part.name = "forward-only";
  for (Order& order : part.orders) {
    std::erase_if(order, [](const Instruction& i) { return i.op() != Op::forward; });
    // An F that was paired with a B becomes a plain one.
    for (Instruction& i : order) i = Instruction::compute(Op::forward, i.stage(), i.micro_batch());
  }
  return part;
}

}  // namespace

ScheduleCache::ScheduleCache(const ScheduleRequest& request) : request_(request) {
  const PipelineOptions& options = request.options;
  const int wanted = options.micro_batches;
  require<ConfigError>(wanted >= 1, "micro-batches = ", wanted, ", but a step has at least 1");
  tuning_.costs = options.costs.value_or(tuning_.costs);
  tuning_.memory_limit = options.memory_limit.value_or(tuning_.memory_limit);
  if (options.memory_limit) require_memory_limit(*options.memory_limit, tuning_.costs);
  require<ConfigError>(options.weight_gradients != WeightGradients::grouped,
                       "weight gradients 'grouped' are the planner's: ask for fused, with a memory limit");
  require<ConfigError>(options.custom || options.schedule != "auto",
                       "schedule 'auto' is chosen by measuring: give the options to autotune() first");
  if (options.custom) {
    source_ = options.custom->name.empty() ? "custom" : options.custom->name;
    take(*options.custom, say("the schedule '", source_, "'"));
  } else if (is_schedule_file(options.schedule)) {
    source_ = options.schedule;
    take(load_schedule(source_), say("schedule file '", source_, "'"));
  } else {
    source_ = options.schedule.empty() ? std::string(default_schedule(options.chunks)) : options.schedule;
    generator_ = &find_generator(source_);
    instructions_ = generate(source_, shape(wanted), tuning_);
  }
  require_single_owner(instructions_, "a pipeline that executes it");
  require<ScheduleError>(!instructions_.is_forward_only(), "schedule '", source_,
                         "' has no backward instructions: it cannot train");
  if (options.memory_limit && is_in_bytes(*options.memory_limit))
    require_costs_fit(tuning_.costs, instructions_.stage_count());
  training_ = compute_instructions(wanted);
}

void ScheduleCache::take(const Schedule& given, const std::string& what) {
  instructions_ = strip(given);
  const int ranks = instructions_.rank_count();
  const int wanted = request_.options.micro_batches;
  const int chunks = request_.options.chunks;
  require<ConfigError>(ranks == request_.ranks, what, " is for ", ranks, " ranks, but the pipeline has ",
                       request_.ranks, ": set stages to ", ranks, ", or use another schedule");
  require<ConfigError>(instructions_.micro_batches == wanted, what, " is for ", instructions_.micro_batches,
                       " micro-batches, but the pipeline is to run ", wanted, ": set micro-batches to ",
                       instructions_.micro_batches, ", or use another schedule");
  require<ConfigError>(chunks == 0 || chunks * ranks == instructions_.stage_count(), what, " has ",
                       instructions_.stage_count(), " stages on ", ranks, " ranks, but chunks is ", chunks,
                       ": leave chunks out");
  validate(instructions_).require_ok(instructions_);
}

ScheduleShape ScheduleCache::shape(int micro_batches) const {
  int chunks = request_.options.chunks;
  if (chunks == 0) chunks = generator_ ? generator_->default_chunks : instructions_.stage_count() / request_.ranks;
  return {.ranks = request_.ranks, .micro_batches = micro_batches, .chunks = chunks};
}

Schedule ScheduleCache::compute_instructions(int micro_batches) const {
  Schedule instructions = instructions_;
  if (micro_batches != instructions_.micro_batches)
    instructions =
        generator_ ? generate(source_, shape(micro_batches), tuning_) : restricted(instructions_, micro_batches);
  if (!is_fused()) return instructions;
  FuseOptions fusing;
  if (const auto& limit = request_.options.memory_limit)
    fusing.activation_limit = fuse_limit(instructions, *limit, tuning_.costs);
  return fuse_w(instructions, fusing);
}

// Validates the schedule, the generator's bound on live micro-batches (which fused W's exceed) and the user's limit.
std::shared_ptr<rank::CompiledSchedule> ScheduleCache::validated(Schedule lowered) const {
  const bool is_promised = generator_ && !is_fused();
  ValidateOptions options{.links = links_, .activation_bound = std::nullopt};
  if (is_promised) options.activation_bound = generator_->activation_bound(shape(lowered.micro_batches), tuning_);
  const Validation result = validate(lowered, options);
  result.require_ok(lowered);
  const auto& limit = request_.options.memory_limit;
  // A generator that adapts to a multiple counts the weight share of a micro-batch from I to W, and the limit does not.
  if (limit && (is_in_bytes(*limit) || !(is_promised && generator_->fits_limit)))
    require_within_limit(lowered, *limit, tuning_.costs);
  auto compiled = std::make_shared<rank::CompiledSchedule>(std::move(lowered), links_);
  compiled->peak_activations = result.peak_activations;
  return compiled;
}

std::shared_ptr<const rank::CompiledSchedule> ScheduleCache::for_training(int micro_batches, rank::StepPart part) {
  auto& compiled = known_[{part, micro_batches}];
  if (compiled) return compiled;
  if (part != rank::StepPart::whole) return compiled = part_of(*for_training(micro_batches), part);
  return compiled = micro_batches > 0 ? compile_training(micro_batches) : compile_without_samples();
}

std::shared_ptr<const rank::CompiledSchedule> ScheduleCache::part_of(const rank::CompiledSchedule& whole,
                                                                     rank::StepPart part) const {
  const auto belongs = [part](Op op) {
    if (part == rank::StepPart::reduce) return op == Op::reduce;
    return part == rank::StepPart::update ? op == Op::norm || op == Op::step : !is_step_wide(op);
  };
  Schedule instructions = whole.schedule;
  for (Order& order : instructions.orders) std::erase_if(order, [&](const Instruction& i) { return !belongs(i.op()); });
  auto compiled = std::make_shared<rank::CompiledSchedule>(std::move(instructions), links_);
  compiled->peak_activations = whole.peak_activations;
  return compiled;
}

std::shared_ptr<const rank::CompiledSchedule> ScheduleCache::compile_training(int micro_batches) const {
  const PipelineOptions& options = request_.options;
  return validated(
      lower(compute_instructions(micro_batches), links_,
            {.reduce = reduce_, .norm = options.clips() || options.precision == Precision::fp16, .step = true}));
}

// A replica whose share is empty still takes part in REDUCE, NORM and STEP.
std::shared_ptr<const rank::CompiledSchedule> ScheduleCache::compile_without_samples() {
  Schedule tail = for_training(1)->schedule;
  tail.micro_batches = 0;
  for (Order& order : tail.orders) std::erase_if(order, [](const Instruction& i) { return !is_step_wide(i.op()); });
  auto compiled = std::make_shared<rank::CompiledSchedule>(std::move(tail), links_);
  compiled->peak_activations.assign(static_cast<std::size_t>(request_.ranks), 0);
  return compiled;
}

std::shared_ptr<const rank::CompiledSchedule> ScheduleCache::for_forward(int micro_batches) {
  auto& compiled = known_forward_[micro_batches];
  if (compiled) return compiled;
  const Schedule compute_instructions = forward_part(restricted(training_, micro_batches));
  Schedule lowered = lower(compute_instructions, links_, {.reduce = false, .step = false});
  if (micro_batches > 0) validate(lowered, {.links = links_, .activation_bound = std::nullopt}).require_ok(lowered);
  auto made = std::make_shared<rank::CompiledSchedule>(std::move(lowered), links_);
  made->peak_activations.assign(static_cast<std::size_t>(request_.ranks), 0);
  return compiled = std::move(made);
}

}  // namespace penstock
