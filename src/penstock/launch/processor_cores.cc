#include "penstock/launch/processor_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {

std::vector<Core> usable_cores() {
  std::vector<std::pair<std::string, Core>> cores;  // by the processors that share each
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file(say("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = std::to_string(cpu);
    const auto same = std::find_if(cores.begin(), cores.end(), [&](const auto& one) { return one.first == siblings; });
    if (same == cores.end())
      cores.push_back({siblings, {cpu}});
    else
      same->second.push_back(cpu);
  }
  std::vector<Core> found;
  for (auto& [siblings, core] : cores) found.push_back(std::move(core));
  return found;
}

void bind_to(const CoreShare& share) {
  const std::vector<Core> cores = usable_cores();
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int i = 0; i < share.cores_of_each; ++i)
    if (const auto core = static_cast<std::size_t>(share.rank * share.cores_of_each + i); core < cores.size())
      for (const int cpu : cores[core]) CPU_SET(cpu, &own);
  if (CPU_COUNT(&own) > 0) ::sched_setaffinity(0, sizeof(own), &own);
}

}  // namespace penstock
