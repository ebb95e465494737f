// Reads and writes .safetensors files, the format of the Python package safetensors, as tensors. safetensors_header.h
// describes the format.
#pragma once

#include <map>
#include <string>

#include "penstock/base/tensor.h"
#include "penstock/checkpoint/safetensors_header.h"

namespace penstock {

struct WeightFile {
  StateDict tensors = StateDict();
  std::map<std::string, std::string> metadata = {};  // arbitrary text, stored with the tensors
};

/// Writes `file` to a temporary file, then renames it to `path`, both on the disk: other programs see either the old
/// file or the complete new one. The bytes are those that the Python package writes. Takes tensors on any device, of
/// the dtypes float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 and bool. Throws ConfigError for an
/// undefined tensor, another dtype, a tensor called __metadata__, and if the file's folder does not exist; Failure if
/// writing fails.
void write_safetensors(const std::string& path, const WeightFile& file);

/// Reads a file into CPU tensors that own their memory. Throws DataError, which names the file and the error, for
/// anything that is not exactly this format. A wrong header cannot cause allocations larger than the file.
WeightFile read_safetensors(const std::string& path);

/// The dtypes in both directions. Throw ConfigError, DataError for those that only one side knows; `name` is of the
/// tensor, for messages.
TensorType tensor_type_of(torch::ScalarType scalar, const std::string& name);
torch::ScalarType scalar_type_of(TensorType type, const std::string& name);

}  // namespace penstock
