#include "penstock/launch/elastic.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <future>

#include "penstock/base/error.h"
#include "penstock/launch/captured_run.h"

namespace penstock {
namespace {

constexpr std::chrono::seconds longest_discovery{60};
constexpr std::chrono::seconds longest_start{30};

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

bool can_start(const std::string& host, const std::string& launcher) {
  const CapturedRun run = run_captured({launcher, "-n", "1", "--host", host, "true"}, longest_start);
  return run.status == 0 && !run.is_late;
}

}  // namespace

ElasticRange parse_elastic_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto least = number_of(text.substr(0, colon));
  const auto most = colon == text.npos ? std::nullopt : number_of(text.substr(colon + 1));
  require<ConfigError>(least && most && *least <= *most, "--elastic ", text,
                       ": give the smallest and the largest number of pipeline ranks, as 2:4");
  return {*least, *most};
}

void require_elastic(const TrainSettings& settings) {
  require<ConfigError>(!settings.folder().empty(),
                       "--elastic goes on from checkpoints, and the training writes none: give it --checkpoint DIR");
  require<ConfigError>(settings.plan.empty(), "--elastic changes the number of pipeline ranks, and --plan ",
                       settings.plan, " fixes it: leave one of the two out");
  const bool is_file = settings.schedule.find('/') != settings.schedule.npos || settings.schedule.ends_with(".sched") ||
                       settings.schedule.ends_with(".csv");
  require<ConfigError>(!is_file, "--elastic changes the number of pipeline ranks, and the schedule file ",
                       settings.schedule, " fixes it: name a generator, such as 1f1b");
  const std::string& partition = settings.partition;
  require<ConfigError>(partition.empty() || partition == "parameters" || partition == "uniform" || partition == "time",
                       "--elastic changes the number of pipeline ranks, and --partition ", partition,
                       " fixes the stages: give parameters, uniform or time");
}

int pipeline_ranks(const ElasticRange& range, int slots, int replicas) {
  const int ranks = std::min(range.most, slots / replicas);
  require<Failure>(ranks >= range.least, "there are ", slots, " slots, but --elastic ", range.least, ":", range.most,
                   " with ", replicas, replicas == 1 ? " replica" : " replicas", " takes at least ",
                   range.least * replicas);
  return ranks;
}

std::vector<std::string> elastic_arguments(const std::vector<std::string>& arguments, int pipeline_ranks,
                                           int replicas) {
  std::vector<std::string> all = arguments;
  all.insert(all.end(), {"--stages", std::to_string(pipeline_ranks), "--replicas", std::to_string(replicas)});
  return all;
}

std::vector<HostSlots> parse_discovered_hosts(std::string_view text) {
  std::string hosts;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = without_blanks(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    require<ConfigError>(line.find_first_of(", \t") == line.npos, "the host discovery says '", line,
                         "': a line is HOST or HOST:N");
    hosts += (hosts.empty() ? "" : ",") + std::string(line);
  }
  return hosts.empty() ? std::vector<HostSlots>() : parse_hosts(hosts);
}

std::vector<HostSlots> discover_hosts(const std::string& program) {
  const CapturedRun run = run_captured({program}, longest_discovery);
  require<Failure>(!run.is_late, "the host discovery ", program, " takes longer than ", longest_discovery.count(),
                   " s");
  require<Failure>(run.status == 0, "the host discovery ", program, " ended with exit code ", run.status);
  return parse_discovered_hosts(run.output);
}

std::vector<HostSlots> reachable_hosts(const std::vector<HostSlots>& hosts, const std::string& launcher) {
  std::vector<std::future<bool>> attempts;
  for (const HostSlots& host : hosts)
    attempts.push_back(is_this_machine(host) ? std::future<bool>() : std::async(std::launch::async, [&] {
      return can_start(host.name, launcher);
    }));
  std::vector<HostSlots> found;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (!attempts[i].valid() || attempts[i].get()) found.push_back(hosts[i]);
  return found;
}

}  // namespace penstock
