// Tuned kernels: close to LibTorch's, and bitwise the same for every partition and schedule with the same selection.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/kernels/no_pack_linear.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::kernels_test {
using namespace kernels;
namespace {

auto convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride) {
  return [=] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2)); };
}

/// Every kind of layer that kernels are tuned for, and layers between them that depend on the memory order.
struct Network : Cell {
  Layer first = add("first", convolution(3, 8, 3, 1));
  Layer norm = add("norm", [] { return torch::nn::BatchNorm2d(8); });
  Layer half = add("half", convolution(8, 16, 3, 2));
  Layer point = add("point", convolution(16, 12, 1, 1));
  Layer small = add("small", convolution(12, 12, 3, 2));
  Layer wide = add("wide", [] { return torch::nn::Linear(48, 40); });
  Layer gelu = add("gelu", [] { return torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")); });
  Layer deep = add("deep", [] { return torch::nn::Linear(torch::nn::LinearOptions(40, 40).bias(false)); });
  Layer last = add("last", [] { return torch::nn::Linear(40, 5); });

  Value forward(Value x) override {
    x = relu(norm(first(x)));
    x = small(relu(point(half(x))));
    return last(relu(deep(gelu(wide(flatten(x, 1))))));
  }
};

struct Batch {
  torch::Tensor images, labels;
};

Batch batch() {
  torch::manual_seed(7);
  return {torch::randn({12, 3, 6, 6}), torch::randint(0, 5, {12}, torch::kInt64)};
}

/// A selection that contains each kernel for some product, independent of speed.
std::string mixed_selection() {
  KernelSelection selection = KernelSelection::tuned();
  const ConvolutionGeometry same{{3, 3}, {1, 1}, {1, 1}, {1, 1}}, halving{{3, 3}, {2, 2}, {1, 1}, {1, 1}};
  const ConvolutionShape first{3, 8, {6, 6}, same}, half{8, 16, {6, 6}, halving}, small{12, 12, {3, 3}, halving};
  selection.choose(first, Product::forward, ConvolutionKernel::columns);
  selection.choose(first, Product::weight_grad, ConvolutionKernel::columns);
  selection.choose(half, Product::forward, ConvolutionKernel::kernel_positions);
  selection.choose(half, Product::input_grad, ConvolutionKernel::kernel_positions);
  selection.choose(small, Product::weight_grad, ConvolutionKernel::kernel_positions);
  selection.choose(LinearShape{48, 40}, LinearKernel::bias_apart);
  if (has_kernel(LinearKernel::no_pack)) {
    selection.choose(LinearShape{40, 40}, LinearKernel::no_pack);
    selection.choose(LinearShape{40, 5}, LinearKernel::no_pack);
  }
  return selection.to_text();
}

struct Run {
  int stages = 1;
  std::string schedule = "1f1b";
  WeightGradients weight_gradients = WeightGradients::stream;
  Kernels kernels = Kernels::tuned;
};

Trained trained(const Run& run) {
  PipelineOptions options{
      .micro_batches = 4, .schedule = run.schedule, .weight_gradients = run.weight_gradients, .kernels = run.kernels};
  if (run.kernels == Kernels::tuned) options.kernel_selection = mixed_selection();
  PipelineOf<Network> pipeline({.stages = run.stages}, options, torch_sgd(0.05));
  Trained result;
  const auto [images, labels] = batch();
  for (int step = 0; step < 3; ++step) result.losses.push_back(pipeline.train_step(images, labels).loss());
  result.state = pipeline.state_dict();
  return result;
}

TEST(TunedKernels, are_the_same_for_every_partition_and_schedule) {
  for (const auto mode : {WeightGradients::stream, WeightGradients::fused}) {
    const Trained alone = trained({.weight_gradients = mode});
    for (const int stages : {2, 3})
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v", "interleaved"})
        expect_same(alone, trained({stages, schedule, mode}), say(schedule, " on ", stages));
  }
}

/// How often each operation runs.
class CountedOperations {
 public:
  CountedOperations() {
    counts().clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                      const std::lock_guard lock(mutex());
                                      ++counts()[function.name()];
                                      return std::unique_ptr<at::ObserverContext>();
                                    }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CountedOperations() { at::removeCallback(handle_); }
  int of(const std::string& name) const {
    const std::lock_guard lock(mutex());
    const auto found = counts().find(name);
    return found == counts().end() ? 0 : found->second;
  }

 private:
  static std::map<std::string, int>& counts() {
    static std::map<std::string, int> all;
    return all;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  at::CallbackHandle handle_;
};

// Evaluation and inference run the same kernels as training: the library computes two of the four convolutions.
TEST(TunedKernels, are_used_in_evaluation_and_inference) {
  const auto [images, labels] = batch();
  std::vector<int> convolutions;
  for (const Kernels kernels : {Kernels::fixed, Kernels::tuned})
    for (const bool infers : {false, true}) {
      PipelineOptions options{.micro_batches = 1, .kernels = kernels};
      if (kernels == Kernels::tuned) options.kernel_selection = mixed_selection();
      PipelineOf<Network> pipeline({.stages = 2}, options);
      const CountedOperations counted;
      if (infers)
        pipeline.infer(images).wait();
      else
        pipeline.evaluate(images, labels).wait();
      convolutions.push_back(counted.of("aten::conv2d"));
    }
  EXPECT_EQ(convolutions, (std::vector<int>{4, 4, 2, 2}));
}

TEST(TunedKernels, are_close_to_fixed_ones) {
  const Trained fixed = trained({.kernels = Kernels::fixed});
  for (const auto mode : {WeightGradients::stream, WeightGradients::fused}) {
    const Trained tuned = trained({.weight_gradients = mode});
    for (std::size_t step = 0; step < fixed.losses.size(); ++step)
      EXPECT_NEAR(tuned.losses[step], fixed.losses[step], 1e-4);
    for (const auto& [name, value] : fixed.state.pairs())
      EXPECT_TRUE(torch::allclose(tuned.state[name], value, 1e-3, 1e-4)) << name;
  }
}

TEST(TunedKernels, are_chosen_on_a_sample_for_all_ranks) {
  Network network;
  World world({.stages = 2});
  PipelineOptions options{.micro_batches = 4, .kernels = Kernels::tuned, .partition = "time"};
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, network, cross_entropy, options); }), "autotune()"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { autotune(world, network, cross_entropy, options, {}); }),
                   "AutotuneOptions::sample"));
  World another({.stages = 2});
  const torch::Tensor images = batch().images;
  torch::manual_seed(11);
  const torch::Tensor next = torch::rand({4});
  torch::manual_seed(11);
  options = autotune(another, network, cross_entropy, options, {.sample = images});
  Pipeline pipeline(another, network, cross_entropy, options);
  EXPECT_TRUE(torch::equal(torch::rand({4}), next)) << "one process measures: the others' generators stand still";
  const std::string selection = pipeline.options().kernel_selection;
  EXPECT_TRUE(test::says(selection, "convolution 3 8 6 6 3 3 1 1 1 1 1 1 forward ", "linear 48 40 ")) << selection;
}

