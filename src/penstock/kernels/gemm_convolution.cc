// Convolutions as matrix products over images in the layout [n, height, width, channels], for micro-batches: many
// channels and small images, for which a library's own kernels are slow.
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
#include <algorithm>
#include <cstring>

#include <ATen/Dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "penstock/base/error.h"
#include "penstock/kernels/add_product.h"
#include "penstock/kernels/cpu_kernels.h"

namespace penstock::kernels {
namespace {

/// Every step-th pixel of a rectangle.
struct Grid {
  std::int64_t top = 0, left = 0;
  Extent size, step;

  bool covers(const torch::Tensor& image) const {
    return top == 0 && left == 0 && size.height == image.size(1) && size.width == image.size(2) && step == Extent{1, 1};
  }
  std::int64_t pixels() const { return size.height * size.width; }
};

/// One position of the window: the output pixels for which it lies inside the image, and the image pixels it covers.
struct WindowPosition {
  std::int64_t row = 0, column = 0;
  Grid out, in;
};

/// The output positions [first, end) along one side for which the window's position `offset` lies inside the image.
struct Run {
  std::int64_t first = 0, end = 0;
};

Run inside(std::int64_t image, std::int64_t outputs, std::int64_t stride, std::int64_t offset) {
  const std::int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int64_t end = image > offset ? std::min(outputs, (image - 1 - offset) / stride + 1) : 0;
  return {first, std::max(first, end)};
}

std::vector<WindowPosition> live_positions(const Extent& image, const ConvolutionGeometry& geometry) {
  const Extent out = geometry.output_of(image);
  std::vector<WindowPosition> kernel_positions;
  for (std::int64_t a = 0; a < geometry.kernel.height; ++a)
    for (std::int64_t b = 0; b < geometry.kernel.width; ++b) {
      const std::int64_t down = a * geometry.dilation.height - geometry.padding.height;
      const std::int64_t right = b * geometry.dilation.width - geometry.padding.width;
      const Run rows = inside(image.height, out.height, geometry.stride.height, down);
      const Run columns = inside(image.width, out.width, geometry.stride.width, right);
      const Extent size{rows.end - rows.first, columns.end - columns.first};
      if (size.height == 0 || size.width == 0) continue;
      kernel_positions.push_back({a,
                                  b,
                                  {rows.first, columns.first, size, {1, 1}},
                                  {rows.first * geometry.stride.height + down,
                                   columns.first * geometry.stride.width + right, size, geometry.stride}});
    }
  return kernel_positions;
}

torch::Tensor channels_inside(const torch::Tensor& image) {
  const torch::Tensor pixels = image.permute({0, 2, 3, 1});
  require<InternalError>(pixels.is_contiguous(), "a convolution by products wants images in channels-last order");
  return pixels;
}

Extent extent_of(const torch::Tensor& pixels) { return {pixels.size(1), pixels.size(2)}; }

/// Calls `at(pixel of the image, index among the grid's pixels)` for the first pixel of each row of the grid.
template <class At>
void for_each_row(const torch::Tensor& image, const Grid& grid, At&& at) {
  std::int64_t number = 0;
  for (std::int64_t n = 0; n < image.size(0); ++n)
    for (std::int64_t y = 0; y < grid.size.height; ++y, number += grid.size.width)
      at((n * image.size(1) + grid.top + y * grid.step.height) * image.size(2) + grid.left, number);
}

/// The grid's pixels of all images as rows: [n * pixels, channels].
torch::Tensor gathered(const torch::Tensor& image, const Grid& grid) {
  const std::int64_t channels = image.size(3);
  if (grid.covers(image)) return image.view({-1, channels});
  torch::Tensor rows = torch::empty({image.size(0) * grid.pixels(), channels}, image.options());
  const std::size_t bytes = static_cast<std::size_t>(channels) * image.element_size();
  const auto* from = static_cast<const char*>(image.const_data_ptr());
  auto* to = static_cast<char*>(rows.mutable_data_ptr());
  for_each_row(image, grid, [&](std::int64_t pixel, std::int64_t number) {
    for (std::int64_t x = 0; x < grid.size.width; ++x)
      std::memcpy(to + static_cast<std::size_t>(number + x) * bytes,
                  from + static_cast<std::size_t>(pixel + x * grid.step.width) * bytes, bytes);
  });
  return rows;
}

/// Adds rows [n * pixels, channels] to the grid's pixels.
void scatter_add(torch::Tensor& image, const Grid& grid, const torch::Tensor& rows) {
  const std::int64_t channels = image.size(3);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, image.scalar_type(), "scatter_add", [&] {
    const auto* from = rows.const_data_ptr<scalar_t>();
    auto* to = image.mutable_data_ptr<scalar_t>();
    for_each_row(image, grid, [&](std::int64_t pixel, std::int64_t number) {
      for (std::int64_t x = 0; x < grid.size.width; ++x) {
        scalar_t* sum = to + (pixel + x * grid.step.width) * channels;
        const scalar_t* term = from + (number + x) * channels;
        for (std::int64_t c = 0; c < channels; ++c) sum[c] += term[c];
      }
    });
  });
}

/// Sums products into an image, each over a grid of its pixels.
class Accumulator {
 public:
  Accumulator(at::IntArrayRef sizes, const at::TensorOptions& options) : image_(torch::empty(sizes, options)) {}

