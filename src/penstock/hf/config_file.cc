#include "penstock/hf/config_file.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::hf {
namespace {

template <class T>
bool is_a(const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value.is_boolean();
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return value.is_number_integer();
  else if constexpr (std::is_same_v<T, double>)
    return value.is_number();
  else
    return value.is_string();
}

std::string shown(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

ConfigFile::ConfigFile(const std::string& directory) : directory_(directory), place_(directory + "/config.json") {
  std::ifstream file(place_);
  require<DataError>(file.good(), place_, " cannot be read: pass a Hugging Face directory with config.json");
  auto values = std::make_shared<nlohmann::json>(nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false));
  require<DataError>(values->is_object(), place_, " is not a JSON object: pass a Hugging Face directory");
  values_ = std::move(values);
}

const nlohmann::json* ConfigFile::find(const Keys& keys) const {
  for (const std::string& key : keys.names)
    if (const auto found = values_->find(key); found != values_->end() && !found->is_null()) return &*found;
  return nullptr;
}

template <class T>
T ConfigFile::get(const Keys& keys, const std::optional<T>& otherwise, const char* kind) const {
  const nlohmann::json* found = find(keys);
  require<ConfigError>(found || otherwise, place_, " lacks '", keys.names.front(), "', which must be ", kind);
  if (!found) return *otherwise;
  require<ConfigError>(is_a<T>(*found), place_, " has '", keys.names.front(), "' = ", shown(*found), ", which must be ",
                       kind);
  return found->get<T>();
}

bool ConfigFile::has(const Keys& keys) const { return find(keys) != nullptr; }

std::int64_t ConfigFile::integer(const Keys& keys, std::optional<std::int64_t> otherwise) const {
  return get<std::int64_t>(keys, otherwise, "an integer");
}

std::int64_t ConfigFile::size(const Keys& keys, std::optional<std::int64_t> otherwise) const {
  const std::int64_t value = integer(keys, otherwise);
  require<ConfigError>(value >= 1, place_, " has '", keys.names.front(), "' = ", value, ", which must be at least 1");
  return value;
}

double ConfigFile::number(const Keys& keys, std::optional<double> otherwise) const {
  return get<double>(keys, otherwise, "a number");
}

bool ConfigFile::flag(const Keys& keys, std::optional<bool> otherwise) const {
  return get<bool>(keys, otherwise, "true or false");
}

std::string ConfigFile::text(const Keys& keys, std::optional<std::string> otherwise) const {
  return get<std::string>(keys, otherwise, "a text");
}

namespace {

template <class T>
std::vector<T> list_of(const nlohmann::json& value, const std::string& what, const char* kind) {
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  std::vector<T> all;
  for (const nlohmann::json& one : list) {
    require<ConfigError>(is_a<T>(one), what, " = ", shown(value), ", which must be a list of ", kind);
    all.push_back(one.get<T>());
  }
  return all;
}

}  // namespace

std::vector<std::int64_t> ConfigFile::integers(const Keys& keys) const {
  if (!has(keys)) return {};
  return list_of<std::int64_t>(*find(keys), say(place_, " has '", keys.names.front(), "'"), "integers");
}

std::vector<std::string> ConfigFile::texts(const Keys& keys) const {
  if (!has(keys)) return {};
  return list_of<std::string>(*find(keys), say(place_, " has '", keys.names.front(), "'"), "texts");
}

ConfigFile ConfigFile::part(const Keys& keys) const {
  const nlohmann::json* found = find(keys);
  require<ConfigError>(!found || found->is_object(), place_, " has '", keys.names.front(),
                       "', which must be an object");
  ConfigFile inner;
  inner.directory_ = directory_;
  inner.place_ = place_ + " (" + keys.names.front() + ")";
  inner.values_ = std::make_shared<const nlohmann::json>(found ? *found : nlohmann::json::object());
  return inner;
}

void ConfigFile::refuse(const char* key) const {
  const nlohmann::json* found = find(key);
  const bool is_off = !found || *found == false || *found == 0 || (found->is_object() && found->empty());
  require<ConfigError>(is_off, place_, " has '", key, "' = ", found ? shown(*found) : "",
                       ", which is not supported: use a model without it");
}

}  // namespace penstock::hf
