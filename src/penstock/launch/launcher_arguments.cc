#include "penstock/launch/launcher_arguments.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "penstock/base/error.h"
#include "penstock/launch/local_launcher.h"
#include "penstock/launch/processor_cores.h"

namespace penstock {
namespace {

using Arguments = std::vector<std::string>;

// Sums of slots stay far below the largest int.
constexpr std::int64_t most_slots = 1'000'000;

HostSlots parse_host(std::string_view argument, std::string_view all) {
  const std::size_t colon = argument.find(':');
  HostSlots host{std::string(argument.substr(0, colon)), 1};
  require<ConfigError>(!host.name.empty(), "hosts '", all, "': a name is missing; write hosts as a:2,b:2");
  if (colon == argument.npos) return host;
  const std::string_view number = argument.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), host.slots);
  require<ConfigError>(
      error == std::errc{} && end == number.data() + number.size() && host.slots >= 1 && host.slots <= most_slots,
      "hosts '", all, "': '", number, "' is not a number of ranks for ", host.name, "; write hosts as a:2,b:2");
  return host;
}

std::string joined(const std::vector<HostSlots>& hosts, bool with_slots) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += (text.empty() ? "" : ",") + host.name;
    if (with_slots) text += ":" + std::to_string(host.slots);
  }
  return text;
}

/// The cores of each rank: an equal share if there are enough, else 0. The cores of other hosts are not known.
int cores_of_each(const LaunchSettings& settings, const LaunchingMachine& machine) {
  const bool are_unknown = !settings.hosts.empty() || machine.confined;
  return are_unknown || is_crowded(settings, machine) ? 0 : machine.cores / rank_count(settings);
}

Arguments binding(const LaunchSettings& settings, const LaunchingMachine& machine) {
  if (settings.bind != "auto") return {"--bind-to", settings.bind};
  const int share = cores_of_each(settings, machine);
  if (share == 0) return {"--bind-to", "none"};
  return {"--map-by", "slot:PE=" + std::to_string(share), "--bind-to", "core"};
}

/// A launcher of our own, which is this program.
Arguments gloo_arguments(const LaunchSettings& settings, const LaunchingMachine& machine) {
  return local_launcher_arguments(settings.launcher,
                                  {.ranks = rank_count(settings),
                                   .master_port = settings.master_port,
                                   .cores_of_each = settings.bind == "auto" ? cores_of_each(settings, machine) : 0});
}

Arguments mpirun_arguments(const LaunchSettings& settings, const LaunchingMachine& machine) {
  Arguments arguments{settings.launcher, "-n", std::to_string(rank_count(settings))};
  const auto add = [&](const Arguments& more) { arguments.insert(arguments.end(), more.begin(), more.end()); };
  if (!settings.hosts.empty()) add({"--host", joined(settings.hosts, true)});
  if (is_crowded(settings, machine)) add({"--oversubscribe"});
  add(binding(settings, machine));
  // On one machine messages use shared memory, so no rank needs to listen on the network.
  if (is_on_this_machine(settings) && !machine.btl_chosen) add({"--mca", "btl", "self,vader"});
  return arguments;
}

Arguments srun_arguments(const LaunchSettings& settings) {
  Arguments arguments{settings.launcher, "--ntasks=" + std::to_string(rank_count(settings)), "--mpi=pmix",
                      "--kill-on-bad-exit=1", "--quit-on-interrupt"};
  if (!settings.hosts.empty()) {
    const int slots = settings.hosts.front().slots;
    for (const HostSlots& host : settings.hosts)
      require<ConfigError>(host.slots == slots, "srun gives every host as many ranks, but ",
                           settings.hosts.front().name, " is to take ", slots, " and ", host.name, " ", host.slots);
    arguments.push_back("--nodelist=" + joined(settings.hosts, false));
    arguments.push_back("--ntasks-per-node=" + std::to_string(slots));
  }
  if (settings.bind != "auto") arguments.push_back("--cpu-bind=" + settings.bind);
  return arguments;
}

}  // namespace

LaunchingMachine this_machine() {
  LaunchingMachine machine;
  std::size_t processors = 0;
  const std::vector<Core> cores = usable_cores();
  for (const Core& core : cores) processors += core.size();
  machine.cores = std::max(1, static_cast<int>(cores.size()));
  machine.confined = static_cast<long>(processors) < ::sysconf(_SC_NPROCESSORS_ONLN);
  machine.btl_chosen = std::getenv("OMPI_MCA_btl") != nullptr;
  return machine;
}

bool is_srun(const LaunchSettings& settings) {
  return !settings.over_gloo && std::filesystem::path(settings.launcher).filename() == "srun";
}

bool is_this_machine(const HostSlots& host) {
  char name[256] = {};
  return host.name == "localhost" || (::gethostname(name, sizeof(name) - 1) == 0 && host.name == name);
}

bool is_on_this_machine(const LaunchSettings& settings) {
  return !is_srun(settings) && std::all_of(settings.hosts.begin(), settings.hosts.end(), is_this_machine);
}

int slots_of(const std::vector<HostSlots>& hosts) {
  std::int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  require<ConfigError>(slots <= most_slots, "hosts with ", slots, " slots: at most ", most_slots, " are possible");
  return static_cast<int>(slots);
}

std::vector<HostSlots> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const HostSlots host = parse_host(rest.substr(0, comma), text);
    const auto same =
        std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& one) { return one.name == host.name; });
    if (same == hosts.end())
      hosts.push_back(host);
    else
      same->slots += host.slots;
    slots_of(hosts);  // so that no sum overflows
    if (comma == rest.npos) return hosts;
    rest.remove_prefix(comma + 1);
  }
}

int rank_count(const LaunchSettings& settings) {
  if (settings.ranks != 0) {
    require<ConfigError>(settings.ranks > 0, "-n ", settings.ranks, ", but a job has at least 1 rank");
    return settings.ranks;
  }
  require<ConfigError>(!settings.hosts.empty(),
                       "how many ranks? Give -n, or hosts with what each takes (--hosts a:2,b:2)");
  return slots_of(settings.hosts);
}

bool is_crowded(const LaunchSettings& settings, const LaunchingMachine& machine) {
  return rank_count(settings) > (settings.hosts.empty() ? machine.cores : slots_of(settings.hosts));
}

std::vector<std::string> launcher_arguments(const LaunchSettings& settings, const LaunchingMachine& machine) {
  if (settings.over_gloo) return gloo_arguments(settings, machine);
  return is_srun(settings) ? srun_arguments(settings) : mpirun_arguments(settings, machine);
}

std::string as_shell_line(const std::vector<std::string>& arguments) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == argument.npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char letter : argument) line += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    line += '\'';
  }
  return line;
}

}  // namespace penstock
