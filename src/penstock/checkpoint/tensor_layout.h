// A tensor without its numbers: name, dtype and shape, as .safetensors files describe it. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The dtypes of .safetensors files. Files contain the tensors in descending order of these values, which is one of
/// descending alignment.
enum class TensorType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64
};

/// The name in files: "F32".
std::string_view to_string(TensorType type);
std::optional<TensorType> tensor_type_of(std::string_view name);
std::size_t bytes_per_element(TensorType type);

/// The bytes of a tensor; none if their number exceeds 2^63 - 1, or a dimension is negative.
std::optional<std::uint64_t> size_in_bytes(TensorType type, std::span<const std::int64_t> shape);

/// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);

/// A tensor in the memory of this process: contiguous, in C order.
struct TensorBytes {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

}  // namespace penstock
