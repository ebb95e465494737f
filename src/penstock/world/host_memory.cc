#include "penstock/world/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include <sys/resource.h>

namespace penstock {
namespace {

constexpr std::int64_t kib = 1024;  // Linux reports KiB

/// The bytes of a size such as "32768K", "512K" or "1M".
std::int64_t bytes_of(const std::string& size) {
  std::size_t end = 0;
  const std::int64_t number = size.empty() || size[0] < '0' || size[0] > '9' ? 0 : std::stoll(size, &end);
  const char unit = end < size.size() ? size[end] : ' ';
  return number * (unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1);
}

/// The number of processors in a list: 5 for "0-3,8".
int processors_in(const std::string& list) {
  int count = 0;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size()), dash = std::min(list.find('-', at), end);
    const int first = std::stoi(list.substr(at)), last = dash < end ? std::stoi(list.substr(dash + 1)) : first;
    count += last - first + 1;
    at = end + 1;
  }
  return std::max(1, count);
}

std::string line_of(const std::string& file) {
  std::string line;
  std::ifstream(file) >> line;
  return line;
}

}  // namespace

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * kib;
}

std::int64_t resident_bytes() {
  const std::string field = "VmRSS:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::strtoll(line.c_str() + field.size(), nullptr, 10) * kib;
  return 0;
}

std::int64_t cache_share(int ranks) {
  std::int64_t most = 0;
  int sharers = 1;
  for (int index = 0;; ++index) {
    const std::string place = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string size = line_of(place + "size");
    if (size.empty()) break;
    if (bytes_of(size) <= most) continue;
    most = bytes_of(size);
    sharers = processors_in(line_of(place + "shared_cpu_list"));
  }
  return most / 4 / std::clamp(ranks, 1, sharers);
}

int ranks_on_host(const ControlPlane& endpoint) {
  int count = 0;
  for (std::int32_t rank = 0; rank < endpoint.size(); ++rank) count += endpoint.shares_host(WorldRank(rank)) ? 1 : 0;
  return count;
}

}  // namespace penstock
