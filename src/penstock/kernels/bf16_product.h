// The product of two matrices in bf16, summed in fp32, for processors with AMX: by MKL, whose function LibTorch exports.
// On other processors it was not compared with LibTorch's products. Any thread.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace penstock::kernels {

/// Rows in memory; with is_transposed the matrix is their transpose.
struct Bf16Matrix {
  const c10::BFloat16* first;
  std::int64_t distance;  // elements from one row in memory to the next
  bool is_transposed = false;
};

struct ProductSize {
  std::int64_t rows, columns, inner;  // all at least 1
};

/// What is overwritten with the product if is_first, or to which it is added.
struct Fp32Sum {
  float* first;
  std::int64_t distance;
  bool is_first;
};

/// Whether the processor has AMX and LibTorch exports the function.
bool has_bf16_product();

void add_bf16_product(const ProductSize& size, const Bf16Matrix& a, const Bf16Matrix& b, const Fp32Sum& sum);

}  // namespace penstock::kernels
