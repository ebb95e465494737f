// Language models of Hugging Face directories as Cells: `auto model = ps::hf::load("SmolLM2-135M-Instruct");`
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "penstock/hf/causal_lm.h"
#include "penstock/hf/lora_config.h"
#include "penstock/model/weight_source.h"

namespace penstock::hf {

class MappedWeights;

/// Reads `directory`/config.json. Throws DataError if it cannot be read, ConfigError for an architecture or an option
/// that is not supported and for values that contradict each other.
Config read_config(const std::string& directory);

struct LoadOptions {
  Init init = Init::weights;
  /// Adds adapters, as add_lora(), beside weights that are frozen; none: all are trained.
  std::optional<LoraOptions> lora = {};
  /// The values of the adapters (read_adapter()), and of weights that replace the directory's. Null: initial ones.
  std::shared_ptr<const WeightSource> adapter = nullptr;
};

/// The weight files of a model's directory, by the names of its network. Throws as MappedWeights.
std::shared_ptr<const MappedWeights> open_weights(const Config& config);

/// The model of a Hugging Face directory: config.json and, if `init` is `weights`, its weights; each rank reads only
/// the weights of its own layers (MappedWeights). Throws as read_config(), DataError for weight files that cannot be
/// read, and ConfigError for weights that contradict config.json (it names the tensor and both shapes) and as
/// add_lora().
std::unique_ptr<CausalLm> load(const std::string& directory, const LoadOptions& options = {});

/// The options of adapters for the model of a directory, as add_lora() completes them. Throws as read_config() and as
/// add_lora().
LoraOptions completed(const std::string& directory, LoraOptions options);

}  // namespace penstock::hf
