// Weights of a network that the flags describe, in a file and out of it.
//
// The metadata of the .safetensors file say which network that was:
//   penstock.weights      "1", the version of these keys
//   penstock.network      what settings_of() gives, as JSON: {"model": "mlp", "hidden": [512, 512], ...}
//   penstock.vocabulary   of a language model, the bytes that it knows: "10,32,33"
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

/// With the metadata above. Throws like write_safetensors.
void save_weights(const std::string& path, const ModelFlags& network, const SavedWeights& weights);

/// Reads the file, and takes over into `network` what its metadata say: the model, its sizes, and the vocabulary.
/// Flags that the user gave stay; where one says something else than the file, a ConfigError names both values. What
/// does not belong to the weights (--dropout, --norm-momentum) may differ. A file of another program says nothing of
/// its network: then the flags describe it. Throws DataError for a file that cannot be read or is of a later version.
SavedWeights read_weights(const std::string& path, ModelFlags& network);

/// Throws ConfigError where `text` has another vocabulary than the weights, which were read from `path`.
void require_same_vocabulary(const std::string& path, const SavedWeights& weights, const Vocabulary& text);

}  // namespace penstock
