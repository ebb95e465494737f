// The file config.json of a Hugging Face directory, value by value. Internal to this module.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace penstock::hf {

/// An object of config.json. A value that is null counts as absent. Functions that read a value throw ConfigError,
/// which names the file and the key, for one of another type, and for an absent one without `otherwise`.
class ConfigFile {
 public:
  /// One key, or several names of one value, of which the first that is present counts.
  struct Keys {
    Keys(const char* key) : names{key} {}  // NOLINT: a key is a list of one
    Keys(std::initializer_list<const char*> keys) : names(keys.begin(), keys.end()) {}  // NOLINT
    std::vector<std::string> names;
  };

  /// Reads `directory`/config.json. Throws DataError if there is none, or if it is not a JSON object.
  explicit ConfigFile(const std::string& directory);

  const std::string& directory() const { return directory_; }
  /// The path of the file and, for a part, its key: for messages.
  const std::string& place() const { return place_; }

  bool has(const Keys& keys) const;
  std::int64_t integer(const Keys& keys, std::optional<std::int64_t> otherwise = {}) const;
  /// An integer that is at least 1.
  std::int64_t size(const Keys& keys, std::optional<std::int64_t> otherwise = {}) const;
  double number(const Keys& keys, std::optional<double> otherwise = {}) const;
  bool flag(const Keys& keys, std::optional<bool> otherwise = {}) const;
  std::string text(const Keys& keys, std::optional<std::string> otherwise = {}) const;
  /// A list, or a single value as a list of one; empty if absent.
  std::vector<std::int64_t> integers(const Keys& keys) const;
  std::vector<std::string> texts(const Keys& keys) const;
  /// An object inside this one; an empty object if absent.
  ConfigFile part(const Keys& keys) const;

  /// Throws ConfigError if `key` is present and not false, 0 or an empty object: what it asks for is not supported.
  void refuse(const char* key) const;

 private:
  ConfigFile() = default;
  const nlohmann::json* find(const Keys& keys) const;
  template <class T>
  T get(const Keys& keys, const std::optional<T>& otherwise, const char* kind) const;

  std::string directory_, place_;
  std::shared_ptr<const nlohmann::json> values_;
};

}  // namespace penstock::hf
