// Weights of a checkpoint as files for other programs. Free of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock {

/// Writes the parameters and buffers of `checkpoint`, without the optimiser's state. With `most_bytes` unset: one file
/// `path`. Otherwise files beside it of at most `most_bytes` of tensors each (more for a single larger tensor), as
/// "model-00001-of-00003.safetensors" for "model.safetensors", and their index, which is written last; a single file if
/// that suffices. Takes memory for one tensor. Returns the paths. All checksums are compared. Throws DataError for a
/// damaged checkpoint, ConfigError for an impossible path, Failure if writing fails; other programs never see a part of
/// a file.
std::vector<std::string> export_weights(const Checkpoint& checkpoint, const std::string& path,
                                        std::optional<std::uint64_t> most_bytes);

}  // namespace penstock
