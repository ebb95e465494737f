#include "penstock/kernels/bf16_product.h"

#include "penstock/kernels/kernels.h"

// LibTorch does not install MKL's header; null in a LibTorch without MKL.
extern "C" [[gnu::weak]] void cblas_gemm_bf16bf16f32(int layout, int transpose_a, int transpose_b, int m, int n, int k,
                                                     float alpha, const void* a, int lda, const void* b, int ldb,
                                                     float beta, float* c, int ldc);

namespace penstock::kernels {

bool has_bf16_product() {
  static const bool has_amx = processor_has({"amx_bf16"});
  return has_amx && cblas_gemm_bf16bf16f32 != nullptr;
}

void add_bf16_product(const ProductSize& size, const Bf16Matrix& a, const Bf16Matrix& b, const Fp32Sum& sum) {
  constexpr int row_major = 101, plain = 111, transposed = 112;
  const auto order = [](const Bf16Matrix& matrix) { return matrix.is_transposed ? transposed : plain; };
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  cblas_gemm_bf16bf16f32(row_major, order(a), order(b), number(size.rows), number(size.columns), number(size.inner), 1,
                         a.first, number(a.distance), b.first, number(b.distance), sum.is_first ? 0 : 1, sum.first,
                         number(sum.distance));
}

}  // namespace penstock::kernels
