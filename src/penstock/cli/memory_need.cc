#include "penstock/cli/memory_need.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/schedule_cache.h"

namespace penstock::cli {
namespace {

constexpr double megabyte = 1e6;

/// The number in a file of one number; none if there is no file, or another text, such as "max".
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The bytes of files that a control group counts as used, and that the kernel takes back when memory is needed.
/// `prefix`: of the names in the group's statistics.
std::int64_t cached_bytes(const std::string& statistics, const std::string& prefix) {
  std::ifstream file(statistics);
  std::int64_t sum = 0, amount = 0;
  for (std::string name; file >> name >> amount;)
    if (name == prefix + "active_file" || name == prefix + "inactive_file") sum += amount;
  return sum;
}

/// What the control groups of this process leave, from its own to the outermost one of each hierarchy.
std::optional<std::int64_t> left_by_groups() {
  std::optional<std::int64_t> least;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" in version 2, "4:memory:/path" in version 1.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const bool is_old = !controllers.empty();
    const std::string root = is_old ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      const std::string group = root + (path == "/" ? "" : path) + "/memory.";
      const auto limit = number_in(group + (is_old ? "limit_in_bytes" : "max"));
      const auto used = number_in(group + (is_old ? "usage_in_bytes" : "current"));
      if (limit && used) {
        const std::int64_t kept = *used - cached_bytes(group + "stat", is_old ? "total_" : "");
        least = std::min(least.value_or(*limit), std::clamp<std::int64_t>(*limit - kept, 0, *limit));
      }
      if (path.empty() || path == "/") break;
    }
  }
  return least;
}

}  // namespace

std::vector<std::int64_t> bytes_of_ranks(Cell& network, const PipelineOptions& options, const Training& training) {
  const ScheduleCache schedules({.options = options, .ranks = training.ranks});
  const StagedGraph staged = partition_network(network, options, schedules.training().stage_count());
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(training.ranks), 0);
  for (const StagePart& part : staged.parts) {
    std::int64_t& of_rank = bytes[schedules.training().rank_of_stage[part.id.index()].index()];
    std::set<std::string> held;
    for (const int n : part.nodes) {
      const Node& node = staged.graph.nodes[static_cast<std::size_t>(n)];
      if (!node.is_layer()) continue;
      const LayerShapes& shapes = shapes_of(*node.layer);
      for (const auto& parameter : shapes.parameters) {
        const auto tie = node.ties.find(parameter.key());
        const std::string name =
            tie == node.ties.end() ? full_name(*node.layer, node.layer_path, parameter.key()) : tie->second.full_name();
        if (!held.insert(name).second) continue;
        const bool by_itself = parameter.value().requires_grad();
        const bool trains = training.has_updates && (training.trains ? training.trains(name, by_itself) : by_itself);
        const auto nbytes = static_cast<std::int64_t>(parameter.value().nbytes());
        of_rank += nbytes;
        if (trains) of_rank += nbytes + nbytes * training.optimizer_values / training.state_sharers;
      }
      for (const auto& buffer : shapes.buffers)
        if (buffer.value().defined()) of_rank += static_cast<std::int64_t>(buffer.value().nbytes());
    }
  }
  return bytes;
}

std::optional<std::int64_t> available_memory() {
  std::optional<std::int64_t> least = left_by_groups();
  constexpr std::int64_t kib = 1024;
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (std::int64_t amount = 0; word == "MemAvailable:" && file >> amount)
      return std::min(least.value_or(amount * kib), amount * kib);
  return least;
}

std::string need_text(const std::vector<std::int64_t>& bytes, std::size_t ranks_here,
                      std::optional<std::int64_t> available) {
  const auto shown = [](std::int64_t amount) { return fixed(static_cast<double>(amount) / megabyte, 0); };
  std::string text = "memory for weights, gradients and optimiser state, without activations:";
  for (std::size_t rank = 0; rank < bytes.size(); ++rank)
    text += say(rank > 0 ? "," : "", " rank ", rank, " ", shown(bytes[rank]), " MB");
  std::vector<std::int64_t> largest = bytes;
  std::ranges::sort(largest, std::greater());
  largest.resize(std::min(largest.size(), ranks_here));
  const std::int64_t needed = std::accumulate(largest.begin(), largest.end(), std::int64_t{0});
  if (!available) return text;
  return text +
         say("; this process needs ", shown(needed), " MB, and ", shown(*available), " MB are available: ",
             needed <= *available ? "it fits" : "it does not fit; use more processes, or an optimiser with less state");
}

}  // namespace penstock::cli
