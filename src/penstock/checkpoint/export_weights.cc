#include "penstock/checkpoint/export_weights.h"

#include <algorithm>
#include <filesystem>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors_header.h"
#include "penstock/checkpoint/weight_index.h"

namespace penstock {
namespace {

constexpr std::string_view suffix = ".safetensors";

using Shard = std::vector<TensorBytes>;  // without their bytes

std::uint64_t size_of_tensor(const TensorBytes& tensor) { return size_in_bytes(tensor.type, tensor.shape).value_or(0); }

/// All tensors of the model by name, in as many shards as needed.
std::vector<Shard> shards_of(const Manifest& manifest, std::optional<std::uint64_t> most_bytes) {
  Shard all;
  for (const FileRecord& file : manifest.files)
    for (const TensorRecord& tensor : file.tensors)
      if (file.kind == FileKind::model) all.push_back({tensor.name, tensor.type, tensor.shape});
  std::sort(all.begin(), all.end(), [](const TensorBytes& a, const TensorBytes& b) { return a.name < b.name; });
  std::vector<Shard> shards(1);
  std::uint64_t used = 0;
  for (TensorBytes& tensor : all) {
    const std::uint64_t size = size_of_tensor(tensor);
    if (most_bytes && !shards.back().empty() && size > *most_bytes - std::min(*most_bytes, used)) {
      shards.emplace_back();
      used = 0;
    }
    used += size;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

void write_shard(const Checkpoint& checkpoint, const std::string& path, const Shard& shard,
                 const std::map<std::string, std::string>& metadata) {
  const SafetensorsHeader header = place_tensors(shard, metadata);
  const std::string prefix = safetensors_prefix(header);
  const std::uint64_t data = header.tensors.empty() ? 0 : header.tensors.back().end;
  replace_file(SystemCalls::real(), path, prefix.size() + data, [&](NewFile& out) {
    out.write(bytes_in(prefix));
    std::vector<std::byte> numbers;
    for (const TensorPlace& place : header.tensors) {
      numbers.resize(static_cast<std::size_t>(place.end - place.begin));
      checkpoint.read(*checkpoint.find(FileKind::model, place.name), numbers);
      out.write(numbers);
    }
  });
}

std::map<std::string, std::string> metadata_of(const Checkpoint& checkpoint) {
  const auto& files = checkpoint.manifest().files;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].kind == FileKind::model) return checkpoint.metadata(i);
  return {};
}

}  // namespace

std::vector<std::string> export_weights(const Checkpoint& checkpoint, const std::string& path,
                                        std::optional<std::uint64_t> most_bytes) {
  require<ConfigError>(path.size() > suffix.size() && path.ends_with(suffix), path,
                       ": the name of a file of weights ends with ", suffix);
  require<ConfigError>(!most_bytes || *most_bytes > 0, "a file of weights cannot have at most 0 bytes");
  const std::vector<Shard> shards = shards_of(checkpoint.manifest(), most_bytes);
  const auto metadata = metadata_of(checkpoint);
  if (shards.size() == 1) {
    write_shard(checkpoint, path, shards.front(), metadata);
    return {path};
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  std::vector<std::string> paths;
  WeightIndex index;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    paths.push_back(shard_name(stem, {i, shards.size()}));
    write_shard(checkpoint, paths.back(), shards[i], metadata);
    for (const TensorBytes& tensor : shards[i]) {
      index.files[tensor.name] = std::filesystem::path(paths.back()).filename().string();
      index.total_size += size_of_tensor(tensor);
    }
  }
  const std::string text = write_weight_index(index);
  paths.push_back(path + ".index.json");
  replace_file(SystemCalls::real(), paths.back(), text.size(), [&](NewFile& out) { out.write(bytes_in(text)); });
  return paths;
}

}  // namespace penstock
