// Convolutions as products of matrices over images laid out as [n, height, width, channels]: what a library's own
// kernels do badly at the size of a micro-batch, where images are small and channels many.
//
// With a weight [out, kh, kw, in], two ways to the same sums:
//   columns  every output pixel's window becomes a row of kh*kw*in values, and one product does the rest
//   kernel_positions     one product for each of the kh*kw places in the window, over the pixels for which it lies inside the
//            image: nothing is copied where all of them do, and places that only ever see padding cost nothing
//
//   3x3, padding 1, on 2x2 pixels: the tap at the top left sees one pixel, the one in the middle sees four
//     . . . .
//     . A B .        columns: 4 rows of 9 values, 20 of 36 are padding
//     . C D .        kernel_positions:    1+2+1 + 2+4+2 + 1+2+1 = 16 rows of 1 value
//     . . . .
//
// For tensors on the CPU, without groups. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace penstock {

/// Which code computes a product.
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

/// How a window moves over an image.
struct ConvolutionGeometry {
  Extent kernel, stride, padding{0, 0}, dilation;

  /// Of the output, for an image of `image`.
  Extent output_of(const Extent& image) const;
  friend auto operator<=>(const ConvolutionGeometry&, const ConvolutionGeometry&) = default;
};

/// The weight as [out, kh, kw, in]: itself where it is in channels-last order, else a copy.
torch::Tensor as_kernel_positions(const torch::Tensor& weight);

/// y [n, out, oh, ow] of x [n, in, h, w], in channels-last order as x must be. `bias` may be undefined. `kernel` is
/// columns or kernel_positions.
torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                       const ConvolutionGeometry& moves, ConvolutionKernel kernel);

/// dx of `image`'s height and width, from dy in channels-last order, by kernel_positions.
torch::Tensor convolution_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight, const Extent& image,
                                         const ConvolutionGeometry& moves);

/// x and dy of some micro-batches, all of one shape and in channels-last order.
struct WeightProduct {
  const std::vector<torch::Tensor>& x;
  const std::vector<torch::Tensor>& dy;
};

/// Adds dw to `sum` [out, kh, kw, in], or writes it where `is_first`. `kernel` is columns or kernel_positions.
void add_convolution_weight_gradient(torch::Tensor& sum, bool is_first, const WeightProduct& product,
                                     const ConvolutionGeometry& moves, ConvolutionKernel kernel);

}  // namespace penstock
