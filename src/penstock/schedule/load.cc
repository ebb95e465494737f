#include <filesystem>
#include <fstream>
#include <iterator>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/torch_csv.h"

namespace penstock {

bool is_schedule_file(const std::string& source) {
  if (known_generator(source)) return false;
  std::error_code ignored;  // a path that cannot be examined is not there
  return source.find_first_of("/.") != std::string::npos || std::filesystem::exists(source, ignored);
}

Schedule load_schedule(const std::string& path, std::vector<std::string>* notes) {
  std::ifstream file(path, std::ios::binary);
  require<DataError>(file.is_open() && !std::filesystem::is_directory(path), path,
                     ": cannot be opened; a schedule file is expected there");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  require<DataError>(!file.bad(), path, ": cannot be read");
  try {
    if (text.starts_with("penstock")) return read_schedule(text);
    CsvSchedule csv = read_torch_csv(text);
    csv.schedule.name = std::filesystem::path(path).stem().string();
    if (notes) *notes = std::move(csv.notes);
    return std::move(csv.schedule);
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

}  // namespace penstock
