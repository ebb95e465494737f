#include "penstock/launch/restarts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"

namespace penstock::launch {

std::vector<CheckpointPlace> complete_checkpoints(const std::string& folder) {
  std::vector<CheckpointPlace> complete;
  if (folder.empty()) return complete;
  try {
    visit_checkpoints(folder, [&](const OpenedCheckpoint& opened) {
      if (const auto place = place_of_checkpoint(opened.path); place && opened.checkpoint) complete.push_back(*place);
    });
  } catch (const DataError&) {  // the folder does not exist yet: the training makes it
  }
  return complete;
}

RestartLimit::Decision RestartLimit::after_failure(const std::optional<std::vector<CheckpointPlace>>& complete) {
  if (complete) {
    const bool has_new = std::any_of(complete->begin(), complete->end(), [&](const CheckpointPlace& place) {
      return std::find(complete_.begin(), complete_.end(), place) == complete_.end();
    });
    complete_ = *complete;
    without_progress_ = has_new ? 0 : without_progress_ + (done_ > 0 ? 1 : 0);
    if (without_progress_ == most_without_progress) return Decision::no_progress;
  }
  if (done_ == allowed_) return Decision::used_up;
  ++done_;
  return Decision::restart;
}

std::string TrainSettings::folder() const {
  const bool names_none = resume.empty() || resume == "auto";
  return names_none || !checkpoint.empty() ? checkpoint : folder_of_checkpoints(resume);
}

TrainSettings parse_train_settings(const std::string& printed) {
  TrainSettings settings;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t equals = line.find(" = ");
    const std::string name = line.substr(0, equals);
    try {
      const auto value = [&] { return parse_in_order(line.substr(equals + 3)).get<std::string>(); };
      require<Failure>(equals != line.npos, "the settings of the training contain '", line,
                       "', which is not a setting");
      if (name == "checkpoint") settings.checkpoint = value();
      if (name == "resume") settings.resume = value();
      if (name == "max-time") settings.max_time = value();
    } catch (const nlohmann::json::exception&) {
      throw Failure(say("the settings of the training contain '", line, "', which is not a text in quotes"));
    }
  }
  return settings;
}

TrainSettings read_train_settings(const std::vector<std::string>& arguments) {
  std::vector<char*> command;
  for (const std::string& argument : arguments) command.push_back(const_cast<char*>(argument.c_str()));
  std::string last = "--print-config";
  command.insert(command.end(), {last.data(), nullptr});
  const int output = ::memfd_create("settings", MFD_CLOEXEC);
  const pid_t program = ::fork();
  require<Failure>(program >= 0 && output >= 0, arguments[0], ": cannot be started: ", std::strerror(errno));
  if (program == 0) {
    ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::execv(command[0], command.data());
    std::_Exit(127);
  }
  int status = 0;
  ::waitpid(program, &status, 0);
  std::ifstream file(say("/proc/self/fd/", output));
  const std::string printed{std::istreambuf_iterator<char>(file), {}};
  ::close(output);
  require<ConfigError>(!WIFEXITED(status) || WEXITSTATUS(status) != 2,
                       "the program's arguments are refused, as said above");
  require<Failure>(status == 0, "penstock train --print-config ended with ",
                   WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  return parse_train_settings(printed);
}

std::vector<std::string> resuming_arguments(const std::vector<std::string>& arguments, const TrainSettings& settings,
                                            bool has_progress) {
  std::vector<std::string> resuming = arguments;
  if (settings.resume.empty() && !settings.checkpoint.empty()) resuming.insert(resuming.end(), {"--resume", "auto"});
  if (has_progress && !settings.resume.empty() && settings.resume != "auto" && settings.resume != settings.folder())
    resuming.insert(resuming.end(), {"--resume", settings.folder()});
  return resuming;
}

}  // namespace penstock::launch
