// Language models of Hugging Face directories as Cells: `auto model = ps::hf::load("SmolLM2-135M-Instruct");`
#pragma once

#include <memory>
#include <string>

#include "penstock/hf/causal_lm.h"

namespace penstock::hf {

/// Reads `directory`/config.json. Throws DataError if it cannot be read, ConfigError for an architecture or an option
/// that is not supported and for values that contradict each other.
Config read_config(const std::string& directory);

struct LoadOptions {
  Init init = Init::weights;
};

/// The model of a Hugging Face directory: config.json and, unless `init` is random, its weights; each rank reads only
/// the weights of its own layers (MappedWeights). Throws as read_config(), DataError for weight files that cannot be
/// read, and ConfigError for weights that contradict config.json: it names the tensor and both shapes.
std::unique_ptr<CausalLm> load(const std::string& directory, const LoadOptions& options = {});

}  // namespace penstock::hf
