#include "penstock/world/resident_memory.h"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace penstock {
namespace {

constexpr std::int64_t kib = 1024;  // Linux reports KiB

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

}  // namespace penstock
