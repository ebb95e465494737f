// The program `penstock-body`: the verbs that need LibTorch. `penstock` becomes it (body_launcher.h).
#include <chrono>
#include <cstdlib>
#include <thread>

#include "penstock/base/log.h"
#include "penstock/cli/body_verbs.h"
#include "penstock/cli/exit_codes.h"
#include "penstock/cli/known_verbs.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

/// How long a rank keeps an error to itself that rank 0 most likely reports too, before mpirun ends them all.
constexpr std::chrono::milliseconds first_say_of_rank_0{1500};

int complain_as_rank(ExitCode code, const std::string& message) {
  LaunchedAs launched;
  try {
    launched = launched_as();
  } catch (const Misuse&) {
    // The message at hand says so already.
  }
  if (launched.rank == 0) return complain(code, message);
  if (code == ExitCode::misuse) std::this_thread::sleep_for(first_say_of_rank_0);
  return complain(code, say("[rank ", launched.rank, "] ", message));
}

int run(const CommandLine& line) {
  set_log_level(LogLevel::info);
  CLI::App program("Pipeline-parallel training: train, and see where the time goes.", "penstock");
  // A flag that is given twice counts the last time: scripts append to a line that works.
  program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  int exit_code = 0;
  add_train(program, exit_code);
  add_bench(program, exit_code);
  add_doctor(program, exit_code);
  const int code = run_program(program, line, [&] { require_known_verb(program, line); }, complain_as_rank);
  return code == 0 ? exit_code : code;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const int code = penstock::run({argc, argv});
  // After a failure a rank may still be inside code that never returns: nothing that it uses may be torn down.
  if (code == static_cast<int>(penstock::ExitCode::failed)) {
    std::cout.flush();
    std::cerr.flush();
    std::_Exit(code);
  }
  return code;
}
