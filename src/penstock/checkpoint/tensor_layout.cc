#include "penstock/checkpoint/tensor_layout.h"

#include <algorithm>
#include <array>
#include <limits>

#include "penstock/base/error.h"

namespace penstock {
namespace {

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeRow, 15> type_rows{{{TensorType::boolean, "BOOL", 1},
                                             {TensorType::u8, "U8", 1},
                                             {TensorType::i8, "I8", 1},
                                             {TensorType::f8_e5m2, "F8_E5M2", 1},
                                             {TensorType::f8_e4m3, "F8_E4M3", 1},
                                             {TensorType::i16, "I16", 2},
                                             {TensorType::u16, "U16", 2},
                                             {TensorType::f16, "F16", 2},
                                             {TensorType::bf16, "BF16", 2},
                                             {TensorType::i32, "I32", 4},
                                             {TensorType::u32, "U32", 4},
                                             {TensorType::f32, "F32", 4},
                                             {TensorType::f64, "F64", 8},
                                             {TensorType::i64, "I64", 8},
                                             {TensorType::u64, "U64", 8}}};

const TypeRow& row_of(TensorType type) { return type_rows[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view to_string(TensorType type) { return row_of(type).name; }

std::optional<TensorType> tensor_type_of(std::string_view name) {
  const auto row =
      std::find_if(type_rows.begin(), type_rows.end(), [&](const TypeRow& one) { return one.name == name; });
  if (row == type_rows.end()) return std::nullopt;
  return row->type;
}

std::size_t bytes_per_element(TensorType type) { return row_of(type).bytes; }

std::optional<std::uint64_t> size_in_bytes(TensorType type, std::span<const std::int64_t> shape) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bytes = bytes_per_element(type);
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    const auto factor = static_cast<std::uint64_t>(size);
    if (bytes > 0 && factor > most / bytes) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += say(text.size() == 1 ? "" : ", ", size);
  return text + "]";
}

}  // namespace penstock
