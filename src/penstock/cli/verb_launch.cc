#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/launched_job.h"
#include "penstock/cli/verbs.h"
#include "penstock/launch/choose_launcher.h"
#include "penstock/launch/process_group.h"
#include "penstock/launch/train_settings.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

struct LaunchFlags {
  LaunchOptions options;
  std::string hosts;
  std::string layout = "rank";
  std::string tee = "first";
  std::string elastic;
  std::string transport = "auto";
  std::string launcher;
  double grace_s = 30;
  bool dry_run = false;
};

constexpr double longest_grace_s = 1e6;
constexpr bool is_mpi_built = PENSTOCK_HAVE_MPI;

/// The program after "--", preceded by the path of this program if it is a verb.
LaunchedProgram program_of(const CLI::App& penstock, const LaunchFlags& wanted,
                           const std::optional<std::vector<std::string>>& launched) {
  require<ConfigError>(launched && !launched->empty(),
                       "which program? Write it after --: penstock launch -n 2 -- train "
                       "--stages 2, or -- ./my_program");
  LaunchedProgram program{*launched};
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

void require_launchable(const LaunchFlags& wanted) {
  const LaunchedAs launched = launched_as_whole();
  require<ConfigError>(launched.size == 1, "this is process ", launched.rank, " of ", launched.size, " started by ",
                       launched.by,
                       ", and each would start a whole job: launch "
                       "starts all ranks itself, so call launch alone");
  require<ConfigError>(wanted.options.restarts >= 0, "--restarts ", wanted.options.restarts,
                       ", but there can be 0 or more");
  require<ConfigError>(
      wanted.dry_run || !find_program(wanted.options.settings.launcher).empty(), "there is no '",
      wanted.options.settings.launcher,
      "' that can be started: install Open MPI (Debian: apt install openmpi-bin), name the program with "
      "--launcher, or start the ranks on this machine alone with --transport gloo");
}

/// The transport that a verb names on its command line, or in the settings that it reads from a file; empty: none.
/// Reads the settings, which takes a second, into `program`.
std::string transport_of_verb(LaunchedProgram& program) {
  if (!program.is_ours) return "";
  const auto value = [&](const char* flag) { return flag_value(program.arguments, flag); };
  const std::string named = value("--transport");
  if (!named.empty() || (value("--config").empty() && value("--resume").empty())) return named;
  program.settings = read_train_settings(program.arguments);
  return program.settings->transport;
}

/// Sets what starts the ranks.
void choose_launcher(LaunchFlags& wanted, LaunchedProgram& program) {
  LaunchSettings& settings = wanted.options.settings;
  const LauncherRequest request{.transport = wanted.transport,
                                .launcher = wanted.launcher,
                                .hosts = settings.hosts,
                                .is_verb = program.is_ours,
                                .verb_transport = transport_of_verb(program)};
  settings.over_gloo =
      starts_over_gloo(request, {.has_mpirun = !find_program("mpirun").empty(), .is_mpi_built = is_mpi_built});
  if (settings.over_gloo) {
    require_this_machine(settings.hosts, "--hosts");
    require<ConfigError>(settings.bind == "auto" || settings.bind == "none", "--bind ", settings.bind,
                         " is a unit of mpirun, which does not start ranks that Gloo joins: give auto, for an equal "
                         "share of the cores, or none");
    settings.launcher = own_path();
  } else if (!wanted.launcher.empty()) {
    settings.launcher = wanted.launcher;
  }
  require<ConfigError>(!wanted.options.elastic || !is_srun(settings),
                       "--elastic needs mpirun or --transport gloo: the hosts of a Slurm job do not change, but each "
                       "requeued job may get others (sbatch --nodes=MIN-MAX, see docs/launch.md)");
}

/// Sets the options that are texts on the command line.
void settle(LaunchFlags& wanted) {
  LaunchOptions& options = wanted.options;
  require<ConfigError>(wanted.grace_s >= 0 && wanted.grace_s <= longest_grace_s, "--grace ", wanted.grace_s,
                       ": give seconds between 0 and ", longest_grace_s);
  options.layout = wanted.layout == "worker" ? LogLayout::worker : LogLayout::rank;
  options.shown = wanted.tee == "all" ? ShownRanks::all : wanted.tee == "first" ? ShownRanks::first : ShownRanks::none;
  options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(wanted.grace_s * 1e3));
  if (!wanted.hosts.empty()) options.settings.hosts = parse_hosts(wanted.hosts);
  if (!wanted.elastic.empty()) options.elastic = parse_elastic_range(wanted.elastic);
  require<ConfigError>(options.host_discovery.empty() || options.elastic,
                       "--host-discovery serves --elastic: give both, or --hosts alone");
  require<ConfigError>(options.host_discovery.empty() || wanted.hosts.empty(),
                       "--hosts and --host-discovery both name the hosts: give one of them");
  if (!options.elastic) {
    rank_count(options.settings);
    return;
  }
  require<ConfigError>(options.settings.ranks == 0, "-n ", options.settings.ranks,
                       " fixes the number of ranks, which --elastic takes from the slots that there are: leave -n out");
}

}  // namespace

