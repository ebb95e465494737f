// Jobs whose number of pipeline ranks follows from the slots that there are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/launch/launcher_arguments.h"
#include "penstock/launch/train_settings.h"

namespace penstock {

/// The smallest and the largest number of pipeline ranks.
struct ElasticRange {
  int least = 1;
  int most = 1;
};

/// Parses "2:4". Throws ConfigError.
ElasticRange parse_elastic_range(std::string_view text);

/// Throws ConfigError, with the reason, for a training whose settings fix the number of pipeline ranks.
void require_elastic(const TrainSettings& settings);

/// The number of pipeline ranks p: as many as `slots` allow, within the range; each takes a slot for every replica.
/// Throws Failure if there are fewer slots than the smallest number of pipeline ranks needs.
int pipeline_ranks(const ElasticRange& range, int slots, int replicas);

/// `arguments` for p pipeline ranks: later flags take precedence over earlier ones and over --config.
std::vector<std::string> elastic_arguments(const std::vector<std::string>& arguments, int pipeline_ranks, int replicas);

/// Parses what a discovery program writes: a line HOST or HOST:N for each host; empty lines and lines that begin with
/// "#" are skipped. Throws ConfigError for any other line.
std::vector<HostSlots> parse_discovered_hosts(std::string_view text);

/// Runs the program and returns the hosts that it writes. It is one program, without arguments. Throws Failure if it
/// cannot be started, fails, or takes longer than a minute.
std::vector<HostSlots> discover_hosts(const std::string& program);

/// Those of `hosts` on which the launcher can start a process. All others than this machine are tried, at the same
/// time, for at most 30 seconds.
std::vector<HostSlots> reachable_hosts(const std::vector<HostSlots>& hosts, const std::string& launcher);

}  // namespace penstock
