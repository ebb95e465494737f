// Which code computes a layer's products, where there is a choice: "fixed", LibTorch's own for every layer, or "tuned",
// whatever was the fastest for the layer's shape on this machine. The last bits depend on it, so every rank goes by one
// selection, and what the selection says is part of what a run is compared by.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "penstock/kernels/gemm_convolution.h"

namespace penstock {

/// What is computed of a layer.
enum class Product { forward, input_grad, weight_grad };

/// What choices are known by: everything but the number of samples.
struct ConvolutionShape {
  std::int64_t in = 0, out = 0;  // channels
  Extent image;
  ConvolutionGeometry moves;

  friend auto operator<=>(const ConvolutionShape&, const ConvolutionShape&) = default;
};

/// How y = x w^T + b is computed.
enum class LinearKernel {
  library,
  bias_apart,  // the product first, then the bias: at few rows, much faster than a product that adds to the bias
  no_pack      // kernels/no_pack_linear.h's, and dx = dy w too
};

struct LinearShape {
  std::int64_t in = 0, out = 0;

  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
};

/// A plain value.
class KernelSelection {
 public:
  /// LibTorch's kernels, in LibTorch's layouts.
  static KernelSelection fixed() { return {}; }
  /// Nothing chosen yet. Convolutions keep their images in channels-last order; GELU is kernels/gelu.h's.
  static KernelSelection tuned();

  bool is_tuned() const { return is_tuned_; }
  void choose(const ConvolutionShape& shape, Product product, ConvolutionKernel kernel);
  /// The library's where nothing was chosen.
  ConvolutionKernel kernel_for(const ConvolutionShape& shape, Product product) const;

  void choose(const LinearShape& shape, LinearKernel kernel) { linears_[shape] = kernel; }
  LinearKernel kernel_for(const LinearShape& shape) const;
  bool has(LinearKernel kernel) const;

  /// 16 hexadecimal digits that differ when the choices do; "fixed" for those.
  std::string fingerprint() const;
  /// For the other ranks, and for people: "fixed", or "tuned" and a line per choice.
  std::string to_text() const;
  /// from_text(b.to_text()) equals b. Throws DataError for anything else.
  static KernelSelection from_text(std::string_view text);

  friend bool operator==(const KernelSelection&, const KernelSelection&) = default;

 private:
  bool is_tuned_ = false;
  std::map<std::pair<ConvolutionShape, Product>, ConvolutionKernel> convolutions_;
  std::map<LinearShape, LinearKernel> linears_;
};

}  // namespace penstock
