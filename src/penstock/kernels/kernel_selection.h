// The kernel selection: which code computes each layer's products. "fixed" selects LibTorch's kernels for every layer,
// "tuned" the fastest for each layer's shape on this machine. The last bits of results depend on it, so every rank uses
// the same selection, and its fingerprint is among the settings that ranks compare.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::kernels {

/// The products of a layer.
enum class Product { forward, input_grad, weight_grad };

/// The code that computes a product of a convolution.
enum class ConvolutionKernel {
  library,  // LibTorch's
  columns,
  kernel_positions
};

/// Height and width.
struct Extent {
  std::int64_t height = 1;
  std::int64_t width = 1;

  friend auto operator<=>(const Extent&, const Extent&) = default;
};

/// The size of a convolution's window and its movement over the image.
struct ConvolutionGeometry {
  Extent kernel, stride, padding{0, 0}, dilation;

  /// The size of the output for an image of size `image`.
  Extent output_of(const Extent& image) const;
  friend auto operator<=>(const ConvolutionGeometry&, const ConvolutionGeometry&) = default;
};

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
  /// LibTorch's if no kernel was chosen.
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

}  // namespace penstock::kernels
