// Reads and writes .safetensors files, the format of the Python package safetensors.
//
//   8 bytes    the length of the header, little-endian
//   header     JSON: {"layer1.weight": {"dtype": "F32", "shape": [512, 784], "data_offsets": [0, 1605632]}, ...,
//              "__metadata__": {"model": "mlp"}}, padded with spaces
//   data       the tensors, contiguous, little-endian, without gaps
#pragma once

#include <map>
#include <string>

#include "penstock/base/tensor.h"

namespace penstock {

struct WeightFile {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata = {};  // arbitrary text, stored with the tensors
};

/// Writes `file` to a temporary file, then renames it to `path`: other programs see either the old file or the complete
/// new one. Takes tensors on any device, of the dtypes float64, float32, float16, bfloat16, int64, int32, int16, int8,
/// uint8 and bool. Throws ConfigError for an undefined tensor, another dtype, a tensor called __metadata__, and if the
/// file's folder does not exist; Failure if writing fails.
void write_safetensors(const std::string& path, const WeightFile& file);

/// Reads a file into CPU tensors that own their memory. Throws DataError, which names the file and the error, for
/// anything that is not exactly this format. A wrong header cannot cause allocations larger than the file.
WeightFile read_safetensors(const std::string& path);

}  // namespace penstock
