// Identifies hosts, processes and their devices, and notices that the process of another rank of this host has ended,
// though nobody says so: it was killed, or has crashed. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/base/process.h"

namespace penstock::processes {

/// The environment variable that overrides the host identity, to emulate several hosts on one machine in tests.
inline constexpr const char* host_variable = "PENSTOCK_HOST";

/// A number that is the same for all processes of a host, which share its steady clock, cores and caches, and differs
/// between hosts. It is a hash of the kernel's boot id, which containers share as they share the clock, or of the
/// host's name if the boot id is not readable. Never 0.
std::uint64_t host_id(const Environment& environment = own_environment);

/// A process as others of its host see it. Numbers are those of one PID namespace: containers have their own.
struct ProcessName {
  std::uint64_t numbered_by = 0;  // identifies the PID namespace; 0: unknown
  std::int64_t number = 0;
};

/// That of this process.
ProcessName own_process_name();

/// Where the process of a rank runs.
struct ProcessPlace {
  std::uint64_t host = 0;  // host_id()
  ProcessName process = {};
};
/// That of this process.
ProcessPlace own_place();

/// Why the process of a rank does not respond, to be put after the rank: " (process 4711) is stopped" or " (process
/// 4711) has ended". Empty if it runs, or is not one of this host and PID namespace.
std::string trouble_with(const ProcessPlace& place);

/// A device as its process names it, such as CUDA 1.
struct DeviceName {
  std::string type;
  int index = 0;
};

/// A number that is the same for two processes where `device` of both is certainly one piece of hardware: on one host,
/// among processes that see each other, the same entry of CUDA_VISIBLE_DEVICES, or the same index where that is not
/// set. Numbers may differ although the hardware is the same, as between two containers.
std::uint64_t physical_device(const DeviceName& device, const Environment& environment = own_environment);

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

}  // namespace penstock::processes
