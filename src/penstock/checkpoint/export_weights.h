// Weights of a checkpoint as files for other programs, and the file that a program reads. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock {

/// Throws ConfigError for a path in the directory of a checkpoint, also through a symbolic link: replacing one of its
/// files would destroy it.
void require_outside_of_checkpoints(const std::string& path);

/// A tensor for a file: its form, and a function that fills memory of exactly its size.
struct ExportedTensor {
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape = {};
  std::function<void(std::span<std::byte>)> read = nullptr;
};

struct ExportedWeights {
  std::map<std::string, ExportedTensor> tensors = {};  // by name
  std::map<std::string, std::string> metadata = {};
};

/// The parameters and buffers of `checkpoint`, which must outlive the result, without the optimiser's state.
ExportedWeights weights_of(const Checkpoint& checkpoint);

/// Writes `weights`. With `most_bytes` unset: one file `path`. Otherwise files beside it of at most `most_bytes` of
/// tensors each (more for a single larger tensor), as "model-00001-of-00003.safetensors" for "model.safetensors", and
/// their index, which is written last; a single file if that suffices. Takes memory for one tensor. Returns the paths.
/// Throws ConfigError for an impossible path and for one in the directory of a checkpoint, Failure if writing fails, and
/// what reading a tensor throws: DataError for a damaged checkpoint, whose checksums are compared. After an error no new
/// file is left, and those that it would have replaced are as before, unless the last step, renaming the complete files,
/// has failed. Other programs never see a part of a file.
std::vector<std::string> export_weights(const ExportedWeights& weights, const std::string& path,
                                        std::optional<std::uint64_t> most_bytes);
/// The same with weights_of(checkpoint).
std::vector<std::string> export_weights(const Checkpoint& checkpoint, const std::string& path,
                                        std::optional<std::uint64_t> most_bytes);

/// Throws DataError, which names the fix, if `path` is a folder such as a checkpoint, an index, or one of several files
/// of weights: one .safetensors file with all weights is read. Looks at names only.
void require_whole_weights(const std::string& path);

}  // namespace penstock
