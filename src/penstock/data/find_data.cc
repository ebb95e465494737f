#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "penstock/data/find_data.h"

namespace penstock {
namespace {

/// `folder` and what it lies in, up to the root.
void add_with_parents(const std::filesystem::path& folder, std::vector<std::filesystem::path>& to) {
  for (std::filesystem::path at = folder; !at.empty(); at = at.parent_path()) {
    to.push_back(at);
    if (at == at.parent_path()) break;
  }
}

}  // namespace

std::string find_data(const std::string& set) {
  if (const char* chosen = std::getenv("PENSTOCK_DATA"); chosen && *chosen != '\0') return chosen;
  std::vector<std::filesystem::path> above;
  std::error_code code;  // what cannot be looked at counts as absent
  if (const auto here = std::filesystem::current_path(code); !code) add_with_parents(here, above);
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", code); !code)
    add_with_parents(program.parent_path(), above);
  for (const std::filesystem::path& folder : above)
    for (const char* name : {"data", "shared/data"})
      if (std::filesystem::is_directory(folder / name / set, code)) return (folder / name).string();
  return "data";
}

}  // namespace penstock
