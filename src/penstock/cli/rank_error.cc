#include "penstock/cli/rank_error.h"

#include <chrono>
#include <thread>

#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

// Far longer than mpirun takes to end the others, on a busy machine too. Misuse is nearly always every rank's own; a
// failure may be known to a few ranks only, when rank 0 is the one that hangs.
constexpr std::chrono::milliseconds grace_with_misuse{3000};
constexpr std::chrono::milliseconds grace_with_failure{2000};

}  // namespace

int complain_as_rank(ExitCode code, const std::string& message) {
  LaunchedAs launched;
  try {
    launched = launched_as();
  } catch (const Misuse&) {
    // The message at hand says so already.
  }
  if (launched.rank == 0) return print_error(code, message);
  std::this_thread::sleep_for(code == ExitCode::misuse ? grace_with_misuse : grace_with_failure);
  return print_error(code, say("[rank ", launched.rank, "] ", message));
}

}  // namespace penstock
