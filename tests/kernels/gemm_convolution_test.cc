// Convolutions as products compared with LibTorch's, in double precision, for any kernel, stride, padding and dilation.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"

namespace penstock::test::gemm_convolution_test {
namespace {

struct Case {
  std::int64_t in = 1, out = 1;
  Extent image;
  ConvolutionGeometry geometry;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Extent image : {Extent{1, 1}, {2, 2}, {3, 5}, {8, 7}})
    for (const std::int64_t side : {1, 3, 4})
      for (const std::int64_t stride : {1, 2, 3})
        for (const std::int64_t padding : {0, 1, 2})
          for (const std::int64_t dilation : {1, 2}) {
            const Case one{3, 5, image, {{side, side}, {stride, stride}, {padding, padding}, {dilation, dilation}}};
            const Extent out = one.geometry.output_of(image);
            const bool fits = image.height + 2 * padding >= dilation * (side - 1) + 1 &&
                              image.width + 2 * padding >= dilation * (side - 1) + 1;
            if (fits && out.height > 0 && out.width > 0) all.push_back(one);
          }
  all.push_back({4, 6, {6, 9}, {{2, 3}, {1, 2}, {1, 0}, {2, 1}}});
  return all;
}

std::vector<std::int64_t> both(const Extent& extent) { return {extent.height, extent.width}; }

torch::Tensor channels_last(const torch::Tensor& tensor) { return tensor.contiguous(at::MemoryFormat::ChannelsLast); }

class GemmConvolution : public testing::TestWithParam<ConvolutionKernel> {};

TEST_P(GemmConvolution, equals_torch) {
  for (const Case& one : cases()) {
    torch::manual_seed(1);
    const auto real = torch::TensorOptions(torch::kFloat64);
    const torch::Tensor x = channels_last(torch::randn({3, one.in, one.image.height, one.image.width}, real));
    const torch::Tensor weight =
        channels_last(torch::randn({one.out, one.in, one.geometry.kernel.height, one.geometry.kernel.width}, real));
    const torch::Tensor bias = torch::randn({one.out}, real);
    const std::vector<std::int64_t> none{0, 0};
    const torch::Tensor y = at::convolution(x, weight, bias, both(one.geometry.stride), both(one.geometry.padding),
                                            both(one.geometry.dilation), false, none, 1);
    const torch::Tensor dy = channels_last(torch::randn_like(y));
    const auto [dx, dw, db] = at::convolution_backward(
        dy, x, weight, at::OptionalIntArrayRef(), both(one.geometry.stride), both(one.geometry.padding),
        both(one.geometry.dilation), false, none, 1, {true, true, false});
    const std::string place = say("image ", one.image.height, "x", one.image.width, ", window ",
                                  one.geometry.kernel.height, ", stride ", one.geometry.stride.height, ", padding ",
                                  one.geometry.padding.height, ", dilation ", one.geometry.dilation.height);
    EXPECT_TRUE(torch::allclose(convolve(x, weight, bias, one.geometry, GetParam()), y)) << place;
    EXPECT_TRUE(torch::allclose(convolution_input_gradient(dy, weight, one.image, one.geometry), dx)) << place;
    torch::Tensor sum = torch::full(weight.permute({0, 2, 3, 1}).sizes(), std::nan(""), real);
    add_convolution_weight_gradient(sum, /*is_first=*/true, {{x}, {dy}}, one.geometry, GetParam());
    EXPECT_TRUE(torch::allclose(sum.permute({0, 3, 1, 2}), dw)) << place;
    add_convolution_weight_gradient(sum, /*is_first=*/false, {{x, x}, {dy, dy}}, one.geometry, GetParam());
    EXPECT_TRUE(torch::allclose(sum.permute({0, 3, 1, 2}), 3 * dw)) << place;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, GemmConvolution,
                         testing::Values(ConvolutionKernel::columns, ConvolutionKernel::kernel_positions),
                         [](const auto& tested) {
                           return tested.param == ConvolutionKernel::kernel_positions ? "taps" : "columns";
                         });

}  // namespace
}  // namespace penstock::test::gemm_convolution_test
