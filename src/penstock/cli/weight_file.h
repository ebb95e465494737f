// Weights of a network that the flags describe, in a file and out of it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "penstock/cli/model_flags.h"
#include "penstock/data/data.h"

namespace penstock {

struct SavedWeights {
  std::map<std::string, torch::Tensor> state;  // as Pipeline::state() has it
  std::optional<Vocabulary> vocabulary = {};   // of a language model
};

/// With the settings of the network, so that the file says what it belongs to. Throws like write_safetensors.
void save_weights(const std::string& path, const ModelFlags& network, const SavedWeights& weights);

/// Takes the vocabulary over into `network`. Throws DataError for a file that cannot be read, and ConfigError, with
/// both settings, where it was saved from a network of other settings. A file of another program may not say of which.
SavedWeights read_weights(const std::string& path, ModelFlags& network);

}  // namespace penstock
