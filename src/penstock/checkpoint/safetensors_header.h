// Tensors as .safetensors files describe them: dtypes, shapes, and the header, without their data. Free of LibTorch.
// docs/checkpoints.md lists the limits.
//
//   8 bytes    the length of the JSON, little-endian
//   JSON       {"__metadata__": {"model": "mlp"},
//               "layer1.weight": {"dtype": "F32", "shape": [512, 784], "data_offsets": [0, 1605632]}, ...},
//              padded with spaces
//   data       the tensors, contiguous, little-endian, without gaps
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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

inline constexpr std::uint64_t longest_safetensors_header = 100'000'000;
inline constexpr std::size_t most_safetensors_tensors = 250'000;
inline constexpr std::size_t most_tensor_dimensions = 64;
inline constexpr std::string_view safetensors_metadata_key = "__metadata__";
/// The metadata of a checkpoint's files: the checksums of their tensors, in the order of the file, separated by blanks.
inline constexpr const char* tensor_checksums_key = "xxh3_128";
/// The metadata of a checkpoint's files of the model: a line for each of the rank's frozen parameters, with its name
/// and, if its value is left out, a tab and the checksum of the value.
inline constexpr const char* frozen_key = "penstock.frozen";

/// One of the files into which a set of tensors is divided.
struct ShardNumber {
  std::size_t index = 0;  // from 0
  std::size_t count = 1;
};

/// "model-00001-of-00002.safetensors" of the stem "model": Hugging Face's names of shards.
std::string shard_name(std::string_view stem, const ShardNumber& shard);

struct TensorPlace {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape = {};
  std::uint64_t begin = 0, end = 0;  // relative to the start of the data
  friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

struct SafetensorsHeader {
  std::vector<TensorPlace> tensors = {};  // ascending by place: the first begins at 0, each other where one ends
  std::map<std::string, std::string> metadata = {};
  friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

/// Reads the JSON of a header whose data have `data_bytes` bytes. Throws DataError, which begins with `file`, unless
/// names are unique and the tensors cover the data exactly, without gaps and overlaps. Allocates memory for what was
/// read, whatever it claims.
SafetensorsHeader read_safetensors_header(std::string_view json, std::uint64_t data_bytes, std::string_view file);

/// The next part of a text; an empty one at its end. Valid until the next call.
using NextPiece = std::function<std::string_view()>;
/// The same for JSON that is read piece by piece: it need not be in memory as a whole.
SafetensorsHeader read_safetensors_header(const NextPiece& json, std::uint64_t data_bytes, std::string_view file);

/// The header whose tensors have the order of the reference implementation: by descending TensorType, then by name.
/// Takes names, types and shapes of `tensors`. Throws ConfigError for names that are not UTF-8, are not unique or are
/// reserved, for metadata that is not UTF-8, and for tensors that exceed the limits.
SafetensorsHeader place_tensors(const std::vector<TensorBytes>& tensors, std::map<std::string, std::string> metadata);

/// All bytes of the file before the data: the length, and the JSON with its padding. The data are aligned to 8 bytes.
std::string safetensors_prefix(const SafetensorsHeader& header);

}  // namespace penstock
