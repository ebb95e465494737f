#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/launch/rank_processes.h"
#include "penstock/launch/restarts.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock::cli {
using namespace launch;
namespace {

struct LaunchFlags {
  RankJob job;
  std::string log_folder = "log_output";
  LogLayout layout = LogLayout::rank;
  int restarts = 0;
  double grace_s = 30;
};

/// Flags of former versions, and what replaces them.
constexpr std::pair<const char*, const char*> former_flags[] = {
    {"--hosts", "start ranks on several hosts with mpirun --host a:2,b:2 PROGRAM, or with torchrun on each host"},
    {"--elastic", "torchrun --nnodes 1:4 --max-restarts 100 --no-python penstock train --stages auto --resume auto"},
    {"--host-discovery",
     "torchrun --nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint HOST:PORT takes the hosts that join"},
    {"--transport", "launch starts ranks that Gloo joins; for MPI: mpirun -n 2 PROGRAM"},
    {"--launcher", "start MPI jobs directly: mpirun -n 2 PROGRAM, or srun --mpi=pmix PROGRAM"},
    {"--bind", "mpirun -n 2 --bind-to core PROGRAM binds ranks; launch does not"},
    {"--dry-run", "there is no launcher's command line to print; launch.log begins with the command of the ranks"}};

/// "2 ranks: penstock train --data \"my data\"".
std::string command_line(const RankJob& job) {
  std::ostringstream line;
  line << counted(job.ranks, "rank") << ":";
  for (const std::string& one : job.program)
    if (one.empty() || one.find_first_of(" \t\n\"'\\$`") != one.npos)
      line << " " << std::quoted(one);
    else
      line << " " << one;
  return public_text(line.str());
}

/// Prints the last output of the rank that failed first, and returns the cause: "rank 1 of 2: signal 9 (Killed)".
std::string report_failure(const Ending& first, const JobLogs& logs, int ranks) {
  constexpr std::size_t shown_lines = 20;
  const RankLogs files = logs.of_rank(first.rank);
  auto lines = last_lines(files.err, shown_lines);
  const std::filesystem::path& shown = lines.empty() ? files.out : files.err;
  if (lines.empty()) lines = last_lines(files.out, shown_lines);
  std::string text = say("rank ", first.rank, " of ", ranks, " failed first: ", first.text(), "; ");
  text += lines.empty() ? say("it wrote nothing (", shown.string(), ")") : say(shown.string(), " ends with");
  for (const std::string& line : lines) text += "\n  | " + line;
  print_error(ExitCode::failed, text);
  return say("rank ", first.rank, " of ", ranks, ": ", first.text());
}

/// How an attempt ended.
struct Outcome {
  int exit_code = 0;
  bool is_final = true;    // done, or ended by a signal: starting again makes no sense
  bool is_misuse = false;  // of the program, by its exit code
  std::string cause = {};  // "rank 1 of 2: signal 9 (Killed)"
};

Outcome outcome_of(const RanksEnd& end, const RankJob& job, const JobLogs& logs) {
  const int rank_code = exit_code_of(end.endings);
  const auto first = first_failure(end.endings);
  if (end.received != 0) {
    log(LogLevel::info, say("ended by signal ", end.received, "; logs: ", logs.shown()));
    std::vector<Ending> failures = end.endings;  // without the endings that follow from the signal
    std::erase_if(failures, [](const Ending& one) { return one.signal != 0 || is_polite_stop(one.exit_code); });
    if (const auto failure = first_failure(failures); job.is_ours && failure) {
      report_failure(*failure, logs, job.ranks);
      return {.exit_code = exit_code_of(failures)};
    }
    const bool is_done = job.is_ours && std::all_of(end.endings.begin(), end.endings.end(),
                                                    [](const Ending& one) { return one.status() == 0; });
    return {.exit_code = is_done ? 0 : 128 + end.received};  // 0: the signal came too late
  }
  if (!first) return {};
  if (job.is_ours && first->signal == 0 && is_polite_stop(rank_code)) {
    log(LogLevel::info, say("ended before its goal, with exit code ", rank_code, "; logs: ", logs.shown()));
    return {.exit_code = rank_code};
  }
  // After SIGUSR1 the host is about to be taken away. Other programs may use the exit code of misuse for something
  // else.
  return {.exit_code = rank_code,
          .is_final = job.is_ours && end.was_warned,
          .is_misuse = job.is_ours && rank_code == static_cast<int>(ExitCode::misuse),
          .cause = report_failure(*first, logs, job.ranks)};
}

Outcome attempt(const RankJob& job, const LaunchFlags& flags) {
  const JobLogs logs = JobLogs::claim(flags.log_folder, flags.layout);
  log(LogLevel::info, say(counted(job.ranks, "rank"), "; logs: ", logs.shown()));
  logs.note(command_line(job));
  const Outcome outcome = outcome_of(run_ranks(job, logs), job, logs);
  logs.note(say("job: exit code ", outcome.exit_code));
  return outcome;
}

/// Starts the ranks, and again after a failure as the flags say. Returns the exit code of the job.
int run_job(const LaunchFlags& flags) {
  const std::int64_t begin_ns = now_ns();
  RankJob job = flags.job;
  const bool is_train = job.is_ours && job.program[1] == "train";
  const TrainSettings train = is_train && flags.restarts > 0 ? read_train_settings(job.program) : TrainSettings();
  const std::string folder = train.folder();
  std::vector<CheckpointPlace> complete = complete_checkpoints(folder);
  const auto oldest = complete.empty() ? std::nullopt : std::optional(complete.front());
  RestartLimit limit(flags.restarts, complete);
  int misuses = 0;  // in a row
  for (bool is_restart = false;; is_restart = true) {
    const Outcome outcome = attempt(job, flags);
    misuses = outcome.is_misuse ? misuses + 1 : 0;
    // A misuse shows in the first attempt, and would fail again. A later one may end with its exit code as well because
    // a rank has never joined: that may pass.
    if (outcome.is_final || (outcome.is_misuse && (!is_restart || misuses > 1))) return outcome.exit_code;
    complete = complete_checkpoints(folder);
    const auto newest = complete.empty() ? std::nullopt : std::optional(complete.front());
    const auto decision = limit.after_failure(folder.empty() ? std::nullopt : std::optional(complete));
    const std::string state = newest ? say("step ", newest->step, " is the newest") : "there is none";
    if (decision == RestartLimit::Decision::no_progress)
      print_error(ExitCode::failed, say("given up: ", RestartLimit::most_without_progress,
                                        " restarts in a row ended without a new complete checkpoint in ", folder,
                                        ", where ", state, "; the last failure is above"));
    if (decision != RestartLimit::Decision::restart) return outcome.exit_code;
    log(LogLevel::info, say("attempt ", limit.done() + 1, " ",
                            newest ? say("goes on from step ", newest->step, " (", newest->path, ")") : "begins anew",
                            " after ", outcome.cause, "; ", counted(limit.left(), "restart"), " left"));
    job.program = resuming_arguments(flags.job.program, train, newest != oldest);
    if (train.max_time.empty()) continue;
    // The limit holds for the whole job, as the limit of the batch system does.
    const double left_s = parse_time_limit("--max-time", train.max_time) - s_since(begin_ns);
    job.program.insert(job.program.end(), {"--max-time", time_limit_text(left_s)});
  }
}

/// Sets the program after "--", preceded by the path of this program if it is a verb.
void set_program(RankJob& job, const CLI::App& penstock, const std::optional<std::vector<std::string>>& launched) {
  require<ConfigError>(launched && !launched->empty(),
                       "which program? Write it after --: penstock launch -n 2 -- train "
                       "--stages 2, or -- ./my_program");
  require<ConfigError>(launched->front() != "launch", "launch does not start itself: its own flags go before --");
  const auto is_named = [&](const CLI::App* verb) { return verb->get_name() == launched->front(); };
  job.is_ours = !penstock.get_subcommands(is_named).empty();
  job.program = *launched;
  if (job.is_ours) job.program.insert(job.program.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
}

void check(const CLI::App& verb, const LaunchFlags& flags) {
  for (const std::string& argument : verb.remaining()) {
    for (const auto& [flag, instead] : former_flags)
      require<ConfigError>(argument.substr(0, argument.find('=')) != flag, "launch has no ", flag, ": ", instead);
    throw ConfigError(say("'", argument, "' is not a flag of launch; the program and its own arguments go after --: ",
                          "penstock launch -n 2 -- train --stages 2"));
  }
  require<ConfigError>(flags.job.ranks > 0, "-n ", flags.job.ranks,
                       ": a job has at least 1 rank: penstock launch -n 2 -- train --stages 2");
  const joining::LaunchedAs around = joining::launched_as_whole();
  require<ConfigError>(around.size == 1, "this is process ", around.rank, " of ", around.size, " started by ",
                       around.by,
                       ", and each would start a whole job: launch starts all ranks itself, so call launch without it");
}

}  // namespace

void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& launched, int& exit_code) {
  CLI::App* verb = program.add_subcommand("launch", "start the ranks of a job on this machine, with a log for each");
  auto flags = std::make_shared<LaunchFlags>();
  verb->add_option("-n,--ranks", flags->job.ranks, "number of ranks");
  verb->add_option("--log-dir", flags->log_folder, "directory of the ranks' logs; existing logs are never overwritten")
      ->type_name("DIR")
      ->capture_default_str();
  add_choice(*verb, "--log-layout", flags->layout,
             Choices<LogLayout>{{"rank", LogLayout::rank}, {"worker", LogLayout::worker}},
             "rank: DIR/ATTEMPT/rank.N/stdout and stderr; worker: DIR/worker_N.log");
  add_choice(*verb, "--tee", flags->job.shown,
             Choices<ShownRanks>{{"first", ShownRanks::first}, {"all", ShownRanks::all}, {"none", ShownRanks::none}},
             "ranks whose output is also shown on the screen; all: each line begins with its rank");
  verb->add_option("--restarts", flags->restarts,
                   "how often a failed job is restarted: train with --checkpoint from its newest complete checkpoint, "
                   "and at most 3 times in a row without a new one; other programs from their beginning")
      ->type_name("K")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option(
          "--grace", flags->grace_s,
          "after SIGTERM, SIGINT or SIGHUP: seconds that ranks have to save and end; a second signal ends them "
          "at once")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->footer(
      "The program and its flags follow after --: a verb of penstock, or any program.\n"
      "Example:\n  penstock launch -n 2 -- train --stages 2 --data data/mnist\n"
      "Several hosts: mpirun --host a:2,b:2 penstock train ..., or torchrun on each host.");
  verb->allow_extras();  // for error messages of our own about them
  verb->callback([&program, &launched, &exit_code, verb, flags] {
    set_log_level(LogLevel::info);
    check(*verb, *flags);
    RankJob& job = flags->job;
    job.grace = std::chrono::milliseconds(static_cast<std::int64_t>(flags->grace_s * 1e3));
    set_program(job, program, launched);
    exit_code = run_job(*flags);
  });
}

}  // namespace penstock::cli
