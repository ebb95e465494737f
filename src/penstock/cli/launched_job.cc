#include "penstock/cli/launched_job.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/cli/exit_codes.h"
#include "penstock/cli/failed_attempt.h"
#include "penstock/cli/time_limit.h"
#include "penstock/launch/choose_launcher.h"
#include "penstock/launch/free_port.h"
#include "penstock/launch/keep_rank.h"
#include "penstock/launch/restart_limit.h"
#include "penstock/launch/temporary_files.h"

namespace penstock {
namespace {

constexpr int misuse = static_cast<int>(ExitCode::misuse);

std::string plural(int count, const char* what) { return say(count, " ", what, count == 1 ? "" : "s"); }

void announce(const LaunchSettings& settings, const LaunchingMachine& machine, const JobLogs& logs) {
  const auto hosts = static_cast<int>(settings.hosts.size());
  std::string where = settings.over_gloo ? " over Gloo" : "";
  if (hosts != 0) where += say(" on ", plural(hosts, "host"));
  if (is_crowded(settings, machine))
    where += hosts == 0 ? say(" share ", plural(machine.cores, "core")) : say(", more than they take");
  log(LogLevel::info, say(plural(rank_count(settings), "rank"), where, "; logs: ", logs.shown()));
}

std::optional<CheckpointPlace> first_of(const std::vector<CheckpointPlace>& places) {
  return places.empty() ? std::nullopt : std::optional(places.front());
}

void log_restart(const RestartLimit& limit, const std::optional<CheckpointPlace>& newest, const std::string& cause) {
  const std::string from = newest ? say("goes on from step ", newest->step, " (", newest->path, ")") : "begins anew";
  log(LogLevel::info,
      say("attempt ", limit.done() + 1, " ", from, " after ", cause, "; ", plural(limit.left(), "restart"), " left"));
}

/// The endings of a job that was asked to stop, without those that follow from it: by a signal, or with the exit code
/// of a training that has saved its state.
std::vector<Ending> failures_while_stopping(std::vector<Ending> endings) {
  std::erase_if(endings, [](const Ending& one) {
    return one.signal != 0 || one.exit_code == 0 || is_polite_stop(one.exit_code);
  });
  return endings;
}

/// Whether all ranks have ended, and one of them because of a failure.
bool has_failed_as_a_whole(const JobLogs& logs, int ranks) {
  const std::vector<Ending> endings = logs.endings();
  return std::ssize(endings) == ranks && std::any_of(endings.begin(), endings.end(), [](const Ending& one) {
           return one.failed() && !is_polite_stop(one.exit_code);
         });
}

}  // namespace

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

LaunchedJob::LaunchedJob(LaunchOptions options, LaunchedProgram program)
    : options_(std::move(options)), program_(std::move(program)), machine_(this_machine()) {
  const bool has_restarts_or_is_elastic = options_.restarts > 0 || options_.elastic;
  require<ConfigError>(!options_.elastic || program_.is_train(),
                       "--elastic sets the number of stages of the verb train; the program is ", program_.arguments[0]);
  if (program_.is_train() && has_restarts_or_is_elastic)
    train_ = program_.settings ? *program_.settings : read_train_settings(program_.arguments);
  if (options_.elastic) require_elastic(train_);
}

std::string LaunchedJob::command_line() const {
  return as_shell_line(launcher_line(start_of(false, false), JobLogs(options_.log_folder, options_.layout, 1)));
}

int LaunchedJob::run() {
  const std::string folder = train_.folder();
  auto complete = complete_checkpoints(folder);
  const auto oldest = first_of(complete);
  auto newest = oldest;
  RestartLimit limit(options_.restarts, complete);
  int misuses = 0;  // in a row
  for (bool is_restart = false;; is_restart = true) {
    const Outcome outcome = attempt(start_of(is_restart, newest != oldest));
    misuses = outcome.is_misuse ? misuses + 1 : 0;
    // A misuse shows in the first attempt, and would fail again. A later one may end with its exit code as well because
    // a rank has never come: that may pass.
    if (outcome.is_final || (outcome.is_misuse && (!is_restart || misuses > 1))) return outcome.exit_code;
    complete = complete_checkpoints(folder);
    newest = first_of(complete);
    const auto decision = folder.empty() ? limit.after_failure() : limit.after_failure(complete);
    if (decision == RestartLimit::Decision::no_progress)
      print_error(
          ExitCode::failed,
          say("given up: ", RestartLimit::most_without_progress,
              " restarts in a row ended without a new complete checkpoint in ", folder, ", where ",
              newest ? say("step ", newest->step, " is the newest") : "there is none", "; the last failure is above"));
    if (decision != RestartLimit::Decision::restart) return outcome.exit_code;
    log_restart(limit, newest, outcome.cause);
  }
}

LaunchedJob::Start LaunchedJob::start_of(bool is_restart, bool has_progress) const {
  Start start{options_.settings, program_.arguments};
  if (is_restart && program_.is_train()) {
    start.program = resuming_arguments(start.program, train_, has_progress);
    if (!train_.max_time.empty()) start.program.insert(start.program.end(), {"--max-time", time_left()});
  }
  if (options_.elastic) make_elastic(start, is_restart);
  // Another one for each attempt: the store of the former one may still be closing.
  if (start.settings.over_gloo) start.settings.master_port = free_port();
  return start;
}

// It is that of the whole job, as the limit of the batch system is.
std::string LaunchedJob::time_left() const {
  return time_limit_text(parse_time_limit("--max-time", train_.max_time) - s_since(begin_ns_));
}

void LaunchedJob::make_elastic(Start& start, bool is_restart) const {
  start.settings.hosts = hosts_now(is_restart);
  const bool is_named = !options_.host_discovery.empty() || !options_.settings.hosts.empty();
  const int slots = is_named ? slots_of(start.settings.hosts) : options_.elastic->most * train_.replicas;
  const int p = pipeline_ranks(*options_.elastic, slots, train_.replicas);
  start.settings.ranks = p * train_.replicas;
  start.program = elastic_arguments(start.program, p, train_.replicas);
  log(LogLevel::info, say("elastic: ", plural(p, "pipeline rank"), ", ", plural(train_.replicas, "replica"),
                          is_named ? say("; ", plural(slots, "slot")) : std::string()));
}

std::vector<HostSlots> LaunchedJob::hosts_now(bool is_restart) const {
  const std::vector<HostSlots> hosts =
      options_.host_discovery.empty() ? options_.settings.hosts : discover_hosts(options_.host_discovery);
  if (options_.settings.over_gloo)
    require_this_machine(hosts, options_.host_discovery.empty() ? "--hosts" : "--host-discovery");
  if (!is_restart) return hosts;
  std::vector<HostSlots> reachable = reachable_hosts(hosts, options_.settings.launcher);
  for (const HostSlots& host : hosts)
    if (std::none_of(reachable.begin(), reachable.end(), [&](const HostSlots& one) { return one.name == host.name; }))
      log(LogLevel::info, say("host ", host.name, " starts no process: this attempt does without it"));
  return reachable;
}

std::vector<std::string> LaunchedJob::launcher_line(const Start& start, const JobLogs& logs) const {
  std::vector<std::string> line = launcher_arguments(start.settings, machine_);
  const bool shows_first = options_.shown == ShownRanks::first && !is_on_this_machine(start.settings);
  const std::vector<std::string> supervised = supervisor_arguments(own_path(), logs, shows_first, start.program);
  line.insert(line.end(), supervised.begin(), supervised.end());
  return line;
}

EndingOptions LaunchedJob::ending_options(const LaunchSettings& settings, const JobLogs& logs) const {
  EndingOptions how{.grace = options_.grace};
  // After a failure mpirun takes two seconds to end, even when no rank is left. Our own launcher takes none.
  if (is_on_this_machine(settings) && !settings.over_gloo)
    how.is_over = [&logs, ranks = rank_count(settings)] { return has_failed_as_a_whole(logs, ranks); };
  // srun kills its tasks after SIGTERM, and does not know polite_stop_signal; but it forwards SIGUSR1, by which our own
  // programs stop too.
  if (!is_srun(options_.settings)) {
    how.polite_signal = polite_stop_signal;
    how.repeat = std::chrono::seconds(3);  // the supervisors may not run yet; they take it once
  } else if (program_.is_ours) {
    how.polite_signal = SIGUSR1;
  }
  return how;
}

LaunchedJob::Outcome LaunchedJob::attempt(const Start& start) const {
  const JobLogs logs = JobLogs::claim(options_.log_folder, options_.layout);
  const int ranks = rank_count(start.settings);
  const std::vector<std::string> line = launcher_line(start, logs);
  announce(start.settings, machine_, logs);
  logs.note(public_text(as_shell_line(line)));
  // On this machine the first rank is shown from here too, because mpirun may be killed before it has passed the rank's
  // last lines on.
  const bool shows = options_.shown == ShownRanks::all || is_on_this_machine(start.settings);
  std::optional<JobScreen> screen;
  if (shows) screen.emplace(logs, ranks, options_.shown);
  const EndingOptions how = ending_options(start.settings, logs);
  const GroupEnd end = run_in_own_group(line, how);
  screen.reset();
  const bool is_expected = how.is_over && how.is_over();
  for (const std::string& path : remove_temporary_files(logs, end.process))
    if (!is_expected) log(LogLevel::info, say("removed ", path, ", which this attempt left"));
  const Outcome outcome = outcome_of(end, logs, ranks);
  logs.note(say("job: exit code ", outcome.exit_code));
  return outcome;
}

LaunchedJob::Outcome LaunchedJob::outcome_of(const GroupEnd& end, const JobLogs& logs, int ranks) const {
  const std::vector<Ending> endings = logs.endings();
  if (end.received != 0) {
    log(LogLevel::info, say("ended by signal ", end.received, "; logs: ", logs.shown()));
    const std::vector<Ending> failures = failures_while_stopping(endings);
    if (program_.is_ours && !failures.empty())
      return {.exit_code = report_failure({end, logs, failures, ranks}).exit_code};
    const bool is_done = program_.is_ours && end.status() == 0 && std::ssize(endings) == ranks &&
                         std::none_of(endings.begin(), endings.end(), [](const Ending& one) { return one.failed(); });
    if (is_done) return {};  // the signal came too late
    return {.exit_code = 128 + end.received};
  }
  const int rank_code = exit_code_of(endings);
  const auto first = first_failure(endings);
  if (program_.is_ours && first && first->signal == 0 && is_polite_stop(rank_code)) {
    log(LogLevel::info, say("ended before its goal, with exit code ", rank_code, "; logs: ", logs.shown()));
    return {.exit_code = rank_code};
  }
  if (end.status() == 0 && rank_code == 0) return {};
  const FailedAttempt failed = report_failure({end, logs, endings, ranks});
  // After SIGUSR1 the host is about to be taken away. Other programs may use the exit code of misuse for something
  // else.
  return {.exit_code = failed.exit_code,
          .is_final = program_.is_ours && end.forwarded == SIGUSR1,
          .is_misuse = program_.is_ours && failed.exit_code == misuse,
          .cause = failed.cause};
}

}  // namespace penstock
