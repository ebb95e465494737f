#include "penstock/hf/weight_files.h"

#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::hf {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr std::uint64_t largest_index = 64'000'000;

/// The file of each tensor, as an index lists them.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = ReadFile(SystemCalls::real(), path, SymbolicLinks::followed).text(largest_index);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  require<DataError>(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), path,
                     ": it has no \"weight_map\" of tensors and their files");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    const bool is_name = file.is_string() && is_plain_text(file.get<std::string>()) &&
                         file.get<std::string>().find('/') == std::string::npos;
    require<DataError>(is_name, path, ": its \"weight_map\" has no file name for '", printable(name), "'");
    files[name] = file.get<std::string>();
  }
  return files;
}

}  // namespace

WeightFiles::WeightFiles(const std::string& path, const Renaming& network_name) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    add_file(path, network_name);
    return;
  }
  const fs::path directory(path);
  const bool is_single = fs::exists(directory / single_file, ignored);
  require<DataError>(is_single || fs::exists(directory / index_file, ignored), path, ": it has neither ", single_file,
                     " nor ", index_file, ": pass a Hugging Face directory with weights in safetensors files");
  if (is_single)
    add_file((directory / single_file).string(), network_name);
  else
    add_indexed_files(path, network_name);
}

void WeightFiles::add_file(const std::string& path, const Renaming& network_name) {
  const SafetensorsFile& file =
      files_.emplace_back(open_safetensors(SystemCalls::real(), path, SymbolicLinks::followed));
  for (const TensorPlace& tensor : file.header.tensors) {
    const std::string name = network_name ? network_name(tensor.name) : tensor.name;
    const bool is_new = places_.emplace(name, Place{&file, tensor}).second;
    require<DataError>(is_new, path, ": it has '", printable(tensor.name), "', which another tensor is, too: '",
                       printable(places_[name].tensor.name), "' of '", places_[name].file->file.path(), "'");
  }
}

void WeightFiles::add_indexed_files(const std::string& directory, const Renaming& network_name) {
  const std::string index = (fs::path(directory) / index_file).string();
  const auto file_of = read_index(index);
  std::set<std::string> added;
  for (const auto& [name, file] : file_of) {
    if (!added.insert(file).second) continue;
    const std::string path = (fs::path(directory) / file).string();
    std::error_code ignored;
    require<DataError>(fs::exists(path, ignored), index, " lists '", file, "', which ", directory,
                       " does not have: fetch it again");
    add_file(path, network_name);
  }
  for (const auto& [name, file] : file_of) {
    const auto found = places_.find(network_name ? network_name(name) : name);
    require<DataError>(found != places_.end() && fs::path(found->second.file->file.path()).filename().string() == file,
                       index, " lists '", printable(name), "' in '", file,
                       "', which does not have it: fetch both again");
  }
}

}  // namespace penstock::hf
