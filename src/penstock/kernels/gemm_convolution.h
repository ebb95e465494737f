// Convolutions as matrix products over images in the layout [n, height, width, channels], for micro-batches: many
// channels and small images, where a library's own kernels are slow.
//
// Two ways to compute the same sums, with a weight [out, kh, kw, in]:
//   columns           im2col: every output pixel's window becomes a row of kh*kw*in values, followed by one product
//   kernel_positions  one product for each of the kh*kw positions in the window, over the pixels for which the position
//                     lies inside the image. Nothing is copied where it does for all pixels, and positions that only
//                     cover padding cost nothing
//
//   3x3, padding 1, on 2x2 pixels: the position at the top left covers one pixel, the one in the middle covers four
//     . . . .
//     . A B .        columns:           4 rows of 9 values, 20 of 36 are padding
//     . C D .        kernel_positions:  1+2+1 + 2+4+2 + 1+2+1 = 16 rows of 1 value
//     . . . .
//
// For tensors on the CPU, without groups. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace penstock {

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

/// The weight [out, in, kh, kw] as [out, kh, kw, in]: a view where it is in channels-last order, otherwise a copy.
torch::Tensor as_kernel_positions(const torch::Tensor& weight);

/// y [n, out, oh, ow] of x [n, in, h, w], both in channels-last order. `bias` may be undefined. `kernel` is columns or
/// kernel_positions.
torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                       const ConvolutionGeometry& geometry, ConvolutionKernel kernel);

/// dx [n, in, h, w], for an image of size `image`, of dy in channels-last order; computed by kernel_positions.
torch::Tensor convolution_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight, const Extent& image,
                                         const ConvolutionGeometry& geometry);

/// x and dy of several micro-batches, all of one shape and in channels-last order.
struct WeightProduct {
  const std::vector<torch::Tensor>& x;
  const std::vector<torch::Tensor>& dy;
};

/// Adds dw to `sum` [out, kh, kw, in], or overwrites it where `is_first`. `kernel` is columns or kernel_positions.
void add_convolution_weight_gradient(torch::Tensor& sum, bool is_first, const WeightProduct& product,
                                     const ConvolutionGeometry& geometry, ConvolutionKernel kernel);

}  // namespace penstock
