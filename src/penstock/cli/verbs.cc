#include "penstock/cli/verbs.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "penstock/transport/joining/launch_environment.h"

namespace penstock::cli {
namespace {

// Far longer than mpirun takes to end the other ranks, even on a busy machine. The wait is long for misuse, which
// nearly every rank reports, and shorter for failures, which rank 0 may not report because it hangs. Where no launcher
// ends the others, all have ended 2 s after the deadline.
constexpr std::chrono::milliseconds grace_with_misuse{3000};
constexpr std::chrono::milliseconds grace_with_failure{1500};

std::atomic<bool> reports_at_once{false};

}  // namespace

void report_in_place_of_rank_0() { reports_at_once = true; }

int complain_as_rank(ExitCode code, const std::string& message) {
  joining::LaunchedAs launched;
  try {
    // The transport is unknown here. Where launchers contradict each other, gloo is asked for, or the message says so.
    launched = joining::launched_as(joining::AskedTransport::gloo);
  } catch (const Misuse&) {
    // The error message itself is already about the environment.
  }
  if (launched.rank == 0) return print_error(code, message);
  if (!reports_at_once) std::this_thread::sleep_for(code == ExitCode::misuse ? grace_with_misuse : grace_with_failure);
  return print_error(code, say("[rank ", launched.rank, "] ", message));
}

}  // namespace penstock::cli
