// Weights as a .safetensors file, which Python (safetensors, torch) reads and writes as well.
//
//   8 bytes    the length of the header, little-endian
//   header     JSON: {"layer1.weight": {"dtype": "F32", "shape": [512, 784], "data_offsets": [0, 1605632]}, ...,
//              "__metadata__": {"model": "mlp"}}, filled up with spaces
//   data       the tensors, contiguous, little-endian, without gaps
#pragma once

#include <map>
#include <string>

#include "penstock/base/tensor.h"

namespace penstock {

struct WeightFile {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata = {};  // whatever belongs to them, as text
};

/// Writes all of it under another name, then puts it in its place: other programs see the file as it was before or
/// whole. Tensors on any device, of float64, 32, 16, bfloat16, int64, 32, 16, 8, uint8 and bool. Throws ConfigError for
/// an undefined tensor, one of another kind, a tensor called __metadata__, and where there is no folder for the file;
/// Failure where writing fails.
void write_safetensors(const std::string& path, const WeightFile& file);

/// Copies of what is in the file. Throws DataError, naming the file and what is wrong with it, for anything that is not
/// exactly this format; memory is taken only for what the file holds.
WeightFile read_safetensors(const std::string& path);

}  // namespace penstock
