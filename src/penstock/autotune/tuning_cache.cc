#include "penstock/autotune/tuning_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/log.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

namespace fs = std::filesystem;

std::string TuningCache::file_of(const std::string& key) const {
  return (fs::path(folder) / (hash_digits(text_hash(key)) + ".json")).string();
}

std::optional<TuningRecord> TuningCache::find(const std::string& key) const {
  if (measure_again) return std::nullopt;
  const std::string path = file_of(key);
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  try {
    TuningRecord record = read_tuning_record(text.str());
    if (record.key == key) return record;
    warn(say(path, " belongs to another job: measuring, and replacing it"));
  } catch (const Misuse& error) {
    warn(say(path, " cannot be used (", error.what(), "): measuring, and replacing it"));
  }
  return std::nullopt;
}

void TuningCache::store(const TuningRecord& record) const {
  const std::string path = file_of(record.key), temporary = say(path, ".", random_digits(), ".new");
  std::error_code ignored;
  try {
    fs::create_directories(folder);
    std::ofstream file(temporary, std::ios::binary);
    file << write_tuning_record(record);
    file.close();
    require<DataError>(file.good(), "it could not be written to its end");
    fs::rename(temporary, path);
  } catch (const std::exception& error) {
    fs::remove(temporary, ignored);
    warn(say("measurements are not kept in ", path, ": ", error.what()));
  }
}

std::string default_tuning_folder() {
  const auto folder_in = [](const char* variable) -> std::string {
    const char* value = std::getenv(variable);
    return value && fs::path(value).is_absolute() ? value : "";
  };
  if (const std::string cache = folder_in("XDG_CACHE_HOME"); !cache.empty())
    return (fs::path(cache) / "penstock").string();
  if (const std::string home = folder_in("HOME"); !home.empty()) return (fs::path(home) / ".cache/penstock").string();
  return "";
}

}  // namespace penstock
