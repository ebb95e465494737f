#include "penstock/hf/lora_config.h"

#include <array>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"

namespace penstock::hf {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t largest_config = 1'000'000;

/// Options of PEFT that change an adapter's result; each must be absent, null, false, 0 or empty.
constexpr std::array unsupported{"use_rslora",   "use_dora",      "use_qalora",        "use_bdlora",
                                 "lora_bias",    "kasa_config",   "modules_to_save",   "layers_to_transform",
                                 "rank_pattern", "alpha_pattern", "target_parameters", "trainable_token_indices",
                                 "arrow_config", "velora_config", "layer_replication", "alora_invocation_tokens"};

bool is_unset(const Json& value) {
  return value.is_null() || value == false || value == 0 || ((value.is_array() || value.is_object()) && value.empty());
}

}  // namespace

std::string to_string(const LoraOptions& options) {
  return say("rank ", options.rank, ", alpha ", options.alpha, " and the layers ", listed(options.targets));
}

void check(const LoraOptions& options) {
  require<ConfigError>(options.rank >= 1, "adapters of rank ", options.rank, ": set at least 1");
  require<ConfigError>(std::isfinite(options.alpha) && options.alpha > 0, "adapters with alpha = ", options.alpha,
                       ": set a number above 0");
  require<ConfigError>(!options.targets.empty(), "adapters for no layer: name at least one, as q_proj");
}

bool is_lora(const std::string& name) {
  return name.find(std::string(".") + lora_a + ".") != std::string::npos ||
         name.find(std::string(".") + lora_b + ".") != std::string::npos;
}

LoraOptions read_adapter_config(const std::string& directory) {
  const std::string path = (std::filesystem::path(directory) / "adapter_config.json").string();
  return parse_adapter_config(ReadFile(SystemCalls::real(), path, SymbolicLinks::followed).text(largest_config), path);
}

LoraOptions parse_adapter_config(const std::string& text, const std::string& place) {
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  require<DataError>(config.is_object(), place, ": it is not a JSON object");
  const auto is_kind = [&](const char* key, const char* expected) {
    const std::string value = config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : "";
    require<ConfigError>(value == expected, place, " has '", key, "' = '", printable(value), "', but only '", expected,
                         "' is supported");
  };
  is_kind("peft_type", "LORA");
  if (config.contains("bias")) is_kind("bias", "none");
  for (const char* key : unsupported)
    require<ConfigError>(!config.contains(key) || is_unset(config[key]), place, " sets '", key,
                         "', which is not supported: train an adapter without it");
  const Json initial = config.value("init_lora_weights", Json(true));
  require<ConfigError>(initial.is_boolean() || initial == "gaussian", place,
                       " has 'init_lora_weights' = ", printable(json_text(initial)),
                       ", which may change the model's weights: train with true");
  LoraOptions options;
  try {
    options.rank = config.at("r").get<std::int64_t>();
    options.alpha = config.at("lora_alpha").get<double>();
    options.targets = config.at("target_modules").get<std::vector<std::string>>();
    options.fan_in_fan_out = config.value("fan_in_fan_out", false);
  } catch (const Json::exception& error) {
    throw DataError(say(place, ": r, lora_alpha and target_modules must be a number, a number and a list of names: ",
                        printable(error.what())));
  }
  check(options);
  return options;
}

std::string adapter_config_text(const LoraOptions& options, const std::string& base_model) {
  const Json config{{"base_model_name_or_path", base_model},
                    {"bias", "none"},
                    {"fan_in_fan_out", options.fan_in_fan_out},
                    {"inference_mode", true},
                    {"init_lora_weights", true},
                    {"lora_alpha", options.alpha},
                    {"lora_dropout", 0.0},
                    {"peft_type", "LORA"},
                    {"r", options.rank},
                    {"target_modules", options.targets},
                    {"task_type", "CAUSAL_LM"}};
  return json_text(config, 2) + "\n";
}

}  // namespace penstock::hf
