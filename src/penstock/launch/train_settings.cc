#include "penstock/launch/train_settings.h"

#include <charconv>
#include <chrono>
#include <optional>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/launch/captured_run.h"

namespace penstock {
namespace {

// Starting the program takes about a second; a busy machine, or a slow network file system, may take much longer.
constexpr std::chrono::minutes longest_answer{5};

/// The value of a line `name = value` as text. Texts are quoted as in JSON.
std::optional<std::string> text_of(std::string_view value) {
  if (!value.starts_with('"')) return std::string(value);
  try {
    return parse_in_order(value).get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string TrainSettings::folder() const {
  const bool names_none = resume.empty() || resume == "auto";
  return names_none || !checkpoint.empty() ? checkpoint : folder_of_checkpoints(resume);
}

TrainSettings parse_train_settings(std::string_view printed) {
  TrainSettings settings;
  while (!printed.empty()) {
    const std::size_t end = printed.find('\n');
    const std::string_view line = printed.substr(0, end);
    printed.remove_prefix(end == printed.npos ? printed.size() : end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t equals = line.find(" = ");
    const auto value = equals == line.npos ? std::nullopt : text_of(line.substr(equals + 3));
    require<Failure>(value.has_value(), "the settings of the training contain '", line, "', which cannot be read");
    const std::string_view name = line.substr(0, equals);
    if (name == "checkpoint") settings.checkpoint = *value;
    if (name == "resume") settings.resume = *value;
    if (name == "max-time") settings.max_time = *value;
    if (name == "plan") settings.plan = *value;
    if (name == "schedule") settings.schedule = *value;
    if (name == "partition") settings.partition = *value;
    if (name == "transport") settings.transport = *value;
    if (name == "replicas") std::from_chars(value->data(), value->data() + value->size(), settings.replicas);
  }
  if (settings.replicas < 1) settings.replicas = 1;  // 0: under MPI from the number of processes
  return settings;
}

TrainSettings read_train_settings(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = arguments;
  command.push_back("--print-config");
  const CapturedRun run = run_captured(command, longest_answer);
  require<Failure>(!run.is_late, "penstock train --print-config did not answer for ", longest_answer.count(),
                   " minutes");
  require<ConfigError>(run.status != 2, "the program's arguments are refused, as said above");
  require<Failure>(run.status == 0, "penstock train --print-config ended with ", run.status);
  return parse_train_settings(run.output);
}

std::vector<std::string> resuming_arguments(const std::vector<std::string>& arguments, const TrainSettings& settings,
                                            bool has_progress) {
  std::vector<std::string> resuming = arguments;
  if (settings.resume.empty() && !settings.checkpoint.empty()) resuming.insert(resuming.end(), {"--resume", "auto"});
  if (has_progress && !settings.resume.empty() && settings.resume != "auto" && settings.resume != settings.folder())
    resuming.insert(resuming.end(), {"--resume", settings.folder()});
  return resuming;
}

}  // namespace penstock
