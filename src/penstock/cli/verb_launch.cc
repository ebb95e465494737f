#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/cli/exit_codes.h"
#include "penstock/cli/verbs.h"
#include "penstock/launch/job_logs.h"
#include "penstock/launch/job_screen.h"
#include "penstock/launch/keep_rank.h"
#include "penstock/launch/launcher_arguments.h"
#include "penstock/launch/process_group.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// mpirun gives ranks one second itself before it kills them.
constexpr int grace_s = 15;
constexpr std::size_t shown_lines = 20;

struct Launch {
  LaunchSettings settings;
  std::string hosts;
  std::string log_folder = "log_output";
  std::string layout = "rank";
  std::string tee = "first";
  int restarts = 0;
  bool dry_run = false;
};

std::string own_path() { return fs::read_symlink("/proc/self/exe").string(); }

/// The program that every rank runs.
struct Program {
  std::vector<std::string> arguments;
  bool is_ours = false;  // a verb of this program
};

/// The program after "--", preceded by the path of this program if it is a verb.
Program program_of(const CLI::App& penstock, const Launch& wanted,
                   const std::optional<std::vector<std::string>>& launched) {
  require<ConfigError>(launched && !launched->empty(),
                       "which program? Write it after --: penstock launch -n 2 -- train "
                       "--stages 2, or -- ./my_program");
  Program program{*launched};
  std::vector<std::string>& arguments = program.arguments;
  const auto verbs = penstock.get_subcommands([](const CLI::App*) { return true; });
  program.is_ours =
      std::any_of(verbs.begin(), verbs.end(), [&](const CLI::App* verb) { return verb->get_name() == arguments[0]; });
  require<ConfigError>(arguments[0] != "launch", "launch does not start itself: its own flags go before --");
  if (program.is_ours) arguments.insert(arguments.begin(), own_path());
  // Not checked with other hosts, which may have programs that this one lacks.
  require<ConfigError>(!wanted.hosts.empty() || !find_program(arguments[0]).empty(), "there is no program '",
                       arguments[0], "' that can be started");
  return program;
}

void require_launchable(const Launch& wanted) {
  const LaunchedAs launched = launched_as();
  require<ConfigError>(launched.kind == LaunchedAs::Kind::alone, "this is process ", launched.rank, " of ",
                       launched.size, " started by ", launched.by,
                       ", and each would start a whole job: launch calls "
                       "mpirun itself, so call launch alone");
  require<ConfigError>(wanted.restarts >= 0, "--restarts ", wanted.restarts, ", but there can be 0 or more");
  require<ConfigError>(wanted.dry_run || !find_program(wanted.settings.launcher).empty(), "there is no '",
                       wanted.settings.launcher,
                       "' that can be started: install Open MPI (Debian: apt install "
                       "openmpi-bin), or name the program with --launcher");
}

std::string plural(int count, const char* what) { return say(count, " ", what, count == 1 ? "" : "s"); }

void announce(const Launch& wanted, const LaunchingMachine& machine, const JobLogs& logs) {
  const int ranks = rank_count(wanted.settings);
  const auto hosts = static_cast<int>(wanted.settings.hosts.size());
  std::string where = hosts == 0 ? "" : say(" on ", plural(hosts, "host"));
  if (is_crowded(wanted.settings, machine))
    where += hosts == 0 ? say(" share ", plural(machine.cores, "core")) : say(", more than they take");
  log(LogLevel::info, say(plural(ranks, "rank"), where, "; logs: ", logs.shown()));
}

/// Prints the last output of the rank that failed first.
void report_first_failure(int rank, const std::string& how, const JobLogs& logs, int ranks) {
  const RankLogs files = logs.of_rank(rank);
  auto lines = last_lines(files.err, shown_lines);
  const fs::path& shown = lines.empty() ? files.out : files.err;
  if (lines.empty()) lines = last_lines(files.out, shown_lines);
  std::string text = say("rank ", rank, " of ", ranks, " failed first: ", how);
  text += lines.empty() ? say("; it wrote nothing (", shown.string(), ")") : say("; ", shown.string(), " ends with");
  for (const std::string& line : lines) text += "\n  | " + line;
  print_error(ExitCode::failed, text);
}

/// Prints why the attempt failed and returns the exit code.
int report_failure(const GroupEnd& end, const JobLogs& logs, int ranks) {
  const std::vector<Ending> endings = logs.endings();
  // A rank whose supervisor was killed has no record in the journal and precedes ranks that received a signal as the
  // cause. (If the launcher dies, all supervisors die with it.)
  const auto first = first_failure(endings);
  const std::vector<int> vanished = end.signal == 0 ? logs.vanished(ranks) : std::vector<int>{};
  if (!vanished.empty() && (!first || first->was_signalled)) {
    report_first_failure(vanished.front(),
                         say("its supervisor (penstock ", keep_rank_verb, ") was killed, and the rank with it"), logs,
                         ranks);
    return 128 + SIGKILL;
  }
  if (first) {
    report_first_failure(first->rank, first->text(), logs, ranks);
    return exit_code_of(endings);
  }
  const std::string how = Ending{.exit_code = end.exit_code, .signal = end.signal}.text();
  if (endings.empty())
    print_error(ExitCode::failed, say("the launcher ended with ", how, ", and no ending is recorded in ",
                                      logs.journal().string(), ": the launcher's own messages are above"));
  else
    print_error(ExitCode::failed, say("the launcher ended with ", how, ", but no rank failed by itself (",
                                      logs.journal().string(), "): the launcher's own messages are above"));
  return end.status();
}

