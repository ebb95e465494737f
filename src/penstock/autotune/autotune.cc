#include "penstock/autotune/autotune.h"

#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

#include "penstock/autotune/choose.h"
#include "penstock/autotune/measured_options.h"
#include "penstock/autotune/sample.h"
#include "penstock/autotune/tuning_key.h"
#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/plan/plan_report.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

bool is_auto(const PipelineOptions& options) { return options.schedule == "auto"; }

AutoChoice measured(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                    const AutotuneOptions& how) {
  if (is_auto(options)) return choose_by_profile(world, network, loss, options, how);
  return {.options = measured_options(world, network, options, how.sample.list()).options};
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
  record.costs = choice.costs;
  return record;
}

AutoChoice decision_of(const TuningRecord& record, PipelineOptions options) {
  if (record.plan)
    return {.options = decided_options(std::move(options), record.partition, *record.plan),
            .plan = record.plan,
            .costs = record.costs};
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
                                         const AutotuneOptions& how, std::string& key) {
  const std::string text =
      decided_on_rank_0(world, ranks_of(world).next_pipeline(), Topic::tuning, [&](const RankContext& context) {
        key = tuning_key(context, {world.transport(), world.threads()}, network, loss, options, how);
        const std::optional<TuningRecord> found = how.cache.find(key);
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
    if (const auto record = known_record(world, network, loss, options, how, key)) {
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
  AutoChoice choice = chosen_by_times(world, network, loss, with_example_inputs(options, how.sample), how);
  if (needs_bytes(choice.options)) choice.options.costs = measured_bytes(world, network, loss, choice.options, how);
  return choice;
}

PipelineOptions autotune(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const AutotuneOptions& how) {
  return autotune_with_reasons(world, network, loss, options, how).options;
}

}  // namespace penstock
