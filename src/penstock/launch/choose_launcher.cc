#include "penstock/launch/choose_launcher.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {
namespace {

bool is_elsewhere(const HostSlots& host) { return !is_this_machine(host); }

/// NCCL carries tensors of ranks that Gloo joins.
bool joins_by_gloo(const std::string& transport) { return transport == "gloo" || transport == "nccl"; }

void require_agreement(const LauncherRequest& request) {
  const std::string &ours = request.transport, &theirs = request.verb_transport;
  const bool agree = joins_by_gloo(theirs) ? ours == "gloo" : theirs != "mpi" || ours == "mpi";
  require<ConfigError>(ours == "auto" || agree, "launch --transport ", ours,
                       " starts ranks that the program's --transport ", theirs,
                       " does not join: give the same transport on both sides of --, or on one of them");
  require<ConfigError>(ours != "gloo" || request.launcher.empty(),
                       "--transport gloo starts the ranks without another "
                       "launcher, but --launcher names ",
                       request.launcher, ": leave one of the two out");
}

}  // namespace

std::string flag_value(const std::vector<std::string>& arguments, const std::string& flag) {
  std::string value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == flag && i + 1 < arguments.size()) value = arguments[i + 1];
    if (arguments[i].starts_with(flag + "=")) value = arguments[i].substr(flag.size() + 1);
  }
  return value;
}

bool starts_over_gloo(const LauncherRequest& request, const LauncherSupply& supply) {
  require_agreement(request);
  if (request.transport == "gloo") return true;
  if (request.transport == "mpi" || !request.launcher.empty()) return false;
  if (joins_by_gloo(request.verb_transport)) return true;
  if (request.verb_transport == "mpi") return false;
  if (std::any_of(request.hosts.begin(), request.hosts.end(), is_elsewhere)) return false;
  return !supply.has_mpirun || (request.is_verb && !supply.is_mpi_built);
}

void require_this_machine(const std::vector<HostSlots>& hosts, const std::string& named_by) {
  const auto other = std::find_if(hosts.begin(), hosts.end(), is_elsewhere);
  if (other == hosts.end()) return;
  throw ConfigError(say(named_by, " names ", other->name,
                        ", but ranks that Gloo joins are started on this machine alone: start them with mpirun "
                        "(--transport mpi), or call torchrun on each host (docs/launch.md#torchrun)"));
}

}  // namespace penstock
