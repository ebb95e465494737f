#include "penstock/cli/schedule_argument.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/value_flags.h"
#include "penstock/plan/plan_file.h"
#include "penstock/plan/stage_cost_text.h"

namespace penstock::cli {
namespace {

void require_same(const std::string& path, const char* what, int held, const char* flag, std::optional<int> given) {
  require<ConfigError>(!given || *given == held, path, " has ", held, " ", what, ", but ", flag, " says ",
                       given.value_or(0), ": leave ", flag, " out or pass ", held);
}

/// Communication of a lowered schedule is generated again along the same links; so the schedule must be valid as it is.
Schedule fused(const Schedule& schedule, const FuseOptions& options) {
  if (!schedule.is_lowered()) return fuse_w(schedule, options);
  validate(schedule).require_ok(schedule);
  return lower(fuse_w(strip(schedule), options), links_of(schedule),
               {.reduce = schedule.has(Op::reduce), .norm = schedule.has(Op::norm), .step = schedule.has(Op::step)});
}

bool is_plan_file(std::string_view path) { return path.ends_with(".plan"); }

Schedule schedule_in(const std::string& path, std::vector<std::string>& notes) {
  if (!is_plan_file(path)) return load_schedule(path, &notes);
  return read_file(path, [](const std::string& text) { return read_plan(text).schedule; });
}

std::vector<double> parse_bytes_list(const std::string& text) {
  std::vector<double> list;
  for (const std::string_view item : listed_items(text)) {
    const std::optional<std::int64_t> bytes = parse_bytes(item);
    require<ConfigError>(bytes.has_value(), "--activation-bytes: '", item,
                         "' is not a number of bytes; write bytes as 24MiB or 24MiB,16MiB, with the units ",
                         byte_unit_names);
    list.push_back(static_cast<double>(*bytes));
  }
  return list;
}

}  // namespace

void ScheduleArgument::add_to(CLI::App& verb) {
  const std::string names = listed(generators(), ", ", &ScheduleGenerator::name);
  verb.add_option("--schedule,schedule", source_, "a schedule's name (" + names + ") or a .sched, CSV or .plan file")
      ->type_name("NAME|FILE");
  verb.add_option("--stages", stages_, "p, pipeline ranks; a schedule file contains its own")->type_name("P");
  verb.add_option("--micro-batches", micro_batches_, "m, micro-batches per step; a schedule file contains its own")
      ->type_name("M");
  verb.add_option("--chunks", chunks_, "v, stages per rank (default: the schedule's own)")->type_name("V");
  add_memory_limit(verb, memory_limit_, ", which need --activation-bytes");
  // A flag, not an option: it takes a value only after "=", so that a schedule's name may follow it.
  verb.add_flag("--fuse-w{all}", fuse_w_,
                "fuse the W of all micro-batches of a stage, or of as many as --memory-limit allows; --fuse-w=GROUP: "
                "of GROUP micro-batches each");
}

NamedSchedule ScheduleArgument::get(const GivenCosts& given) const {
  require<ConfigError>(!source_.empty(), "which schedule? Give --schedule NAME or FILE");
  NamedSchedule named = is_schedule_file(source_) ? from_file(given) : from_generator(given);
  const StageCosts& costs = named.costs;
  if (!fuse_w_.empty()) {
    named.schedule = fused(named.schedule, fuse_options(named.schedule, costs));
    named.activation_bound.reset();  // the generator's bound does not hold for the fused schedule
    named.fits_limit = false;
  }
  // A generator that adapts to a multiple counts the weight share of a micro-batch from I to W, and the limit does not.
  if (memory_limit_ && (!named.fits_limit || is_in_bytes(*memory_limit_))) {
    require_memory_limit(*memory_limit_, costs);
    if (!is_in_bytes(*memory_limit_)) named.activation_bound = activation_limit(named.schedule, *memory_limit_);
    if (validate(named.schedule).ok) require_within_limit(named.schedule, *memory_limit_, costs);
  }
  return named;
}

std::vector<NamedSchedule> ScheduleArgument::get_all(const GivenCosts& given) const {
  std::vector<NamedSchedule> schedules;
  std::vector<std::string_view> known;
  for (const std::string_view source : listed_items(source_)) {
    if (std::ranges::find(known, source) != known.end()) continue;
    known.push_back(source);
    ScheduleArgument one = *this;
    one.source_ = source;
    schedules.push_back(one.get(given));
  }
  return schedules;
}

FuseOptions ScheduleArgument::fuse_options(const Schedule& schedule, const StageCosts& costs) const {
  FuseOptions options;
  if (fuse_w_ != "all") {
    options.group = number_of<int>(fuse_w_).value_or(0);
    require<ConfigError>(options.group > 0, "--fuse-w=", fuse_w_,
                         ": pass a number of micro-batches >= 1, or --fuse-w without a number for all");
  } else if (memory_limit_) {
    options.activation_limit = fuse_limit(schedule, *memory_limit_, costs);
  }
  return options;
}

NamedSchedule ScheduleArgument::from_file(const GivenCosts& given) const {
  NamedSchedule result;
  result.schedule = schedule_in(source_, result.notes);
  result.is_planned = is_plan_file(source_);
  const int ranks = result.schedule.rank_count();
  const int stages = result.schedule.stage_count();
  require_same(source_, "pipeline ranks", ranks, "--stages", stages_);
  require_same(source_, "micro-batches", result.schedule.micro_batches, "--micro-batches", micro_batches_);
  require<ConfigError>(!chunks_ || *chunks_ * static_cast<long long>(ranks) == stages, source_, " has ", stages,
                       " stages on ", ranks, " pipeline ranks, but --chunks says ", chunks_.value_or(0),
                       " on each: leave --chunks out");
  result.costs = given.of_stages(stages / ranks);
  require_costs_fit(result.costs, stages);
  return result;
}

NamedSchedule ScheduleArgument::from_generator(const GivenCosts& given) const {
  const ScheduleGenerator& generator = find_generator(source_);
  require<ConfigError>(stages_ && micro_batches_, "schedule '", source_, "' needs --stages P and --micro-batches M: ",
                       stages_          ? "--micro-batches is"
                       : micro_batches_ ? "--stages is"
                                        : "both are",
                       " missing");
  const ScheduleShape shape{*stages_, *micro_batches_, chunks_.value_or(generator.default_chunks)};
  const StageCosts costs = given.of_stages(shape.chunks);
  Tuning tuning{.costs = costs};
  if (memory_limit_) tuning.memory_limit = *memory_limit_;
  return {generate(source_, shape, tuning), costs, {}, generator.activation_bound(shape, tuning), generator.fits_limit};
}

Schedule ready_to_run(const NamedSchedule& named) {
  const ValidateOptions options{.links = {}, .activation_bound = named.activation_bound};
  validate(named.schedule, options).require_ok(named.schedule);
  return named.schedule.is_lowered() ? named.schedule : lower(named.schedule);
}

void CostFlags::add_to(CLI::App& verb) {
  const auto add = [&](const char* flag, std::optional<std::string>& text, const char* type, const char* what) {
    verb.add_option(flag, text, what)->type_name(type);
  };
  constexpr const char* per_stage = "COST[,COST...]";
  add("--cost-f", forward_, per_stage, "F, the forward of one micro-batch: for all stages, or one for each [1]");
  add("--cost-i", input_grad_, per_stage, "I, the gradient of a stage's inputs [1]");
  add("--cost-w", weight_grad_, per_stage, "W, the gradient of a stage's parameters; B takes I + W [1]");
  add("--cost-update", update_, per_stage, "the optimiser's step [0]");
  add("--cost-comm", message_, "COST", "C, the time a message takes [0]");
  verb.add_option("--cost-gap", gap_, "the part of C in which a message occupies its link: the next one waits [0]")
      ->type_name("COST")
      ->check(CLI::NonNegativeNumber);
  add_choice(verb, "--cost-per", per_, {"stage", "rank"},
             "stage; or rank: its v stages share the costs, so that schedules of different v do the same work");
  verb.add_option("--weight-share", weight_share_, "fraction of a micro-batch's activations that W needs after I [0.5]")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE");
  add("--activation-bytes", activation_bytes_, "BYTES[,BYTES...]",
      "the activations of one micro-batch, such as 24MiB: for all stages, or for each; for a --memory-limit in bytes");
  const auto add_term = [&](const char* flag, std::optional<double>& term, const char* what) {
    verb.add_option(flag, term, what)->type_name("X")->check(CLI::NonNegativeNumber);
  };
  add_term("--slowdown", slowdown_, "F, B, I and W take 1 + X times their costs in a whole step [0]");
  add_term("--send-share", send_share_, "a message also occupies the rank that sends it, for X times C [0]");
  add_term("--per-step", per_step_, "time that every step takes in addition, such as data loading [0]");
  add("--cost-file", file_, "FILE", "these costs as JSON; flags go before it (docs/schedule_format.md)");
}

GivenCosts CostFlags::costs() const {
  StageCosts costs = file_ ? read_file(*file_, read_stage_costs) : StageCosts::unit();
  const auto take = [](const char* flag, const std::optional<std::string>& text, std::vector<double>& into) {
    if (text) into = parse_cost_list(flag, *text);
  };
  take("--cost-f", forward_, costs.forward);
  take("--cost-i", input_grad_, costs.input_grad);
  take("--cost-w", weight_grad_, costs.weight_grad);
  take("--cost-update", update_, costs.update);
  std::vector<double> message{costs.message};
  take("--cost-comm", message_, message);
  require<ConfigError>(message.size() == 1, "--cost-comm ", message_.value_or(""), ": there are ", message.size(),
                       " costs, and all messages take the same: pass 1");
  costs.message = message.front();
  costs.message_gap = gap_.value_or(costs.message_gap);
  costs.weight_share = weight_share_.value_or(costs.weight_share);
  costs.terms = {slowdown_.value_or(costs.terms.slowdown), send_share_.value_or(costs.terms.send_share),
                 per_step_.value_or(costs.terms.per_step)};
  if (activation_bytes_) costs.activation_bytes = parse_bytes_list(*activation_bytes_);
  return {costs, per_ == "rank"};
}

}  // namespace penstock::cli
