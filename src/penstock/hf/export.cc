#include "penstock/hf/export.h"

#include <array>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/export_weights.h"

namespace penstock::hf {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_file = "config.json";
constexpr std::uint64_t largest_file = 1'000'000'000;

/// The files of a tokenizer in all its forms, and of generation; a directory has some of them.
constexpr std::array copied_files{"generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
                                  "tokenizer.model",         "vocab.json",        "merges.txt",
                                  "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
                                  "chat_template.json"};

std::string text_of(const fs::path& path) {
  return ReadFile(SystemCalls::real(), path.string(), SymbolicLinks::followed).text(largest_file);
}

void write_text_file(const fs::path& path, const std::string& text) {
  replace_file(SystemCalls::real(), path.string(), text.size(), [&](NewFile& out) { out.write(bytes_in(text)); });
}

/// The directory with which the training began.
std::string recorded_directory(const Checkpoint& checkpoint) {
  std::string model;
  for (std::size_t i = 0; i < checkpoint.manifest().files.size(); ++i) {
    const auto found = checkpoint.metadata(i).find(settings_key);
    if (checkpoint.manifest().files[i].kind != FileKind::model || found == checkpoint.metadata(i).end()) continue;
    const auto settings = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
    if (settings.is_object() && settings.contains("model") && settings["model"].is_string())
      model = settings["model"].get<std::string>();
  }
  require<ConfigError>(model.starts_with(model_prefix), checkpoint.directory(), " is of the model '", printable(model),
                       "', not of a Hugging Face directory: leave out --format hf, or pass --original DIR");
  return model.substr(model_prefix.size());
}

/// config.json with the dtype of the weights of a checkpoint.
std::string config_text(const fs::path& original) {
  const fs::path path = original / config_file;
  std::error_code ignored;
  require<DataError>(fs::exists(path, ignored), "the files beside the weights are taken from ", original.string(),
                     ", which has no ", config_file, ": pass --original DIR, the model's directory");
  auto config = nlohmann::ordered_json::parse(text_of(path), nullptr, /*allow_exceptions=*/false);
  require<DataError>(config.is_object(), path.string(), ": it is not a JSON object");
  const bool is_older = config.contains("torch_dtype");  // of transformers before 5
  config[is_older ? "torch_dtype" : "dtype"] = "float32";
  return json_text(config, 2) + "\n";
}

/// Other weights in the directory would be read instead of these, or beside them.
void require_no_weights(const std::string& directory) {
  std::vector<std::string> names;
  (void)list_names(SystemCalls::real(), directory, names);
  for (const std::string& name : names)
    require<ConfigError>(name.find(".safetensors") == std::string::npos && !name.starts_with("pytorch_model"),
                         directory, " has weights already: ", name, "; pass another --output");
}

}  // namespace

std::vector<std::string> export_directory(const Checkpoint& checkpoint, const DirectoryExport& wanted) {
  const fs::path original = wanted.original.empty() ? recorded_directory(checkpoint) : wanted.original;
  const fs::path output = wanted.output;
  const std::string config = config_text(original);
  require_no_weights(wanted.output);
  require_outside_of_checkpoints((output / config_file).string());
  make_directories(SystemCalls::real(), wanted.output);
  std::vector<std::string> written =
      export_weights(checkpoint, (output / "model.safetensors").string(), wanted.most_bytes);
  for (const char* name : copied_files) {
    std::error_code ignored;
    if (!fs::exists(original / name, ignored)) continue;
    write_text_file(output / name, text_of(original / name));
    written.push_back((output / name).string());
  }
  write_text_file(output / config_file, config);
  written.push_back((output / config_file).string());
  return written;
}

}  // namespace penstock::hf
