#include "penstock/cli/schedule_argument.h"

#include <algorithm>
#include <filesystem>

#include "penstock/base/error.h"

namespace penstock {
namespace {

bool is_generator(const std::string& source) {
  const auto known = generators();
  return std::any_of(known.begin(), known.end(), [&](const Generator& one) { return one.name == source; });
}

bool is_file(const std::string& source) {
  std::error_code ignored;
  return source.find_first_of("/.") != std::string::npos || std::filesystem::exists(source, ignored);
}

void require_same(const std::string& path, const char* what, int held, const char* flag, std::optional<int> given) {
  require<ConfigError>(!given || *given == held, path, " has ", held, " ", what, ", but ", flag, " says ",
                       given.value_or(0), ": leave ", flag, " out or give ", held);
}

}  // namespace

void ScheduleArgument::add_to(CLI::App& verb) {
  std::string names;
  for (const Generator& generator : generators()) names += (names.empty() ? "" : ", ") + std::string(generator.name);
  verb.add_option("--schedule,schedule", source_, "a schedule's name (" + names + ") or a .sched or CSV file")
      ->type_name("NAME|FILE");
  verb.add_option("--stages", stages_, "p, pipeline ranks; a file knows its own")->type_name("P");
  verb.add_option("--micro-batches", micro_batches_, "m, micro-batches per step; a file knows its own")
      ->type_name("M");
  verb.add_option("--chunks", chunks_, "v, stages per rank; by default what the schedule needs")->type_name("V");
}

NamedSchedule ScheduleArgument::get() const {
  require<ConfigError>(!source_.empty(), "which schedule? Give --schedule NAME or FILE");
  return !is_generator(source_) && is_file(source_) ? from_file() : from_generator();
}

NamedSchedule ScheduleArgument::from_file() const {
  NamedSchedule result;
  result.schedule = load_schedule(source_, &result.notes);
  const int ranks = result.schedule.rank_count();
  const int stages = result.schedule.stage_count();
  require_same(source_, "pipeline ranks", ranks, "--stages", stages_);
  require_same(source_, "micro-batches", result.schedule.micro_batches, "--micro-batches", micro_batches_);
  require<ConfigError>(!chunks_ || *chunks_ * static_cast<long long>(ranks) == stages, source_, " has ", stages,
                       " stages on ", ranks, " pipeline ranks, but --chunks says ", chunks_.value_or(0),
                       " on each: leave --chunks out");
  return result;
}

NamedSchedule ScheduleArgument::from_generator() const {
  const Generator& generator = find_generator(source_);
  require<ConfigError>(stages_ && micro_batches_, "schedule '", source_, "' needs --stages P and --micro-batches M: ",
                       stages_ ? "--micro-batches is" : micro_batches_ ? "--stages is" : "both are", " missing");
  const ScheduleShape shape{*stages_, *micro_batches_, chunks_.value_or(generator.default_chunks)};
  return {generate(source_, shape), {}, generator.activation_bound(shape, {})};
}

}  // namespace penstock
