#include "penstock/checkpoint/rank_files.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors_header.h"

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

enum class Refused { nan, infinite_or_nan };

/// Without its sign, a NaN as a number is larger than infinity, which has all bits of the exponent and no others. The
/// loop has no branch, so that compilers vectorise it.
template <class Bits>
bool has(Refused refused, std::span<const std::byte> bytes, Bits infinity) {
  constexpr Bits without_sign = static_cast<Bits>(~Bits{0}) >> 1;
  constexpr std::size_t block = 4096;
  const Bits largest = refused == Refused::nan ? infinity : static_cast<Bits>(infinity - 1);
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size();) {
    const std::size_t end = std::min(bytes.size() / sizeof(Bits) * sizeof(Bits), at + block * sizeof(Bits));
    Bits found = 0;
    for (; at < end; at += sizeof(Bits)) {
      Bits value;
      std::memcpy(&value, bytes.data() + at, sizeof(Bits));
      found = static_cast<Bits>(found | static_cast<Bits>((value & without_sign) > largest));
    }
    if (found) return true;
  }
  return false;
}

bool has(Refused refused, TensorType type, std::span<const std::byte> bytes) {
  switch (type) {
    case TensorType::f32: return has<std::uint32_t>(refused, bytes, 0x7f800000);
    case TensorType::f64: return has<std::uint64_t>(refused, bytes, 0x7ff0000000000000);
    case TensorType::f16: return has<std::uint16_t>(refused, bytes, 0x7c00);
    case TensorType::bf16: return has<std::uint16_t>(refused, bytes, 0x7f80);
    default: return false;
  }
}

/// Checks and sums up the numbers of a tensor, a block at a time: each is read from memory once, and then from the
/// processor's cache.
Checksum checked_sum(const TensorPlace& place, std::span<const std::byte> numbers, bool is_trained) {
  constexpr std::size_t block_size = std::size_t{256} << 10;
  RunningChecksum sum;
  while (!numbers.empty()) {
    const auto block = numbers.first(std::min(numbers.size(), block_size));
    if (const auto spoiled = spoiled_values(place.type, block, is_trained); !spoiled.empty())
      throw SpoiledTensor(say("'", place.name, "' has values that are ", spoiled));
    sum.add(block);
    numbers = numbers.subspan(block.size());
  }
  return sum.result();
}

FileRecord write_tensor_file(SystemCalls& calls, const std::string& directory, const std::vector<TensorBytes>& tensors,
                             const std::set<std::string>& trained, std::map<std::string, std::string> metadata,
                             FileRecord record) {
  SafetensorsHeader header = place_tensors(tensors, std::move(metadata));
  std::map<std::string_view, std::span<const std::byte>> numbers;
  for (const TensorBytes& tensor : tensors) numbers[tensor.name] = tensor.bytes;
  std::string& checksums = header.metadata[tensor_checksums_key];
  for (const TensorPlace& place : header.tensors) {
    const std::span<const std::byte> bytes = numbers.at(place.name);
    require<InternalError>(bytes.size() == place.end - place.begin, "tensor '", place.name, "' of shape ",
                           shape_text(place.shape), " comes with ", bytes.size(), " bytes");
    checksums += (checksums.empty() ? "" : " ") + to_string(checked_sum(place, bytes, trained.contains(place.name)));
  }
  const std::string prefix = safetensors_prefix(header);
  record.header_bytes = prefix.size();
  record.checksum = checksum_of(prefix);
  record.bytes = prefix.size() + (header.tensors.empty() ? 0 : header.tensors.back().end);
  NewFile file(calls, directory + "/" + record.name, record.bytes);
  file.write(bytes_in(prefix));
  for (const TensorPlace& place : header.tensors) file.write(numbers.at(place.name));
  file.finish();
  return record;
}

}  // namespace

std::string_view spoiled_values(TensorType type, std::span<const std::byte> values, bool is_trained) {
  if (!has(is_trained ? Refused::infinite_or_nan : Refused::nan, type, values)) return "";
  return has(Refused::nan, type, values) ? "not a number" : "infinite";
}

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
  std::string& frozen = model_metadata[frozen_key];
  for (const auto& [name, checksum] : tensors.frozen)
    frozen += name + (checksum ? "\t" + to_string(*checksum) : "") + "\n";
  add(FileKind::model, tensors.model, tensors.trained, model_metadata);
  if (!tensors.optimizer.empty()) add(FileKind::optimizer, tensors.optimizer, {}, std::map<std::string, std::string>());
  return records;
}

}  // namespace penstock
