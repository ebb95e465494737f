// The program `penstock`: runs the verbs that do not need LibTorch and hands the others over to `penstock-runtime`:
// planning verbs never load LibTorch.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "penstock/cli/verbs.h"

namespace penstock::cli {
namespace {

struct RuntimeVerb {
  const char* name;
  const char* purpose;
};

/// The verbs of penstock-runtime.
constexpr RuntimeVerb runtime_verbs[] = {
    {"train", "train a model, in one process or many"},
    {"evaluate", "loss and accuracy of saved weights on a test set"},
    {"infer", "run a network forward through the pipeline; continue texts"},
    {"generate", "continue texts, or chat, with a Hugging Face model"},
    {"bench", "measure training steps and compare schedules"},
    {"doctor", "properties of this machine: cores, BLAS, LibTorch, MPI, threads"},
};

bool is_runtime_verb(std::string_view argument) {
  return std::any_of(std::begin(runtime_verbs), std::end(runtime_verbs),
                     [&](const RuntimeVerb& one) { return one.name == argument; });
}

/// Replaces this process by ../libexec/penstock/penstock-runtime, relative to the folder of this program, with the same
/// command line. Throws ConfigError if that program does not exist (a build without LibTorch), Failure if it cannot be
/// started. Does not return otherwise.
[[noreturn]] void become_runtime_program(const CommandLine& line) {
  namespace fs = std::filesystem;
  const fs::path own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path program = own_folder.parent_path() / "libexec" / "penstock" / "penstock-runtime";
  require<ConfigError>(fs::exists(program), "this build has no LibTorch (PENSTOCK_TORCH=OFF): the verb '",
                       line.arguments[1], "' is not in it (there is no ", program.string(), ")");
  // argv is passed on unchanged, so that the list of processes shows what the user typed.
  ::execv(program.c_str(), line.arguments);
  throw Failure(say(program.string(), ": cannot be started: ", std::strerror(errno)));
}

void add_runtime_verb(CLI::App& program, const char* name) {
  const auto verb = std::find_if(std::begin(runtime_verbs), std::end(runtime_verbs),
                                 [&](const RuntimeVerb& one) { return std::string_view(one.name) == name; });
  program.add_subcommand(verb->name, verb->purpose);
}

/// Removes "--" and the arguments after it from the line and returns the latter: the program that `launch` starts.
/// CLI11 must not parse them.
std::optional<std::vector<std::string>> cut_off_program(CommandLine& line) {
  if (line.count < 2 || std::string_view(line.arguments[1]) != "launch") return std::nullopt;
  char** const end = line.arguments + line.count;
  char** const dashes =
      std::find_if(line.arguments, end, [](const char* argument) { return std::string_view(argument) == "--"; });
  if (dashes == end) return std::nullopt;
  line.count = static_cast<int>(dashes - line.arguments);
  return std::vector<std::string>(dashes + 1, end);
}

/// `penstock help VERB` as `penstock VERB --help`.
void read_help(const CommandLine& line) {
  static char flag[] = "--help";
  if (line.count < 2 || std::string_view(line.arguments[1]) != "help") return;
  std::rotate(line.arguments + 1, line.arguments + 2, line.arguments + line.count);
  line.arguments[line.count - 1] = flag;
}

/// Whether the line is `plan --profile`, which needs LibTorch; `plan --costs` does not.
bool measures_a_plan(const CommandLine& line) {
  const std::vector<std::string_view> arguments(line.arguments + 1, line.arguments + line.count);
  return arguments.front() == "plan" && std::find(arguments.begin(), arguments.end(), "--profile") != arguments.end();
}

int run(CommandLine line) {
  read_help(line);
  const auto program_to_launch = cut_off_program(line);
  int exit_code = 0;
  CLI::App program("Pipeline-parallel training: train, and see where the time goes.", "penstock");
  program.require_subcommand(0, 1);  // a second verb is treated as an unexpected argument
  program.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
  program.footer("'penstock VERB --help' lists all flags, with an example.");
  add_runtime_verb(program, "train");
  add_runtime_verb(program, "evaluate");
  add_runtime_verb(program, "infer");
  add_runtime_verb(program, "generate");
  add_runtime_verb(program, "bench");
  add_schedule_verb(program);
  add_simulate_verb(program);
  add_plan_verb(program);
  add_fit_verb(program);
  add_trace_verb(program);
  add_checkpoint_verb(program);
  add_tokenize_verb(program);
  add_launch_verb(program, program_to_launch, exit_code);
  add_runtime_verb(program, "doctor");
  const auto find_verb = [&] {
    if (line.count > 1 && (is_runtime_verb(line.arguments[1]) || measures_a_plan(line))) become_runtime_program(line);
    require_known_verb(program, line);
  };
  const int code = run_program(program, line, find_verb, complain_as_rank);
  return code == 0 ? exit_code : code;
}

}  // namespace
}  // namespace penstock::cli

int main(int argc, char** argv) { return penstock::cli::run({argc, argv}); }
