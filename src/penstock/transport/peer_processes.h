// Notices that the process of another rank of this host has ended, though nobody says so: it was killed, or has
// crashed. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/base/ids.h"

namespace penstock {

/// A process as others of its host see it. Numbers are those of one PID namespace: containers have their own.
struct ProcessName {
  std::uint64_t numbered_by = 0;  // identifies the PID namespace; 0: unknown
  std::int64_t number = 0;
};

/// That of this process.
ProcessName own_process_name();

/// Whether process `number` of this process's PID namespace is stopped, as by SIGSTOP.
bool is_stopped(std::int64_t number);
/// 'T' for a stopped process, 'R', 'S', ... for others; none when there is no such process.
std::optional<char> state_of_process(std::int64_t number);
/// When process `number` was started, in clock ticks since the boot; 0 when there is no such process. Numbers of
/// processes are used again, and this tells two of one number apart.
std::uint64_t start_of_process(std::int64_t number);

/// Used by one thread at a time.
class PeerProcesses {
 public:
  PeerProcesses() = default;
  /// Stops watching.
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  /// Watches the process of `rank`, which must be of this host; it may have ended already. Where the system cannot do
  /// that, or the two processes are in different PID namespaces, the rank is never reported.
  void watch(WorldRank rank, const ProcessName& process);

  struct Ended {
    WorldRank rank;
    std::int64_t process = 0;
  };
  /// A rank whose process has ended; none if all live. One system call.
  std::optional<Ended> ended() const;

 private:
  struct Watched {
    Ended which;
    int descriptor = -1;  // of the process (pidfd)
  };
  std::vector<Watched> watched_;
  std::optional<Ended> ended_before_;  // one that had ended when watch() was called
};

}  // namespace penstock
