#include "penstock/kernels/row_sums.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include "penstock/kernels/for_each_processor.h"

namespace penstock::kernels {
namespace {

/// `distance`: elements from one row to the next.
struct Rows {
  const c10::BFloat16* first;
  std::int64_t count, columns, distance;
};

PENSTOCK_FOR_EACH_PROCESSOR void add_up(const Rows& rows, float* sums) {
  constexpr std::int64_t part = 256;  // columns, whose sums the registers and the first-level cache hold
  for (std::int64_t begin = 0; begin < rows.columns; begin += part) {
    const std::int64_t size = std::min(part, rows.columns - begin);
    std::array<float, part> of_part{};
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const c10::BFloat16* row = rows.first + r * rows.distance + begin;
      for (std::int64_t i = 0; i < size; ++i) of_part[static_cast<std::size_t>(i)] += static_cast<float>(row[i]);
    }
    std::copy_n(of_part.begin(), size, sums + begin);
  }
}

}  // namespace

torch::Tensor sum_of_rows(const torch::Tensor& rows, c10::ScalarType type) {
  if (!rows.is_cpu() || rows.scalar_type() != at::kBFloat16 || type != at::kFloat || rows.stride(1) != 1)
    return rows.sum(at::IntArrayRef{0}, /*keepdim=*/false, type);
  torch::Tensor sums = at::empty({rows.size(1)}, rows.options().dtype(type));
  add_up({rows.const_data_ptr<c10::BFloat16>(), rows.size(0), rows.size(1), rows.stride(0)}, sums.data_ptr<float>());
  return sums;
}

}  // namespace penstock::kernels
