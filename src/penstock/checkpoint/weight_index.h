// model.safetensors.index.json: which file holds which tensor, as Hugging Face writes it for sharded models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace penstock {

struct WeightIndex {
  std::uint64_t total_size = 0;                   // bytes of all tensors
  std::map<std::string, std::string> files = {};  // by tensor
  friend bool operator==(const WeightIndex&, const WeightIndex&) = default;
};

inline constexpr const char* weight_index_name = "model.safetensors.index.json";

/// One of the files into which a set of tensors is divided.
struct ShardNumber {
  std::size_t index = 0;  // from 0
  std::size_t count = 1;
};

/// "model-00001-of-00002.safetensors" of the stem "model": the names that Hugging Face gives to shards.
std::string shard_name(std::string_view stem, const ShardNumber& shard);

/// Names must be UTF-8.
std::string write_weight_index(const WeightIndex& index);
/// The inverse. `file` is named in messages. Throws DataError, also for names of files that could leave the directory.
WeightIndex read_weight_index(std::string_view text, std::string_view file);

}  // namespace penstock
