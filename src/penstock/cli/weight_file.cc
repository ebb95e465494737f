#include "penstock/cli/weight_file.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/checkpoint.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/export_weights.h"
#include "penstock/hf/export.h"
#include "penstock/hf/weights.h"
#include "penstock/zoo/zoo.h"

namespace penstock::cli {
namespace {

constexpr const char* version_key = "penstock.weights";
constexpr const char* version = "1";
constexpr const char* settings_key = hf::settings_key;
constexpr const char* vocabulary_key = "penstock.vocabulary";

Vocabulary vocabulary_in(const std::string& numbers, const std::string& path) {
  try {
    return Vocabulary::from_numbers(numbers);
  } catch (const DataError& error) {
    throw DataError(say(path, ": its ", vocabulary_key, " is not valid: ", error.what()));
  }
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
      require_same(key, say(wanted.value_or(*value)), say(*value));
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
    if (network.is_model_given()) require_same("model", model_name(network), model);
    network.model = model;
  }
  void take_dataset(ModelFlags& network) const {
    const auto dataset = read<std::string>("dataset");
    if (!dataset || *dataset == "none" || *dataset == "tokens") return;  // these follow from the model
    if (!network.dataset.empty()) require_same("dataset", network.dataset, *dataset);
    network.dataset = *dataset;
  }
  void take_hidden(ModelFlags& network) const {
    if (!settings_.contains("hidden")) return;
    const auto widths = read<std::vector<std::int64_t>>("hidden").value_or(std::vector<std::int64_t>());
    const std::string text = listed(widths, ",");
    if (network.hidden && parse_widths(*network.hidden) != widths) require_same("hidden", *network.hidden, text);
    if (!network.hidden) network.hidden = text;
  }
  void take_lora(ModelFlags& network) const {
    const auto wanted = lora_of(network);
    const std::optional<hf::LoraOptions> held =
        settings_.contains(hf::lora_key) ? std::optional(hf::parse_adapter_config(json_text(settings_[hf::lora_key]),
                                                                                  say(path_, ": its ", settings_key)))
                                         : std::nullopt;
    require<ConfigError>(!wanted || wanted == held, path_, " holds the weights of a network with adapters of ",
                         held ? to_string(*held) : "none", ", but the flags ask for ", wanted ? to_string(*wanted) : "",
                         ": leave these flags out, or take other weights");
    if (!held) return;
    network.lora = held->rank;
    network.lora_alpha = held->alpha;
    network.lora_targets = held->targets;
  }

 private:
  bool has_text(const char* key) const { return settings_.contains(key) && settings_[key].is_string(); }

  template <class T>
  std::optional<T> read(const char* key) const {
    if (!settings_.contains(key)) return std::nullopt;
    require<DataError>(holds<T>(settings_[key]), path_, ": its ", settings_key, " has no valid '", key, "'");
    return settings_[key].get<T>();
  }

  /// The library's conversions accept more, as 1e300 for an integer.
  template <class T>
  static bool holds(const nlohmann::json& value) {
    if constexpr (std::is_same_v<T, std::int64_t>) return value.is_number_integer();
    if constexpr (std::is_same_v<T, double>) return value.is_number();
    if constexpr (std::is_same_v<T, std::string>) return value.is_string() && is_plain_text(value.get<std::string>());
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
      return value.is_array() && std::all_of(value.begin(), value.end(), holds<std::int64_t>);
  }

  void require_same(std::string flag, const std::string& given, const std::string& held) const {
    std::replace(flag.begin(), flag.end(), '_', '-');
    require<ConfigError>(given == held, path_, " holds the weights of a network with --", flag, " ", held, ", but --",
                         flag, " ", given, " is given: leave the flag out, or take other weights");
  }

