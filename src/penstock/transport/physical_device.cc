#include "penstock/transport/physical_device.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/transport/peer_processes.h"

namespace penstock {
namespace {

/// The entry of a list like "3,GPU-8932f937" that process-local index `index` means; the index itself without a list.
std::string visible_entry(const char* list, int index) {
  std::string_view rest = list ? list : "";
  if (rest.empty()) return std::to_string(index);
  for (int i = 0; i < index && !rest.empty(); ++i) rest.remove_prefix(std::min(rest.find(',') + 1, rest.size()));
  return std::string(rest.substr(0, rest.find(',')));
}

}  // namespace

std::uint64_t physical_device(c10::Device device, const Environment& environment) {
  // Containers, and control groups that hide devices, number what they see, each for itself.
  std::error_code ignored;
  std::string seen_with = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) seen_with += " " + line;
  const int index = device.has_index() ? device.index() : 0;
  return text_hash(say(host_id(environment), " ", seen_with, " ", c10::DeviceTypeName(device.type()), " ",
                       visible_entry(environment("CUDA_VISIBLE_DEVICES"), index)));
}

std::uint64_t physical_device(c10::Device device) {
  return physical_device(device, [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace penstock