void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& launched, int& exit_code) {
  CLI::App* verb = program.add_subcommand("launch", "start the ranks of a job, with a log file for each");
  auto wanted = std::make_shared<LaunchFlags>();
  verb->add_option("-n,--ranks", wanted->options.settings.ranks,
                   "number of ranks (default: the sum of the hosts' slots)");
  verb->add_option("--hosts", wanted->hosts, "hosts with the number of ranks of each (default: this machine)")
      ->type_name("HOST[:N],...");
  verb->add_option("--log-dir", wanted->options.log_folder,
                   "directory of the ranks' logs; existing logs are never overwritten")
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
  verb->add_option("--restarts", wanted->options.restarts,
                   "how often a failed job is restarted: train with --checkpoint from its newest complete checkpoint, "
                   "and at most 3 times in a row without a new one; other programs from their beginning")
      ->type_name("K")
      ->capture_default_str();
  verb->add_option(
          "--elastic", wanted->elastic,
          "for train with --checkpoint: the smallest and the largest number of pipeline ranks; each start takes "
          "as many as there are slots for, and sets --stages")
      ->type_name("MIN:MAX");
  verb->add_option("--host-discovery", wanted->options.host_discovery,
                   "for --elastic: a program that writes a line HOST or HOST:N for each host; called before each start")
      ->type_name("PROGRAM");
  verb->add_option(
          "--grace", wanted->grace_s,
          "after SIGTERM, SIGINT or SIGHUP: seconds that ranks have to save and end; a second signal ends them "
          "at once")
      ->type_name("S")
      ->capture_default_str();
  verb->add_option("--bind", wanted->options.settings.bind,
                   "the unit that a rank is bound to, as the launcher names it (none, core, socket, ...); auto: an "
                   "equal share of the cores if there are as many as ranks, else none")
      ->type_name("UNIT")
      ->capture_default_str();
  verb->add_option("--transport", wanted->transport,
                   "what joins the ranks; mpi: they are started by mpirun or srun; gloo: by launch itself, on this "
                   "machine, with torchrun's variables; auto: mpi if there is an mpirun, unless the program's own "
                   "--transport is gloo or nccl")
      ->check(CLI::IsMember({"auto", "mpi", "gloo"}))
      ->capture_default_str();
  verb->add_option("--launcher", wanted->launcher,
                   "what starts ranks that MPI joins: Open MPI's mpirun, or Slurm's srun (default: mpirun)")
      ->type_name("PROGRAM");
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
    settle(*wanted);
    LaunchedProgram started = program_of(program, *wanted, launched);
    choose_launcher(*wanted, started);
    require_launchable(*wanted);
    LaunchedJob job(wanted->options, started);
    if (wanted->dry_run)
      std::cout << job.command_line() << "\n";
    else
      exit_code = job.run();
  });
}

}  // namespace penstock
