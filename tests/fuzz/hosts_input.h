// The function under test of the fuzzer of lists of hosts. The test that replays its corpus calls it too. It throws if
// a property does not hold. Refusing the input is correct.
#pragma once

#include <string>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/launch/launcher_arguments.h"

namespace penstock {

inline void try_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  try {
    hosts = parse_hosts(text);
  } catch (const ConfigError&) {
    return;
  }
  std::string again;
  for (const HostSlots& host : hosts)
    again += (again.empty() ? "" : ",") + host.name + ":" + std::to_string(host.slots);
  require<InternalError>(rank_count({.hosts = hosts}) >= static_cast<int>(hosts.size()), "fewer ranks than hosts");
  require<InternalError>(parse_hosts(again).size() == hosts.size(), "the hosts do not read back");
}

}  // namespace penstock
