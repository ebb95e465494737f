#include "penstock/checkpoint/rank_files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors_header.h"
#include "penstock/checkpoint/weight_index.h"

namespace penstock {
namespace {

constexpr std::size_t snapshot_alignment = 64;

std::size_t aligned(std::size_t size) {
  return (size + snapshot_alignment - 1) / snapshot_alignment * snapshot_alignment;
}

std::string file_name_of(FileKind kind, const RankTensors& tensors) {
  return shard_name(to_string(kind),
                    {static_cast<std::size_t>(tensors.owner), static_cast<std::size_t>(tensors.ranks)});
}

FileRecord write_tensor_file(SystemCalls& calls, const std::string& directory, const std::vector<TensorBytes>& tensors,
                             std::map<std::string, std::string> metadata, FileRecord record) {
  const SafetensorsHeader header = place_tensors(tensors, std::move(metadata));
  const std::string prefix = safetensors_prefix(header);
  std::map<std::string_view, std::span<const std::byte>> bytes;
  for (const TensorBytes& tensor : tensors) bytes[tensor.name] = tensor.bytes;
  Pieces pieces{bytes_in(prefix)};
  record.checksum = checksum_of(prefix);
  record.bytes = prefix.size();
  for (const TensorPlace& place : header.tensors) {
    const auto data = bytes.at(place.name);
    require<InternalError>(data.size() == place.end - place.begin, "tensor '", place.name, "' of shape ",
                           shape_text(place.shape), " comes with ", data.size(), " bytes");
    record.tensors.push_back({place.name, place.type, place.shape, checksum_of(data)});
    record.bytes += data.size();
    pieces.push_back(data);
  }
  write_new_file(calls, directory + "/" + record.name, pieces);
  return record;
}

}  // namespace

void RankSnapshot::take(const RankTensors& tensors) {
  std::size_t needed = 0;
  for (const auto* list : {&tensors.model, &tensors.optimizer})
    for (const TensorBytes& tensor : *list) needed += aligned(tensor.bytes.size());
  if (needed > capacity_) {
    memory_.reset();  // first, so that there is never more than one copy
    memory_.reset(new std::byte[needed]);
    capacity_ = needed;
  }
  copy_ = tensors;
  std::size_t at = 0;
  for (auto* list : {&copy_.model, &copy_.optimizer})
    for (TensorBytes& tensor : *list) {
      if (!tensor.bytes.empty()) std::memcpy(memory_.get() + at, tensor.bytes.data(), tensor.bytes.size());
      tensor.bytes = {memory_.get() + at, tensor.bytes.size()};
      at += aligned(tensor.bytes.size());
    }
}

std::vector<FileRecord> write_rank_files(SystemCalls& calls, const std::string& directory, const RankTensors& tensors,
                                         const std::map<std::string, std::string>& metadata) {
  std::vector<FileRecord> records;
  const auto add = [&](FileKind kind, const std::vector<TensorBytes>& of_kind, const auto& extra) {
    FileRecord record{file_name_of(kind, tensors), kind};
    record.owner = tensors.owner;
    records.push_back(write_tensor_file(calls, directory, of_kind, extra, std::move(record)));
  };
  // Hugging Face's loaders refuse files without this entry.
  std::map<std::string, std::string> model_metadata{{"format", "pt"}};
  model_metadata.insert(metadata.begin(), metadata.end());
  add(FileKind::model, tensors.model, model_metadata);
  if (!tensors.optimizer.empty()) add(FileKind::optimizer, tensors.optimizer, std::map<std::string, std::string>());
  return records;
}

}  // namespace penstock
