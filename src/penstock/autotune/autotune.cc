#include "penstock/autotune/autotune.h"

#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

#include "penstock/autotune/measured_options.h"
#include "penstock/autotune/tuning_cache.h"
#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/plan/plan_report.h"
#include "penstock/world/agreement.h"

namespace penstock {
namespace {

bool is_auto(const PipelineOptions& options) { return options.schedule == "auto"; }

AutoChoice measured(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                    const AutotuneOptions& how) {
  if (is_auto(options))
    return choose_by_profile(world, network, loss, options, {.profile = how.profile, .comparison = how.comparison});
  return {.options = measured_options(world, network, options)};
}

std::string present_time() {
  const std::time_t now = static_cast<std::time_t>(calendar_s());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32] = "";
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

TuningRecord record_of(const std::string& key, const AutoChoice& choice) {
  const PipelineOptions& options = choice.options;
  TuningRecord record{.key = key,
                      .measured_at = present_time(),
                      .micro_batches = options.micro_batches,
                      .partition = options.partition,
                      .kernels = options.kernel_selection};
  if (choice.planned)
    for (const ComparedCandidate& compared : choice.planned->compared)
      record.steps.push_back({describe(compared.candidate), compared.step_ms});
  record.plan = choice.plan;
  if (choice.plan) record.costs = read_layer_costs(options.layer_costs);
  return record;
}

AutoChoice decision_of(const TuningRecord& record, PipelineOptions options) {
  if (record.plan && record.costs)
    return {.options = decided_options(std::move(options), record.partition, *record.plan, *record.costs),
            .plan = record.plan};
  options.partition = record.partition;
  options.kernel_selection = record.kernels;
  return {.options = std::move(options)};
}

bool needs_times(const PipelineOptions& options) {
  return is_auto(options) || (options.kernels == Kernels::tuned && options.kernel_selection.empty()) ||
         options.partition == "time";
}

/// The record that world rank 0 finds in the cache, on every rank; none where all have to measure. Sets `key` on world
/// rank 0's process.
std::optional<TuningRecord> known_record(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                                         const TuningCache& cache, std::string& key) {
  const std::string text =
      decided_on_rank_0(world, world.next_pipeline(), Topic::tuning, [&](const RankContext& context) {
        key = tuning_key(context, {world.transport(), world.threads(), cache.settings}, network, loss, options);
        const std::optional<TuningRecord> found = cache.find(key);
        // A file for another use of the schedule "auto" can only be the work of an editor: it is measured again.
        return found && found->plan.has_value() == is_auto(options) ? write_tuning_record(*found) : std::string();
      });
  return text.empty() ? std::nullopt : std::optional(read_tuning_record(text));
}

/// The choices that times decide.
AutoChoice chosen_by_times(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                           const AutotuneOptions& how) {
  if (!needs_times(options)) return {.options = options};
  const std::int64_t begin = now_ns();
  std::string key;
  if (how.cache.is_used())
    if (const auto record = known_record(world, network, loss, options, how.cache, key)) {
      AutoChoice choice = decision_of(*record, options);
      if (world.is_main())
        choice.origin =
            say("taken from ", how.cache.file_of(key), " of ", record->measured_at, ", nothing was measured");
      return choice;
    }
  AutoChoice choice = measured(world, network, loss, options, how);
  if (!world.is_main()) return choice;
  choice.origin = say("measured now in ", std::llround(s_since(begin)), " s");
  if (how.cache.is_used()) {
    how.cache.store(record_of(key, choice));
    choice.origin += say(", kept in ", how.cache.file_of(key));
  }
  return choice;
}

}  // namespace

bool needs_measuring(const PipelineOptions& options) { return needs_times(options) || needs_bytes(options); }

// Bytes are not kept in the cache: they take two steps, and are the same each time.
AutoChoice autotune_with_reasons(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                                 const AutotuneOptions& how) {
  AutoChoice choice = chosen_by_times(world, network, loss, options, how);
  if (!needs_bytes(choice.options)) return choice;
  PipelineOptions decided = choice.options;
  decided.sample = options.sample;
  decided.sample_targets = options.sample_targets;
  choice.options.costs = measured_bytes(world, network, loss, decided);
  return choice;
}

PipelineOptions autotune(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const AutotuneOptions& how) {
  return autotune_with_reasons(world, network, loss, options, how).options;
}

PipelineOptions autotune(World& world, Cell& network, const Loss& loss, PipelineOptions options,
                         const BatchTensors& inputs, const BatchTensors& targets, const AutotuneOptions& how) {
  options.sample = inputs.list();
  options.sample_targets = targets;
  return autotune(world, network, loss, options, how);
}

}  // namespace penstock
