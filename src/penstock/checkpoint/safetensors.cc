#include "penstock/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"

namespace penstock {
namespace {

struct Kind {
  TensorType type;
  torch::ScalarType scalar;
};

constexpr std::array<Kind, 10> kinds{{{TensorType::f64, torch::kFloat64},
                                      {TensorType::f32, torch::kFloat32},
                                      {TensorType::f16, torch::kFloat16},
                                      {TensorType::bf16, torch::kBFloat16},
                                      {TensorType::i64, torch::kInt64},
                                      {TensorType::i32, torch::kInt32},
                                      {TensorType::i16, torch::kInt16},
                                      {TensorType::i8, torch::kInt8},
                                      {TensorType::u8, torch::kUInt8},
                                      {TensorType::boolean, torch::kBool}}};

std::span<const std::byte> memory_of(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

TensorType tensor_type_of(torch::ScalarType scalar, const std::string& name) {
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.scalar == scalar; });
  require<ConfigError>(found != kinds.end(), "'", name, "' is of ", torch::toString(scalar),
                       ", which a safetensors file does not hold: convert it first");
  return found->type;
}

torch::ScalarType scalar_type_of(TensorType type, const std::string& name) {
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.type == type; });
  require<DataError>(found != kinds.end(), name, " is of dtype ", to_string(type), ", which is not read here");
  return found->scalar;
}

void write_safetensors(const std::string& path, const WeightFile& file) {
  std::map<std::string_view, torch::Tensor> data;
  std::vector<TensorBytes> layouts;
  for (const auto& item : file.tensors) {
    const std::string& name = item.key();
    const torch::Tensor& tensor = item.value();
    require<ConfigError>(tensor.defined(), "'", name, "' has no value to write");
    layouts.push_back({name, tensor_type_of(tensor.scalar_type(), name), tensor.sizes().vec(), {}});
    data[name] = tensor.detach().to(torch::kCPU).contiguous();
  }
  const SafetensorsHeader header = place_tensors(layouts, file.metadata);
  const std::string prefix = safetensors_prefix(header);
  const std::uint64_t size = prefix.size() + (header.tensors.empty() ? 0 : header.tensors.back().end);
  replace_file(SystemCalls::real(), path, size, [&](NewFile& out) {
    out.write(bytes_in(prefix));
    for (const TensorPlace& place : header.tensors) out.write(memory_of(data.at(place.name)));
  });
}

WeightFile read_safetensors(const std::string& path) {
  SafetensorsFile opened = open_safetensors(SystemCalls::real(), path, SymbolicLinks::followed);
  WeightFile file{StateDict(), std::move(opened.header.metadata)};
  for (const TensorPlace& place : opened.header.tensors) {
    const std::string where = say("'", path, "', tensor '", place.name, "'");
    torch::Tensor tensor = torch::empty(place.shape, scalar_type_of(place.type, where));
    const std::span bytes(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
    opened.file.read(opened.data_begin + place.begin, bytes);
    require<DataError>(place.type != TensorType::boolean ||
                           std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; }),
                       where, " of dtype BOOL has bytes that are neither 0 nor 1");
    file.tensors.insert(place.name, std::move(tensor));
  }
  return file;
}

}  // namespace penstock
