#include "penstock/kernels/add_product.h"

#include <optional>

#include <ATen/ops/mm.h>

#include "penstock/kernels/kernels.h"

// LibTorch exports MKL's function, whose header it does not install; null in a LibTorch without MKL.
extern "C" [[gnu::weak]] void cblas_gemm_bf16bf16f32(int layout, int transpose_a, int transpose_b, int m, int n, int k,
                                                     float alpha, const void* a, int lda, const void* b, int ldb,
                                                     float beta, float* c, int ldc);

namespace penstock::kernels {
namespace {

/// A matrix as BLAS takes it: row by row, or the transpose of such a one.
struct BlasMatrix {
  bool is_transposed = false;
  std::int64_t row_length = 0;  // elements from one row in memory to the next
};

/// None if neither rows nor columns are contiguous.
std::optional<BlasMatrix> blas_matrix(const torch::Tensor& matrix) {
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  if (matrix.stride(1) == 1 && matrix.stride(0) >= columns) return BlasMatrix{false, matrix.stride(0)};
  if (matrix.stride(0) == 1 && matrix.stride(1) >= rows) return BlasMatrix{true, matrix.stride(1)};
  return std::nullopt;
}

bool has_amx() {
  static const bool found = processor_has({"amx_bf16"});
  return found;
}

/// Whether the sum was computed: not for tensors that MKL does not support, nor without AMX.
bool add_in_fp32(const torch::Tensor& into, bool is_first, const torch::Tensor& a, const torch::Tensor& b) {
  if (!has_amx() || cblas_gemm_bf16bf16f32 == nullptr || !into.device().is_cpu()) return false;
  if (a.scalar_type() != torch::kBFloat16 || b.scalar_type() != torch::kBFloat16 || into.scalar_type() != torch::kFloat)
    return false;
  const std::optional<BlasMatrix> sum = blas_matrix(into), left = blas_matrix(a), right = blas_matrix(b);
  if (into.numel() == 0 || a.size(1) == 0 || !sum || sum->is_transposed || !left || !right) return false;
  constexpr int row_major = 101, plain = 111, transposed = 112;
  const auto order = [](const BlasMatrix& matrix) { return matrix.is_transposed ? transposed : plain; };
  const auto number = [](std::int64_t size) { return static_cast<int>(size); };
  cblas_gemm_bf16bf16f32(row_major, order(*left), order(*right), number(into.size(0)), number(into.size(1)),
                         number(a.size(1)), 1, a.data_ptr(), number(left->row_length), b.data_ptr(),
                         number(right->row_length), is_first ? 0 : 1, into.data_ptr<float>(), number(sum->row_length));
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
