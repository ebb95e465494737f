// Low-rank adapters in a network: fine-tuning that trains two small matrices beside each chosen linear layer and leaves
// all other parameters as they are.
#pragma once

#include <memory>
#include <string>

#include "penstock/hf/lora_config.h"
#include "penstock/hf/weights.h"
#include "penstock/model/cell.h"

namespace penstock::hf {

/// Gives each layer that `options` names, a torch::nn::Linear or one of GPT-2's projections, the parameters
/// lora_A.weight, initially random as PEFT's, and lora_B.weight, initially 0; freezes all other parameters of `network`.
/// A frozen parameter has no gradient, no W and no optimiser state. `options.targets` becomes the layers' names as they
/// are. Call it before the network is built or given to a Pipeline. Throws ConfigError as check(), for a target that is
/// not the name of a layer (names the layers there are), and for one that is the name of another kind of layer.
void add_lora(Cell& network, LoraOptions& options);

/// The adapter in `directory` (adapter_model.safetensors), by the names of its tensors in the network. Throws DataError
/// if the file cannot be read.
std::shared_ptr<const MappedWeights> read_adapter(const std::string& directory);
/// `base`, but for tensors that `adapter` has. Without an adapter its tensors keep their initial values, and without a
/// base all others do.
std::shared_ptr<const WeightSource> with_adapter(std::shared_ptr<const WeightSource> base,
                                                 std::shared_ptr<const WeightSource> adapter);

/// Writes adapter_config.json and adapter_model.safetensors into `directory`, which is made if it is missing: PEFT loads
/// them beside the model `base_model`. Only the adapters of `state` are written. Throws ConfigError if there are none.
void save_adapter(const std::string& directory, const StateDict& state, const LoraOptions& options,
                  const std::string& base_model);

}  // namespace penstock::hf