  void add(const Grid& grid, const torch::Tensor& a, const torch::Tensor& b) {
    if (!grid.covers(image_)) {
      if (!is_written_) image_.zero_();
      scatter_add(image_, grid, torch::mm(a, b));
    } else {
      torch::Tensor all = image_.view({-1, image_.size(3)});
      if (is_written_)
        all.addmm_(a, b);
      else
        at::mm_out(all, a, b);
    }
    is_written_ = true;
  }

  /// The image [n, channels, height, width] in channels-last order.
  torch::Tensor finish() {
    if (!is_written_) image_.zero_();
    return image_.permute({0, 3, 1, 2});
  }

 private:
  torch::Tensor image_;
  bool is_written_ = false;
};

/// `kernel_positions` with those first that cover every pixel: they overwrite, so that no zeros have to be written.
std::vector<WindowPosition> full_ones_first(std::vector<WindowPosition> kernel_positions, const torch::Tensor& target,
                                            Grid WindowPosition::*grid) {
  std::stable_partition(kernel_positions.begin(), kernel_positions.end(),
                        [&](const WindowPosition& position) { return (position.*grid).covers(target); });
  return kernel_positions;
}

/// im2col: rows of kh*kw*in values, one for each output pixel; zeros where the window leaves the image.
torch::Tensor columns_of(const torch::Tensor& x, const ConvolutionGeometry& geometry) {
  const Extent out = geometry.output_of(extent_of(x));
  const std::int64_t channels = x.size(3), places = geometry.kernel.height * geometry.kernel.width;
  const std::vector<WindowPosition> kernel_positions = live_positions(extent_of(x), geometry);
  if (places == 1 && kernel_positions.size() == 1 && kernel_positions.front().out.size == out)
    return gathered(x, kernel_positions.front().in);
  bool is_padded = kernel_positions.size() < static_cast<std::size_t>(places);
  for (const WindowPosition& position : kernel_positions) is_padded |= position.out.size != out;
  const std::vector<std::int64_t> sizes{x.size(0) * out.height * out.width, places * channels};
  torch::Tensor rows = is_padded ? torch::zeros(sizes, x.options()) : torch::empty(sizes, x.options());
  const std::size_t bytes = static_cast<std::size_t>(channels) * x.element_size();
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(rows.mutable_data_ptr());
  for (std::int64_t n = 0; n < x.size(0); ++n)
    for (const WindowPosition& position : kernel_positions)
      for (std::int64_t i = 0; i < position.out.size.height; ++i)
        for (std::int64_t j = 0; j < position.out.size.width; ++j) {
          const std::int64_t pixel = (n * x.size(1) + position.in.top + i * position.in.step.height) * x.size(2) +
                                     position.in.left + j * position.in.step.width;
          const std::int64_t row = (n * out.height + position.out.top + i) * out.width + position.out.left + j;
          std::memcpy(
              to + static_cast<std::size_t>(row * places + position.row * geometry.kernel.width + position.column) *
                       bytes,
              from + static_cast<std::size_t>(pixel) * bytes, bytes);
        }
  return rows;
}

/// The weight [out, in, kh, kw] as [out, kh, kw, in]: a view where it is in channels-last order, otherwise a copy.
torch::Tensor as_kernel_positions(const torch::Tensor& weight) { return weight.permute({0, 2, 3, 1}).contiguous(); }

torch::Tensor weights_at(const torch::Tensor& kernel_positions, const WindowPosition& position) {
  return kernel_positions.select(1, position.row).select(1, position.column);
}

torch::Tensor below_each_other(const std::vector<torch::Tensor>& images) {
  if (images.size() == 1) return channels_inside(images.front());
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& image : images) all.push_back(channels_inside(image));
  return torch::cat(all);
}

}  // namespace

torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                       const ConvolutionGeometry& geometry, ConvolutionKernel kernel) {
  const torch::Tensor image = channels_inside(x), kernel_positions = as_kernel_positions(weight);
  const Extent out = geometry.output_of(extent_of(image));
  const std::int64_t channels = kernel_positions.size(0);
  if (kernel == ConvolutionKernel::columns) {
    const torch::Tensor rows = columns_of(image, geometry), matrix = kernel_positions.view({channels, -1}).t();
    const torch::Tensor y = bias.defined() ? torch::addmm(bias, rows, matrix) : torch::mm(rows, matrix);
    return y.view({image.size(0), out.height, out.width, channels}).permute({0, 3, 1, 2});
  }
  Accumulator y({image.size(0), out.height, out.width, channels}, image.options());
  const torch::Tensor target = torch::empty({0, out.height, out.width, 0});
  for (const WindowPosition& position :
       full_ones_first(live_positions(extent_of(image), geometry), target, &WindowPosition::out))
    y.add(position.out, gathered(image, position.in), weights_at(kernel_positions, position).t());
  torch::Tensor whole = y.finish();
  return bias.defined() ? whole.add_(bias.view({1, -1, 1, 1})) : whole;
}

torch::Tensor convolution_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight, const Extent& image,
                                         const ConvolutionGeometry& geometry) {
  const torch::Tensor gradient = channels_inside(dy), kernel_positions = as_kernel_positions(weight);
  Accumulator dx({gradient.size(0), image.height, image.width, kernel_positions.size(3)}, gradient.options());
  const torch::Tensor target = torch::empty({0, image.height, image.width, 0});
  for (const WindowPosition& position : full_ones_first(live_positions(image, geometry), target, &WindowPosition::in))
    dx.add(position.in, gathered(gradient, position.out), weights_at(kernel_positions, position));
  return dx.finish();
}

void add_convolution_weight_gradient(torch::Tensor& sum, bool is_first, const WeightProduct& product,
                                     const ConvolutionGeometry& geometry, ConvolutionKernel kernel) {
  const torch::Tensor x = below_each_other(product.x), dy = below_each_other(product.dy);
  const std::int64_t channels = sum.size(0);
  if (kernel == ConvolutionKernel::columns)
    return add_product_to(sum.view({channels, -1}), is_first, dy.view({-1, channels}).t(), columns_of(x, geometry));
  const std::vector<WindowPosition> kernel_positions = live_positions(extent_of(x), geometry);
  if (is_first && kernel_positions.size() < static_cast<std::size_t>(geometry.kernel.height * geometry.kernel.width))
    sum.zero_();
  for (const WindowPosition& position : kernel_positions)
    add_product_to(weights_at(sum, position), is_first, gathered(dy, position.out).t(), gathered(x, position.in));
}

}  // namespace penstock::kernels
