#include "penstock/cli/rank_complaint.h"

#include <chrono>
#include <thread>

#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

// Far longer than mpirun takes to end the others, on a busy machine too. Misuse is nearly always every rank's own; a
// failure may be known to a few ranks only, when rank 0 is the one that hangs.
constexpr std::chrono::milliseconds patience_with_misuse{3000};
constexpr std::chrono::milliseconds patience_with_failure{2000};

}  // namespace

int complain_as_rank(ExitCode code, const std::string& message) {
  LaunchedAs launched;
  try {
    launched = launched_as();
  } catch (const Misuse&) {
    // The message at hand says so already.
  }
  if (launched.rank == 0) return complain(code, message);
  std::this_thread::sleep_for(code == ExitCode::misuse ? patience_with_misuse : patience_with_failure);
  return complain(code, say("[rank ", launched.rank, "] ", message));
}

}  // namespace penstock
