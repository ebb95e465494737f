// The weights of a checkpoint as a Hugging Face directory, as transformers writes it, and its adapters as PEFT does.
// Free of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock::hf {

/// The start of the model's name in the settings of a training: "hf:DIR".
inline constexpr std::string_view model_prefix = "hf:";
/// The metadata of weight files with these settings, as JSON: {"model": "hf:DIR", ...}.
inline constexpr const char* settings_key = "penstock.network";
/// The member of these settings with the contents of adapter_config.json, if the model has adapters.
inline constexpr const char* lora_key = "lora";

struct DirectoryExport {
  std::string output;    // the directory to write, which is made if it is missing
  std::string original;  // the directory with the model's other files; empty: the one with which the training began
  std::uint64_t most_bytes = 5'000'000'000;  // of the tensors in one file (more for a single larger tensor)
};

/// Writes the parameters and buffers of `checkpoint` as model.safetensors, or as several files with
/// model.safetensors.index.json, and beside them config.json, generation_config.json, the tokenizer's files and the
/// chat template of the original directory. Adapters are merged into the weights, in fp32; frozen parameters that the
/// checkpoint leaves out are those of the original directory. Takes memory for one tensor and its adapter. Returns the
/// paths. Throws as export_weights(); ConfigError if `output` has weights already, if the checkpoint is not of a Hugging
/// Face model, or for an adapter of a tied weight; DataError if the original directory has no config.json, or lacks a
/// tensor or its value in the training.
std::vector<std::string> export_directory(const Checkpoint& checkpoint, const DirectoryExport& wanted);

/// Writes the adapters of `checkpoint` as the Python package PEFT does: adapter_config.json, which names the original
/// directory, and adapter_model.safetensors. Returns and throws as export_directory(); ConfigError if the checkpoint has
/// no adapters.
std::vector<std::string> export_adapter(const Checkpoint& checkpoint, const DirectoryExport& wanted);

}  // namespace penstock::hf
