// Signals that ask a program to end: noted, so that a training ends between two steps. Free of LibTorch.
#pragma once

#include <chrono>
#include <optional>

namespace penstock {

/// While at least one StopSignals lives, SIGTERM, SIGINT and SIGUSR1 do not end this process. The first one is noted
/// for received(), which a loop asks between two steps. A second one, of the same number or not, ends the process at
/// once by its default action. Signals that this process ignores when the first object is made (SIGINT in the
/// background jobs of a shell) stay ignored.
///
/// Actions of signals belong to the whole process: the first object installs the handlers, and the last one restores
/// what was there before and forgets the signal. System calls that a signal interrupts are continued where the system
/// can (SA_RESTART). Thread-safe.
class StopSignals {
 public:
  /// A signal that comes within this time after the first one is the same request: `timeout`, for example, signals its
  /// child and then the group in which the child is too.
  static constexpr std::chrono::milliseconds same_request{500};

  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The number of the first signal since the oldest living object was made; none if there was no signal, or no object
  /// lives. Takes no lock.
  static std::optional<int> received();
};

}  // namespace penstock
