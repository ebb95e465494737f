// The kernel selection: which code computes each layer's products. "fixed" selects LibTorch's kernels for every layer,
// "tuned" the fastest for each layer's shape on this machine. The last bits of results depend on it, so every rank uses
// the same selection, and its fingerprint is among the settings that ranks compare.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "penstock/kernels/gemm_convolution.h"

namespace penstock {

/// The products of a layer.
enum class Product { forward, input_grad, weight_grad };

/// The key of a choice: everything but the number of samples.
struct ConvolutionShape {
  std::int64_t in = 0, out = 0;  // channels
  Extent image;
  ConvolutionGeometry geometry;

  friend auto operator<=>(const ConvolutionShape&, const ConvolutionShape&) = default;
};

/// How y = x w^T + b is computed.
enum class LinearKernel {
  library,
  bias_apart,  // the product first, then the bias: for few rows much faster than a fused addition
  no_pack      // kernels/no_pack_linear.h's, and dx = dy w too
};

struct LinearShape {
  std::int64_t in = 0, out = 0;

  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
};

/// A plain value: the kernels by shape.
class KernelSelection {
 public:
  /// LibTorch's kernels, in LibTorch's layouts.
  static KernelSelection fixed() { return {}; }
  /// A tuned selection without choices. Convolutions keep their images in channels-last order; GELU is
  /// kernels/gelu.h's.
  static KernelSelection tuned();

  bool is_tuned() const { return is_tuned_; }
  void choose(const ConvolutionShape& shape, Product product, ConvolutionKernel kernel);
  /// LibTorch's where no kernel was chosen.
  ConvolutionKernel kernel_for(const ConvolutionShape& shape, Product product) const;

  void choose(const LinearShape& shape, LinearKernel kernel) { linears_[shape] = kernel; }
  LinearKernel kernel_for(const LinearShape& shape) const;
  bool has(LinearKernel kernel) const;

  /// A hash of the choices in 16 hexadecimal digits; "fixed" for LibTorch's kernels.
  std::string fingerprint() const;
  /// The text form, for other ranks and for display: "fixed", or "tuned" and a line per choice.
  std::string to_text() const;
  /// Reads the text form: from_text(b.to_text()) equals b. Throws DataError for any other text.
  static KernelSelection from_text(std::string_view text);

  friend bool operator==(const KernelSelection&, const KernelSelection&) = default;

 private:
  bool is_tuned_ = false;
  std::map<std::pair<ConvolutionShape, Product>, ConvolutionKernel> convolutions_;
  std::map<LinearShape, LinearKernel> linears_;
};

}  // namespace penstock
