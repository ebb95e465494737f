#include "penstock/cli/whole_weights.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// The number that five digits or more are; 0 for any other text.
std::int64_t number_of_shard(std::string_view digits) {
  std::int64_t number = 0;
  const bool is_number =
      digits.size() >= 5 && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (is_number) std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

/// 2 of "model-00001-of-00002.safetensors", the inverse of shard_name(); 1 for the name of a file that is whole.
std::int64_t count_of_shards(std::string_view name) {
  constexpr std::string_view suffix_of_weights = ".safetensors", between = "-of-";
  if (!name.ends_with(suffix_of_weights)) return 1;
  name.remove_suffix(suffix_of_weights.size());
  const std::size_t of = name.rfind(between);
  if (of == std::string_view::npos) return 1;
  const std::string_view begin = name.substr(0, of);
  const std::size_t dash = begin.rfind('-');
  if (dash == std::string_view::npos || number_of_shard(begin.substr(dash + 1)) == 0) return 1;
  return std::max<std::int64_t>(1, number_of_shard(name.substr(of + between.size())));
}

}  // namespace

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
