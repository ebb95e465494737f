#include "penstock/cli/repeated_lines.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Whether a line is that of a step at `next` or later. Lines of other programs, which a file may also have, are not.
bool is_repeated(const std::string& line, const DataPosition& next) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto number = [&](const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
  };
  return number("step") >= 0 && std::pair(number("epoch"), number("step")) >= std::pair(next.epoch, next.step_in_epoch);
}

}  // namespace

void remove_repeated_lines(const std::string& path, const DataPosition& next) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return;
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t kept = 0;
  for (std::string line; std::getline(file, line) && !file.eof() && !is_repeated(line, next);) kept += line.size() + 1;
  file.close();
  if (kept == std::filesystem::file_size(path, code)) return;
  std::filesystem::resize_file(path, kept, code);
  require<Failure>(!code, "--json ", path, ": the lines of steps that are repeated cannot be removed: ",
                   code.message());
}

}  // namespace penstock
