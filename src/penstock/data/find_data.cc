#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "penstock/data/find_data.h"

namespace penstock {
namespace {

/// Appends `folder` and its parents up to the root.
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
  std::error_code code;  // ignored: an unreadable folder counts as absent
  if (const auto here = std::filesystem::current_path(code); !code) add_with_parents(here, above);
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", code); !code)
    add_with_parents(program.parent_path(), above);
  for (const std::filesystem::path& folder : above)
    if (std::filesystem::is_directory(folder / "data" / set, code)) return (folder / "data").string();
  return "data";
}

}  // namespace penstock
