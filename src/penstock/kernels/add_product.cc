#include "penstock/kernels/add_product.h"

#include <optional>

#include <ATen/ops/mm.h>

#include "penstock/kernels/bf16_product.h"

namespace penstock::kernels {
namespace {

/// None for another type, and if neither rows nor columns are contiguous.
std::optional<Bf16Matrix> bf16_matrix(const torch::Tensor& matrix) {
  if (matrix.scalar_type() != torch::kBFloat16) return std::nullopt;
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  const auto* first = matrix.const_data_ptr<c10::BFloat16>();
  if (matrix.stride(1) == 1 && matrix.stride(0) >= columns) return Bf16Matrix{first, matrix.stride(0)};
  if (matrix.stride(0) == 1 && matrix.stride(1) >= rows) return Bf16Matrix{first, matrix.stride(1), true};
  return std::nullopt;
}

/// Whether the sum was computed: not for tensors that the product does not support.
bool add_in_fp32(const torch::Tensor& into, bool is_first, const torch::Tensor& a, const torch::Tensor& b) {
  if (!has_bf16_product() || !into.device().is_cpu() || into.scalar_type() != torch::kFloat) return false;
  if (into.stride(1) != 1 || into.stride(0) < into.size(1)) return false;
  const std::optional<Bf16Matrix> left = bf16_matrix(a), right = bf16_matrix(b);
  if (into.numel() == 0 || a.size(1) == 0 || !left || !right) return false;
  add_bf16_product({into.size(0), into.size(1), a.size(1)}, *left, *right,
                   {into.data_ptr<float>(), into.stride(0), is_first});
  return true;
}

}  // namespace

void add_product_to(torch::Tensor into, bool is_first, const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != into.scalar_type()) {
    if (add_in_fp32(into, is_first, a, b)) return;
    const torch::Tensor product = at::mm(a, b);
    if (is_first)
      into.copy_(product);
    else
      into.add_(product);
  } else if (is_first) {
    at::mm_out(into, a, b);
  } else {
    into.addmm_(a, b);
  }
}

}  // namespace penstock::kernels
