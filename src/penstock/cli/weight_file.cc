#include "penstock/cli/weight_file.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/utf8.h"
#include "penstock/checkpoint/checkpoint.h"
#include "penstock/zoo/zoo.h"

namespace penstock {
namespace {

constexpr const char* version_key = "penstock.weights";
constexpr const char* version = "1";
constexpr const char* settings_key = "penstock.network";
constexpr const char* vocabulary_key = "penstock.vocabulary";

/// The vocabulary as numbers, "10,32,33", because the file's header is UTF-8 and bytes need not be.
std::string numbers_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += say(text.empty() ? "" : ",", int{static_cast<unsigned char>(byte)});
  return text;
}

std::string bytes_of(const std::string& numbers, const std::string& path) {
  std::string bytes;
  for (const char *at = numbers.data(), *end = at + numbers.size(); at < end;) {
    int byte = -1;
    const auto [next, error] = std::from_chars(at, end, byte);
    const bool goes_on = next < end && *next == ',';
    require<DataError>(error == std::errc() && byte >= 0 && byte < 256 && (next == end || goes_on), path, ": its ",
                       vocabulary_key, " is no list of bytes");
    bytes += static_cast<char>(byte);
    at = next + (goes_on ? 1 : 0);
  }
  return bytes;
}

/// Compares the user's flags with the metadata of the file.
class FileSettings {
 public:
  FileSettings(const std::string& path, const std::string& text)
      : path_(path), settings_(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false)) {
    require<DataError>(settings_.is_object() && has_text("model"), path, ": its ", settings_key,
                       " describes no network");
  }

  /// `wanted` is the user's flag; if it is unset, it is set from the file.
  template <class T>
  void take(const char* key, std::optional<T>& wanted) const {
    if (const auto value = read<T>(key)) {
      require_same(key, wanted ? shown(*wanted) : shown(*value), shown(*value));
      wanted = value;
    }
  }
  /// For settings that do not affect the weights: the user's flag stays.
  template <class T>
  void suggest(const char* key, std::optional<T>& wanted) const {
    if (!wanted) wanted = read<T>(key);
  }
  void take_model(ModelFlags& network) const {
    const auto model = settings_["model"].get<std::string>();
    if (network.is_model_given()) require_same("model", network.model, model);
    network.model = model;
  }
  void take_dataset(ModelFlags& network) const {
    const auto dataset = read<std::string>("dataset");
    if (!dataset || *dataset == "none") return;
    if (!network.dataset.empty()) require_same("dataset", network.dataset, *dataset);
    network.dataset = *dataset;
  }
  void take_hidden(ModelFlags& network) const {
    if (!settings_.contains("hidden")) return;
    const auto widths = read<std::vector<std::int64_t>>("hidden").value_or(std::vector<std::int64_t>());
    std::string text;
    for (const std::int64_t width : widths) text += say(text.empty() ? "" : ",", width);
    if (network.hidden && parse_widths(*network.hidden) != widths) require_same("hidden", *network.hidden, text);
    if (!network.hidden) network.hidden = text;
  }

 private:
  bool has_text(const char* key) const { return settings_.contains(key) && settings_[key].is_string(); }

  template <class T>
  std::optional<T> read(const char* key) const {
    if (!settings_.contains(key)) return std::nullopt;
    try {
      return settings_[key].get<T>();
    } catch (const nlohmann::json::exception&) {
      throw DataError(say(path_, ": its ", settings_key, " has no valid '", key, "'"));
    }
  }

  template <class T>
  static std::string shown(const T& value) {
    return say(value);
  }

  void require_same(std::string flag, const std::string& given, const std::string& held) const {
    std::replace(flag.begin(), flag.end(), '_', '-');
    require<ConfigError>(given == held, path_, " holds the weights of a network with --", flag, " ", held, ", but --",
                         flag, " ", given, " is given: leave the flag out, or take other weights");
  }

  const std::string& path_;
  nlohmann::json settings_;
};

}  // namespace

void save_weights(const std::string& path, const ModelFlags& network, const SavedWeights& weights) {
  WeightFile file{weights.state, {{version_key, version}, {settings_key, settings_of(network).dump()}}};
  if (weights.vocabulary) file.metadata[vocabulary_key] = numbers_of(weights.vocabulary->bytes());
  write_safetensors(path, file);
}

SavedWeights read_weights(const std::string& path, ModelFlags& network) {
  WeightFile file = read_safetensors(path);
  SavedWeights weights{std::move(file.tensors), {}};
  if (const auto found = file.metadata.find(version_key); found != file.metadata.end())
    require<DataError>(found->second == version, path, ": its ", version_key, " is ", printable(found->second),
                       ", and this Penstock reads ", version, ": take the Penstock that wrote it, or a later one");
  if (const auto found = file.metadata.find(vocabulary_key); found != file.metadata.end()) {
    weights.vocabulary = Vocabulary::of(bytes_of(found->second, path));
    network.vocabulary = weights.vocabulary->size();
  }
  const auto found = file.metadata.find(settings_key);
  if (found == file.metadata.end()) return weights;
  const FileSettings saved(path, found->second);
  saved.take_model(network);
  saved.take_dataset(network);
  saved.take_hidden(network);
  saved.take("classes", network.classes);
  saved.take("variant", network.variant);
  saved.take("stem", network.stem);
  saved.take("width", network.width);
  saved.take("layers", network.layers);
  saved.take("heads", network.heads);
  saved.take("context", network.context);
  saved.take("head", network.head);
  if (network.model != "mlp") saved.take("image_size", network.image_size);  // mlp has no such flag
  saved.suggest("dropout", network.dropout);
  saved.suggest("norm_momentum", network.norm_momentum);
  return weights;
}

void require_same_vocabulary(const std::string& path, const SavedWeights& weights, const Vocabulary& text) {
  require<ConfigError>(!weights.vocabulary || weights.vocabulary->bytes() == text.bytes(), path,
                       " was saved from a model of ", weights.vocabulary ? weights.vocabulary->size() : 0,
                       " characters, but the text has ", text.size(),
                       " or other ones: give the text that it was trained on");
}

}  // namespace penstock
