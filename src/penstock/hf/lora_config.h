// The options of low-rank adapters, and adapter_config.json of the Python package PEFT. Free of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::hf {

/// Low-rank adapters (Hu and others: LoRA, arXiv 2106.09685): beside the weight W [out, in] of a linear layer stand two
/// small matrices, A [rank, in] and B [out, rank]; its output for x is W x + alpha / rank * B A x.
struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;
  /// The layers that have an adapter: last parts of their names, also without "_proj": "q" is "q_proj".
  std::vector<std::string> targets = {"q_proj", "v_proj"};
  bool fan_in_fan_out = false;  // PEFT's name: W is stored as [in, out], as GPT-2's. Set by add_lora()

  double scale() const { return alpha / static_cast<double>(rank); }
  friend bool operator==(const LoraOptions&, const LoraOptions&) = default;
};

/// "rank 8, alpha 16 and the layers q_proj, v_proj"
std::string to_string(const LoraOptions& options);

/// Throws ConfigError for a rank below 1, an alpha that is not a positive number, and no targets.
void check(const LoraOptions& options);

/// The weights of an adapter have the layer's name, one of these, and ".weight".
inline constexpr const char* lora_a = "lora_A";
inline constexpr const char* lora_b = "lora_B";
/// Whether the tensor `name` belongs to an adapter.
bool is_lora(const std::string& name);
/// What PEFT puts before the names of tensors.
inline constexpr const char* adapter_prefix = "base_model.model.";
inline constexpr const char* adapter_file = "adapter_model.safetensors";

/// Reads adapter_config.json in `directory`. Throws DataError if it is missing or damaged; ConfigError, which names it,
/// for another kind of adapter or an option that is not supported.
LoraOptions read_adapter_config(const std::string& directory);
/// The same of the contents of that file, which messages call `place`.
LoraOptions parse_adapter_config(const std::string& text, const std::string& place);
/// The contents of adapter_config.json for an adapter of the model in the directory `base_model`.
std::string adapter_config_text(const LoraOptions& options, const std::string& base_model);

}  // namespace penstock::hf
