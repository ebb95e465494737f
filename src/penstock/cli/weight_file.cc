#include "penstock/cli/weight_file.h"

#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint.h"

namespace penstock {
namespace {

constexpr const char* settings_key = "penstock.network";
constexpr const char* vocabulary_key = "penstock.vocabulary";

/// Bytes need not be UTF-8, which the file's header is: "10,32,33".
std::string numbers_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += say(text.empty() ? "" : ",", int{static_cast<unsigned char>(byte)});
  return text;
}

std::string bytes_of(const std::string& numbers, const std::string& path) {
  std::string bytes;
  for (const char* at = numbers.data(), *end = at + numbers.size(); at < end;) {
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

}  // namespace

void save_weights(const std::string& path, const ModelFlags& network, const SavedWeights& weights) {
  WeightFile file{weights.state, {{settings_key, settings_of(network).dump()}}};
  if (weights.vocabulary) file.metadata[vocabulary_key] = numbers_of(weights.vocabulary->bytes());
  write_safetensors(path, file);
}

SavedWeights read_weights(const std::string& path, ModelFlags& network) {
  WeightFile file = read_safetensors(path);
  SavedWeights weights{std::move(file.tensors), {}};
  if (const auto found = file.metadata.find(vocabulary_key); found != file.metadata.end()) {
    weights.vocabulary = Vocabulary::of(bytes_of(found->second, path));
    network.vocabulary = weights.vocabulary->size();
  }
  if (const auto found = file.metadata.find(settings_key); found != file.metadata.end()) {
    const std::string own = settings_of(network).dump();
    require<ConfigError>(found->second == own, path, " was saved from the network ", found->second,
                         ", but the flags describe ", own, ": give the flags of that network");
  }
  return weights;
}

}  // namespace penstock