std::vector<std::string> job_arguments(const Launch& wanted, const LaunchingMachine& machine, const JobLogs& logs,
                                       const Program& program) {
  std::vector<std::string> arguments = launcher_arguments(wanted.settings, machine);
  const std::vector<std::string> supervised =
      supervisor_arguments(own_path(), logs, wanted.tee == "first", program.arguments);
  arguments.insert(arguments.end(), supervised.begin(), supervised.end());
  return arguments;
}

/// Runs one attempt and returns its exit code. Sets `stopped` if a signal ended it, so that it is not restarted.
int attempt(const Launch& wanted, const Program& program, bool& stopped) {
  const LogLayout layout = wanted.layout == "worker" ? LogLayout::worker : LogLayout::rank;
  const LaunchingMachine machine = this_machine();
  if (wanted.dry_run) {
    std::cout << as_shell_line(job_arguments(wanted, machine, JobLogs(wanted.log_folder, layout, 1), program)) << "\n";
    return 0;
  }
  const JobLogs logs = JobLogs::claim(wanted.log_folder, layout);
  const std::vector<std::string> arguments = job_arguments(wanted, machine, logs, program);
  announce(wanted, machine, logs);
  logs.note(as_shell_line(arguments));
  std::optional<JobScreen> screen;
  if (wanted.tee == "all") screen.emplace(logs, rank_count(wanted.settings));
  const GroupEnd end = run_in_own_group(arguments, grace_s);
  screen.reset();
  stopped = end.received != 0;
  int code = 0;
  if (stopped) {
    code = 128 + end.received;
    log(LogLevel::info, say("ended by signal ", end.received, "; logs: ", logs.shown()));
  } else if (end.status() != 0 || exit_code_of(logs.endings()) != 0) {
    code = report_failure(end, logs, rank_count(wanted.settings));
  }
  logs.note(say("job: exit code ", code));
  return code;
}

int launch(const Launch& wanted, const Program& program) {
  bool stopped = false;
  int code = attempt(wanted, program, stopped);
  // Misuse (exit code 2) fails again; other programs may use 2 for something else.
  const auto worth_it = [&] { return code != 0 && !stopped && !(program.is_ours && code == 2); };
  for (int left = wanted.restarts; worth_it() && left > 0; --left) {
    log(LogLevel::info, say("starting again; ", plural(left - 1, "restart"), " left"));
    code = attempt(wanted, program, stopped);
  }
  return code;
}

}  // namespace

void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& launched, int& exit_code) {
  CLI::App* verb =
      program.add_subcommand("launch", "start the ranks of a job through mpirun, with a log file for each");
  auto wanted = std::make_shared<Launch>();
  verb->add_option("-n,--ranks", wanted->settings.ranks, "number of ranks (default: the sum of the hosts' slots)");
  verb->add_option("--hosts", wanted->hosts, "hosts with the number of ranks of each (default: this machine)")
      ->type_name("HOST[:N],...");
  verb->add_option("--log-dir", wanted->log_folder, "directory of the ranks' logs; existing logs are never overwritten")
      ->type_name("DIR")
      ->capture_default_str();
  verb->add_option("--log-layout", wanted->layout,
                   "rank: DIR/ATTEMPT/rank.N/stdout and stderr; worker: DIR/worker_N.log")
      ->check(CLI::IsMember({"rank", "worker"}))
      ->capture_default_str();
  verb->add_option("--tee", wanted->tee,
                   "ranks whose output is also shown on the screen; all: each line begins with its rank")
      ->check(CLI::IsMember({"first", "all", "none"}))
      ->capture_default_str();
  verb->add_option("--restarts", wanted->restarts, "how often a failed job is restarted from its beginning")
      ->type_name("K")
      ->capture_default_str();
  verb->add_option("--bind", wanted->settings.bind,
                   "the unit that a rank is bound to, as the launcher names it (none, core, socket, ...); auto: an "
                   "equal share of the cores if there are as many as ranks, else none")
      ->type_name("WORD")
      ->capture_default_str();
  verb->add_option("--launcher", wanted->settings.launcher, "Open MPI's mpirun, or Slurm's srun")
      ->type_name("PROGRAM")
      ->capture_default_str();
  verb->add_flag("--dry-run", wanted->dry_run, "print the launcher's command line and exit");
  verb->footer(
      "The program and its flags follow after --: a verb of penstock, or any program.\n"
      "Example:\n  penstock launch -n 2 -- train --stages 2 --data data/mnist\n"
      "  penstock launch --hosts a:2,b:2 --log-dir logs -- ./my_program");
  verb->allow_extras();  // for error messages of our own about them
  verb->callback([&program, &launched, &exit_code, verb, wanted] {
    set_log_level(LogLevel::info);
    require<ConfigError>(
        verb->remaining_size() == 0, "'", verb->remaining_size() ? verb->remaining()[0] : "",
        "' is no flag of launch; the program and its own arguments go after --: penstock launch -n 2 -- "
        "train --stages 2");
    if (!wanted->hosts.empty()) wanted->settings.hosts = parse_hosts(wanted->hosts);
    require_launchable(*wanted);
    rank_count(wanted->settings);
    exit_code = launch(*wanted, program_of(program, *wanted, launched));
  });
}

}  // namespace penstock
