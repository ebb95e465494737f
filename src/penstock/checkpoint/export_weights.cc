#include "penstock/checkpoint/export_weights.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors_header.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".safetensors";

using Shard = std::vector<TensorBytes>;  // without their bytes

std::uint64_t size_of_tensor(const TensorBytes& tensor) { return size_in_bytes(tensor.type, tensor.shape).value_or(0); }

/// All tensors by name, in as many shards as needed.
std::vector<Shard> shards_of(const ExportedWeights& weights, std::optional<std::uint64_t> most_bytes) {
  std::vector<Shard> shards(1);
  std::uint64_t used = 0;
  for (const auto& [name, tensor] : weights.tensors) {
    const TensorBytes form{name, tensor.type, tensor.shape};
    const std::uint64_t size = size_of_tensor(form);
    if (most_bytes && !shards.back().empty() && size > *most_bytes - std::min(*most_bytes, used)) {
      shards.emplace_back();
      used = 0;
    }
    used += size;
    shards.back().push_back(form);
  }
  return shards;
}

/// "model.safetensors" alone; or one path for each of several shards, and that of their index at the end.
std::vector<std::string> paths_of(const std::string& path, std::size_t shard_count) {
  if (shard_count == 1) return {path};
  const std::string stem = path.substr(0, path.size() - suffix.size());
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < shard_count; ++i) paths.push_back(shard_name(stem, {i, shard_count}));
  paths.push_back(path + ".index.json");
  return paths;
}

using NewShards = std::deque<ReplacementFile>;

void write_shard(NewShards& files, const ExportedWeights& weights, const std::string& path, const Shard& shard) {
  auto metadata = weights.metadata;
  metadata["format"] = "pt";  // without it, transformers refuses a file
  const SafetensorsHeader header = place_tensors(shard, std::move(metadata));
  const std::string prefix = safetensors_prefix(header);
  const std::uint64_t data = header.tensors.empty() ? 0 : header.tensors.back().end;
  files.emplace_back(SystemCalls::real(), path, prefix.size() + data, [&](NewFile& out) {
    out.write(bytes_in(prefix));
    std::vector<std::byte> numbers;
    for (const TensorPlace& place : header.tensors) {
      numbers.resize(static_cast<std::size_t>(place.end - place.begin));
      weights.tensors.at(place.name).read(numbers);
      out.write(numbers);
    }
  });
}

/// The number that five digits or more are; 0 for any other text.
std::int64_t number_of_shard(std::string_view digits) {
  const bool is_long = digits.size() >= 5 && !digits.starts_with('-');
  return is_long ? number_of<std::int64_t>(digits).value_or(0) : 0;
}

/// 2 of "model-00001-of-00002.safetensors", the inverse of shard_name(); 1 for the name of a file that is whole.
std::int64_t count_of_shards(std::string_view name) {
  constexpr std::string_view between = "-of-";
  if (!name.ends_with(suffix)) return 1;
  name.remove_suffix(suffix.size());
  const std::size_t of = name.rfind(between);
  if (of == std::string_view::npos) return 1;
  const std::string_view begin = name.substr(0, of);
  const std::size_t dash = begin.rfind('-');
  if (dash == std::string_view::npos || number_of_shard(begin.substr(dash + 1)) == 0) return 1;
  return std::max<std::int64_t>(1, number_of_shard(name.substr(of + between.size())));
}

}  // namespace

void require_outside_of_checkpoints(const std::string& path) {
  std::error_code ignored;
  const fs::path directory = fs::weakly_canonical(fs::absolute(path, ignored), ignored).parent_path();
  // Other programs write files of the manifest's name, too: a checkpoint's begins with their seal.
  const std::string seal = sealed("").substr(0, sealed("").find(':'));
  std::string begin(seal.size(), '\0');
  std::ifstream(directory / manifest_name, std::ios::binary).read(begin.data(), std::ssize(begin));
  require<ConfigError>(begin != seal, path,
                       ": lies in the directory of a checkpoint, whose files must stay as they are: name a file in "
                       "another folder");
}

ExportedWeights weights_of(const Checkpoint& checkpoint) {
  ExportedWeights weights;
  const auto& files = checkpoint.manifest().files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].kind != FileKind::model) continue;
    if (weights.metadata.empty()) weights.metadata = checkpoint.metadata(i);
    for (const TensorRecord& tensor : files[i].tensors) {
      const StoredTensor place = *checkpoint.find(FileKind::model, tensor.name);
      weights.tensors[tensor.name] = {
          tensor.type, tensor.shape, [&checkpoint, place](std::span<std::byte> into) { checkpoint.read(place, into); }};
    }
  }
  return weights;
}

std::vector<std::string> export_weights(const ExportedWeights& weights, const std::string& path,
                                        std::optional<std::uint64_t> most_bytes) {
  require<ConfigError>(path.size() > suffix.size() && path.ends_with(suffix), path,
                       ": the name of a file of weights ends with ", suffix);
  require<ConfigError>(!most_bytes || *most_bytes > 0, "a file of weights cannot have at most 0 bytes");
  const std::vector<Shard> shards = shards_of(weights, most_bytes);
  const std::vector<std::string> paths = paths_of(path, shards.size());
  for (const std::string& each : paths) require_outside_of_checkpoints(each);
  // All are complete before the first is in its place: a damaged tensor, or a full disk, leaves nothing half done.
  NewShards files;
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total_size = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    write_shard(files, weights, paths[i], shards[i]);
    for (const TensorBytes& tensor : shards[i]) {
      weight_map[tensor.name] = fs::path(paths[i]).filename().string();
      total_size += size_of_tensor(tensor);
    }
  }
  if (shards.size() > 1) {
    // As Hugging Face writes it for sharded models.
    const nlohmann::json index = {{"metadata", {{"total_size", total_size}}}, {"weight_map", std::move(weight_map)}};
    const std::string text = json_text(index, 2) + "\n";
    files.emplace_back(SystemCalls::real(), paths.back(), text.size(),
                       [&](NewFile& out) { out.write(bytes_in(text)); });
  }
  for (ReplacementFile& file : files) file.commit();
  return paths;
}

std::vector<std::string> export_weights(const Checkpoint& checkpoint, const std::string& path,
                                        std::optional<std::uint64_t> most_bytes) {
  return export_weights(weights_of(checkpoint), path, most_bytes);
}

void require_whole_weights(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const std::string folder = is_folder ? path : fs::path(path).parent_path().string();
  const std::string name = fs::path(path).filename().string();
  const std::int64_t shards = count_of_shards(name);
  std::string what;
  if (is_folder)
    what = "is a folder";
  else if (name.ends_with(".safetensors.index.json"))
    what = "is the index of several files";
  else if (shards > 1)
    what = say("is one of ", shards, " files");
  const bool is_from_folder = is_folder || (!folder.empty() && is_checkpoint(folder));
  require<DataError>(what.empty(), path, ": ", what, ", and --weights takes one .safetensors file with all weights: ",
                     "write it by penstock checkpoint export ", is_from_folder ? folder : "CHECKPOINT",
                     " --output FILE.safetensors");
}

}  // namespace penstock
