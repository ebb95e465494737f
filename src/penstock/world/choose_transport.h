// Decides how the ranks of a world are joined: by what was asked for, who started this process, and what the build has.
// Torch-free.
#pragma once

#include "penstock/transport/launch_environment.h"
#include "penstock/world/world_options.h"

namespace penstock {

/// The transports between processes that a build has.
struct BuiltTransports {
  bool mpi = false;
  bool gloo = false;
};

/// Never TransportKind::automatic. A launcher's world of one process has nothing to join: gloo and nccl are threads
/// there. Throws ConfigError for a choice that would run `launched.size` whole jobs side by side, or that this build or
/// this launcher cannot serve.
TransportKind choose_transport(TransportKind wanted, const LaunchedAs& launched, const BuiltTransports& built);

}  // namespace penstock
