#include <filesystem>

#include "penstock/base/read_text.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/torch_csv.h"

namespace penstock {
namespace {

// A schedule of 100 million instructions.
constexpr std::uint64_t most_schedule_bytes = std::uint64_t{1} << 30;

}  // namespace

bool is_schedule_file(const std::string& source) {
  if (known_generator(source)) return false;
  std::error_code ignored;  // a path that cannot be examined is not there
  return source.find_first_of("/.") != std::string::npos || std::filesystem::exists(source, ignored);
}

Schedule load_schedule(const std::string& path, std::vector<std::string>* notes) {
  const auto read = [&](const std::string& text) {
    if (text.starts_with("penstock")) return read_schedule(text);
    CsvSchedule csv = read_torch_csv(text);
    csv.schedule.name = std::filesystem::path(path).stem().string();
    if (notes) *notes = std::move(csv.notes);
    return std::move(csv.schedule);
  };
  return read_file(path, read, {.most_bytes = most_schedule_bytes, .expected = "a schedule file"});
}

}  // namespace penstock
