// Reads and writes weight files of the program's networks.
//
// The metadata of the .safetensors file describe the network:
//   penstock.weights      "1", the version of these keys
//   penstock.network      the result of settings_of() as JSON: {"model": "mlp", "hidden": [512, 512], ...}
//   penstock.vocabulary   language models only: the bytes of the vocabulary, "10,32,33"
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "penstock/cli/model_flags.h"
#include "penstock/data/data.h"
#include "penstock/hf/weights.h"

namespace penstock::cli {

struct SavedWeights {
  std::shared_ptr<const hf::MappedWeights> tensors = {};
  std::optional<Vocabulary> vocabulary = {};  // language models only
};

using WeightMetadata = std::map<std::string, std::string>;
WeightMetadata weight_metadata(const ModelFlags& network, const std::optional<Vocabulary>& vocabulary);
/// What a file, or the files of a checkpoint, hold.
struct HeldTensors {
  std::string path;  // for messages
  std::int64_t tensors = 0;
  double elements = 0;  // of all of them
};
/// Sets `network` from the metadata of a file, and returns the vocabulary. Throws as read_weights().
std::optional<Vocabulary> take_network(const WeightMetadata& metadata, const HeldTensors& held, ModelFlags& network);

/// Writes `state`, which Pipeline::state_dict() has returned, and metadata. Throws like write_safetensors.
void save_weights(const std::string& path, const StateDict& state, const WeightMetadata& metadata);

/// Opens the file, whose tensors are read later by the ranks that need them (hf/weights.h) instead of a Hugging Face
/// directory's, and sets the model, its sizes and the vocabulary in `network` from the metadata. Throws ConfigError, which names both values, if a flag that
/// the user set contradicts the file; flags that do not affect the weights' shapes (--dropout, --norm-momentum) may
/// differ. Throws DataError for settings that describe a larger network than the file's tensors are. A file of another
/// program has no metadata: then only the flags describe the network, and the tensors of a ResNet or Vision Transformer
/// may have torchvision's names. A file of a model with adapters may lack the frozen weights. Throws DataError for a file that cannot be read or has a later version, and for a part
/// of a checkpoint (require_whole_weights()).
SavedWeights read_weights(const std::string& path, ModelFlags& network);

/// Throws ConfigError if the vocabulary of `text` differs from that of the weights, which were read from `path`.
void require_same_vocabulary(const std::string& path, const SavedWeights& weights, const Vocabulary& text);

}  // namespace penstock::cli
