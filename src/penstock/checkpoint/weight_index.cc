#include "penstock/checkpoint/weight_index.h"

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/manifest.h"

namespace penstock {
namespace {

std::string five_digits(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

}  // namespace

std::string shard_name(std::string_view stem, const ShardNumber& shard) {
  return say(stem, "-", five_digits(shard.index + 1), "-of-", five_digits(shard.count), ".safetensors");
}

std::string write_weight_index(const WeightIndex& index) {
  const nlohmann::json json = {{"metadata", {{"total_size", index.total_size}}},
                               {"weight_map", nlohmann::json(index.files)}};
  return json_text(json, 2) + "\n";
}

WeightIndex read_weight_index(std::string_view text, std::string_view file) {
  const nlohmann::json document = parse_strictly(text, file);
  const StrictValue root(document, file);
  WeightIndex index;
  // Other programs add members to the metadata.
  index.total_size = root["metadata"]["total_size"].count();
  for (const auto& [name, value] : root["weight_map"].members()) {
    require<DataError>(is_plain_file_name(value.text()), value.place(), " is '", printable(value.text()),
                       "', which is no plain name of a file");
    index.files.emplace(name, value.text());
  }
  return index;
}

}  // namespace penstock