  const std::string& path_;
  nlohmann::json settings_;
};

/// Throws DataError for settings that take far more memory than the tensors.
void require_sizes_of(const HeldTensors& held, const ModelFlags& network) {
  const double least = least_parameters(network);
  require<DataError>(least <= held.elements, held.path, ": its ", settings_key, " describes a network of at least ",
                     least, " parameters, and it has ", held.elements, " numbers");
  const std::int64_t hidden = network.hidden ? static_cast<std::int64_t>(parse_widths(*network.hidden).size()) : 0;
  const std::int64_t layers = std::max(hidden, network.layers.value_or(0));
  require<DataError>(layers <= held.tensors, held.path, ": its ", settings_key, " describes ", layers,
                     " layers, and it has ", held.tensors, " tensors");
}

/// From torchvision's names.
hf::Renaming network_name(const ModelFlags& network) {
  if (is_resnet(network)) return resnet_name;
  return network.model == "vit-b16" ? vit_name : hf::Renaming();
}

}  // namespace

WeightMetadata weight_metadata(const ModelFlags& network, const std::optional<Vocabulary>& vocabulary) {
  WeightMetadata metadata{{version_key, version}, {settings_key, settings_of(network).dump()}};
  if (vocabulary) metadata[vocabulary_key] = vocabulary->numbers();
  return metadata;
}

std::optional<Vocabulary> take_network(const WeightMetadata& metadata, const HeldTensors& held, ModelFlags& network) {
  const std::string& path = held.path;
  std::optional<Vocabulary> vocabulary;
  if (const auto found = metadata.find(version_key); found != metadata.end())
    require<DataError>(found->second == version, path, ": its ", version_key, " is ", printable(found->second),
                       ", and this Penstock reads ", version, ": take the Penstock that wrote it, or a later one");
  if (const auto found = metadata.find(vocabulary_key); found != metadata.end()) {
    vocabulary = vocabulary_in(found->second, path);
    network.vocabulary = vocabulary->size();
  }
  const auto found = metadata.find(settings_key);
  if (found == metadata.end()) return vocabulary;
  constexpr std::int64_t most_pixels_a_side = 1024;
  const bool is_size_given = network.image_size.has_value();
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
  saved.take_lora(network);
  saved.take("head", network.head);
  if (network.model != "mlp") saved.take("image_size", network.image_size);  // mlp has no such flag
  saved.suggest("dropout", network.dropout);
  saved.suggest("norm_momentum", network.norm_momentum);
  require_sizes_of(held, network);
  require<DataError>(is_size_given || network.image_size.value_or(0) <= most_pixels_a_side, path, ": its ",
                     settings_key, " describes images of ", network.image_size.value_or(0),
                     " pixels a side: pass --image-size, too, if that is meant");
  return vocabulary;
}

void save_weights(const std::string& path, const StateDict& state, const WeightMetadata& metadata) {
  write_safetensors(path, {state, metadata});
}

SavedWeights read_weights(const std::string& path, ModelFlags& network) {
  require_whole_weights(path);
  const SafetensorsHeader header = open_safetensors(SystemCalls::real(), path, SymbolicLinks::followed).header;
  HeldTensors held{path, static_cast<std::int64_t>(header.tensors.size())};
  for (const TensorPlace& tensor : header.tensors)
    held.elements +=
        static_cast<double>(tensor.end - tensor.begin) / static_cast<double>(bytes_per_element(tensor.type));
  SavedWeights weights;
  weights.vocabulary = take_network(header.metadata, held, network);
  weights.tensors = std::make_shared<const hf::MappedWeights>(path, network_name(network));
  network.has_other_weights = !lora_of(network);  // a file of adapters has no others
  return weights;
}

void require_same_vocabulary(const std::string& path, const SavedWeights& weights, const Vocabulary& text) {
  require<ConfigError>(!weights.vocabulary || weights.vocabulary->bytes() == text.bytes(), path,
                       " was saved from a model of ", weights.vocabulary ? weights.vocabulary->size() : 0,
                       " characters, but the text has ", text.size(),
                       " or other ones: pass the text that it was trained on");
}

}  // namespace penstock::cli
