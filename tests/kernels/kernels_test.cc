// Tuned kernels: close to LibTorch's, and bitwise the same for every partition and schedule with the same selection.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::kernels_test {
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

struct Result {
  std::vector<double> losses;
  std::map<std::string, torch::Tensor> state;
};

Result trained(const Run& run) {
  PipelineOptions options{.micro_batches = 4, .schedule = run.schedule, .weight_gradients = run.weight_gradients};
  options.kernels = run.kernels;
  if (run.kernels == Kernels::tuned) options.kernel_selection = mixed_selection();
  PipelineOf<Network> pipeline({.stages = run.stages}, options, torch_sgd(0.05));
  Result result;
  const auto [images, labels] = batch();
  for (int step = 0; step < 3; ++step) result.losses.push_back(pipeline.train_step(images, labels).loss());
  result.state = pipeline.state();
  return result;
}

TEST(TunedKernels, are_the_same_for_every_partition_and_schedule) {
  for (const auto mode : {WeightGradients::stream, WeightGradients::fused}) {
    const Result alone = trained({.weight_gradients = mode});
    for (const int stages : {2, 3})
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v", "interleaved"}) {
        const Result piped = trained({stages, schedule, mode});
        EXPECT_EQ(piped.losses, alone.losses) << schedule << " on " << stages;
        for (const auto& [name, value] : alone.state) EXPECT_TRUE(torch::equal(piped.state.at(name), value)) << name;
      }
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
      PipelineOptions options{.micro_batches = 1};
      options.kernels = kernels;
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
  const Result fixed = trained({.kernels = Kernels::fixed});
  for (const auto mode : {WeightGradients::stream, WeightGradients::fused}) {
    const Result tuned = trained({.weight_gradients = mode});
    for (std::size_t step = 0; step < fixed.losses.size(); ++step)
      EXPECT_NEAR(tuned.losses[step], fixed.losses[step], 1e-4);
    for (const auto& [name, value] : fixed.state)
      EXPECT_TRUE(torch::allclose(tuned.state.at(name), value, 1e-3, 1e-4)) << name;
  }
}

TEST(TunedKernels, are_chosen_on_a_sample_for_all_ranks) {
  Network network;
  World world({.stages = 2});
  PipelineOptions options{.micro_batches = 4, .partition = "time"};
  options.kernels = Kernels::tuned;
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

}  // namespace
}  // namespace penstock::test::kernels_test