TEST(Gelu, equals_torch_and_its_derivative) {
  const torch::Tensor x = torch::cat({torch::linspace(-12, 12, 10001), torch::tensor({-1e4F, 1e4F, 0.0F})});
  const torch::Tensor y = gelu_of(x), dx = gelu_input_gradient(x, torch::ones_like(x));
  const torch::Tensor exact = x.to(torch::kFloat64).requires_grad_();
  const torch::Tensor wanted = torch::gelu(exact, "tanh");
  EXPECT_TRUE(torch::allclose(y.to(torch::kFloat64), wanted, 2e-6, 1e-7));
  const auto derivative = torch::autograd::grad({wanted.sum()}, {exact}).front();
  EXPECT_TRUE(torch::allclose(dx.to(torch::kFloat64), derivative, 1e-5, 3e-6));
}

/// BLIS's products, for every memory order that a layer may receive.
TEST(NoPackLinear, equals_torch) {
  if (!has_no_pack_linear()) {
    EXPECT_THROW(no_pack_linear({}, {}, {}), InternalError);
    GTEST_SKIP() << "built without BLIS";
  }
  torch::manual_seed(1);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{16, 64}, {1, 64}, {64}, {3, 5, 64}, {7, 1, 64}})
    for (const std::int64_t out : {1, 10, 48, 257})
      for (const bool is_arranged : {false, true}) {
        torch::Tensor x = torch::randn(sizes), dy = torch::randn_like(torch::linear(x, torch::empty({out, 64})));
        const torch::Tensor weight = torch::randn({out, 64}), bias = torch::randn({out});
        const torch::Tensor y = torch::linear(x, weight, bias), plain = torch::linear(x, weight);
        const torch::Tensor dx = dy.matmul(weight);
        if (is_arranged) {
          x = feature_by_feature(x);
          dy = feature_by_feature(dy);
        }
        EXPECT_TRUE(torch::allclose(no_pack_linear(x, weight, bias), y, 1e-4, 1e-4)) << x.sizes() << " " << out;
        EXPECT_TRUE(torch::allclose(no_pack_linear(x, weight, {}), plain, 1e-4, 1e-4)) << x.sizes() << " " << out;
        EXPECT_TRUE(torch::allclose(no_pack_input_gradient(dy, weight), dx, 1e-4, 1e-4)) << x.sizes() << " " << out;
      }
}

TEST(FeatureByFeature, copies_only_tensors_of_another_layout) {
  const torch::Tensor x = torch::randn({3, 5, 8});
  const torch::Tensor moved = feature_by_feature(x);
  EXPECT_TRUE(torch::equal(moved, x));
  EXPECT_EQ(moved.reshape({15, 8}).stride(0), 1);
  EXPECT_TRUE(feature_by_feature(moved).is_alias_of(moved));
  if (has_no_pack_linear()) {
    const torch::Tensor y = no_pack_linear(x, torch::randn({4, 8}), {});
    EXPECT_TRUE(feature_by_feature(y).is_alias_of(y));
  }
}

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

/// Convolutions as products, for any window, stride, padding and dilation.
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
}  // namespace penstock::test::kernels_test
