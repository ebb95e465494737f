// model.safetensors.index.json: which file holds which tensor, as Hugging Face writes it for sharded models.
#pragma once

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

/// Names must be UTF-8.
std::string write_weight_index(const WeightIndex& index);
/// The inverse. `file` is named in messages. Throws DataError, also for names of files that could leave the directory.
WeightIndex read_weight_index(std::string_view text, std::string_view file);

}  // namespace penstock
