// The cores on which a process may run, of which a launcher may leave it fewer than it has threads.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include <sched.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

/// The threads of all ranks of a process, and the cores that it may use and that its host has.
struct ProcessCores {
  int threads = 1;
  int usable = 1;
  int of_host = 1;
};

inline int cores_of_host() { return static_cast<int>(std::thread::hardware_concurrency()); }

/// The number of cores on which the calling thread may run: 1 if mpirun or srun has bound the process to a core.
inline int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : cores_of_host();
}

/// A warning with the flags that help, if the process is bound to fewer cores than its ranks have threads. None if it
/// may use all cores of its host: more threads than these are a choice.
inline std::optional<std::string> bound_cores_warning(const ProcessCores& cores) {
  if (cores.usable >= std::min(cores.threads, cores.of_host)) return std::nullopt;
  return say("the ranks of a process have ", counted(cores.threads, "thread"), ", and it may use ", cores.usable,
             " of the host's ", counted(cores.of_host, "core"),
             ": start it with mpirun --bind-to none or --map-by slot:PE=", cores.threads,
             ", or srun --cpus-per-task=", cores.threads);
}

}  // namespace penstock
