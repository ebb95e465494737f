#include "penstock/checkpoint/rank_files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors_header.h"
#include "penstock/checkpoint/spoiled_tensor.h"
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

/// Checks, sums up and writes the numbers of a tensor, a block at a time: each is read from memory once, and then from
/// the processor's cache.
Checksum write_checked(NewFile& file, const TensorPlace& place, std::span<const std::byte> numbers, bool is_trained) {
  constexpr std::size_t block_size = std::size_t{256} << 10;
  RunningChecksum sum;
  while (!numbers.empty()) {
    const auto block = numbers.first(std::min(numbers.size(), block_size));
    if (const auto spoiled = spoiled_values(place.type, block, is_trained); !spoiled.empty())
      throw SpoiledTensor(say("'", place.name, "' has values that are ", spoiled));
    sum.add(block);
    file.write(block);
    numbers = numbers.subspan(block.size());
  }
  return sum.result();
}

FileRecord write_tensor_file(SystemCalls& calls, const std::string& directory, const std::vector<TensorBytes>& tensors,
                             const std::set<std::string>& trained, std::map<std::string, std::string> metadata,
                             FileRecord record) {
  const SafetensorsHeader header = place_tensors(tensors, std::move(metadata));
  const std::string prefix = safetensors_prefix(header);
  std::map<std::string_view, std::span<const std::byte>> numbers;
  for (const TensorBytes& tensor : tensors) numbers[tensor.name] = tensor.bytes;
  record.checksum = checksum_of(prefix);
  record.bytes = prefix.size();
  for (const TensorPlace& place : header.tensors) {
    const std::size_t size = numbers.at(place.name).size();
    require<InternalError>(size == place.end - place.begin, "tensor '", place.name, "' of shape ",
                           shape_text(place.shape), " comes with ", size, " bytes");
    record.bytes += size;
  }
  NewFile file(calls, directory + "/" + record.name, record.bytes);
  file.write(bytes_in(prefix));
  for (const TensorPlace& place : header.tensors) {
    const Checksum sum = write_checked(file, place, numbers.at(place.name), trained.contains(place.name));
    record.tensors.push_back({place.name, place.type, place.shape, sum});
  }
  file.finish();
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
  const auto add = [&](FileKind kind, const std::vector<TensorBytes>& of_kind, const std::set<std::string>& trained,
                       const auto& extra) {
    FileRecord record{file_name_of(kind, tensors), kind};
    record.owner = tensors.owner;
    records.push_back(write_tensor_file(calls, directory, of_kind, trained, extra, std::move(record)));
  };
  // Hugging Face's loaders refuse files without this entry.
  std::map<std::string, std::string> model_metadata{{"format", "pt"}};
  model_metadata.insert(metadata.begin(), metadata.end());
  add(FileKind::model, tensors.model, tensors.trained, model_metadata);
  if (!tensors.optimizer.empty()) add(FileKind::optimizer, tensors.optimizer, {}, std::map<std::string, std::string>());
  return records;
}

}  // namespace penstock
