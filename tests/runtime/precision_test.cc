// bf16: layers compute in it, everything that is kept from step to step is fp32, and training gets as far.
#include <algorithm>

#include <ATen/autocast_mode.h>

#include "tests/runtime/trained.h"

namespace penstock::test {
namespace {

/// What type the value has that comes by.
struct Witness {
  static std::vector<torch::ScalarType>& types() {
    static std::vector<torch::ScalarType> seen;
    return seen;
  }
};

struct Classifier : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(12, 32); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})); });
  Layer hidden = add("hidden", [] { return torch::nn::Linear(32, 32); });
  Layer head = add("head", [] { return torch::nn::Linear(32, 4); });
  Value forward(Value x) override {
    x = apply("witness", [](const Tensors& v) {
      Witness::types().push_back(v[0].scalar_type());
      return v[0];
    }, {in(x)});
    return head(relu(hidden(relu(norm(x)))));
  }
};

/// A convolution, and a module that does not split.
struct Images : Cell {
  Layer conv = add("conv", [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 8, 3).padding(1)); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm2d(8); });
  Layer opaque = add("opaque", [] { return torch::nn::Sequential(torch::nn::Linear(72, 16), torch::nn::Tanh()); });
  Layer head = add("head", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override { return head(opaque(flatten(relu(norm(conv(x))), 1))); }
};

torch::Tensor rows() {
  torch::manual_seed(1);
  return torch::randn({16, 12});
}
torch::Tensor images() {
  torch::manual_seed(1);
  return torch::randn({12, 2, 3, 3});
}

PipelineOptions options_of(Precision precision) {
  PipelineOptions options;
  options.micro_batches = 4;
  options.cut = "uniform";
  options.precision = precision;
  options.seed = 3;
  return options;
}

TEST(Bf16, ComputesInBf16AndKeepsParametersInFp32) {
  Witness::types().clear();
  const Trained trained = train<Classifier>({.options = options_of(Precision::bf16)}, rows());
  EXPECT_TRUE(std::ranges::all_of(Witness::types(), [](auto type) { return type == torch::kBFloat16; }));
  for (const auto& [name, value] : trained.state) EXPECT_EQ(value.scalar_type(), torch::kFloat32) << name;
}

TEST(Bf16, StaysCloseToFp32) {
  const Trained exact = train<Classifier>({.options = options_of(Precision::fp32)}, rows());
  const Trained rounded = train<Classifier>({.options = options_of(Precision::bf16)}, rows());
  EXPECT_NE(exact.losses, rounded.losses);
  expect_close(exact, rounded, 0.02, 0.1);
  expect_close(train<Images>({.options = options_of(Precision::fp32)}, images()),
               train<Images>({.options = options_of(Precision::bf16)}, images()), 0.05, 0.1);
}

TEST(Bf16, IsTheSameForEveryCutAndScheduleAndRecompute) {
  const Trained one = train<Images>({.options = options_of(Precision::bf16)}, images());
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    for (int stages : {2, 3})
      for (bool recompute : {false, true}) {
        PipelineOptions options = options_of(Precision::bf16);
        options.schedule = schedule;
        options.recompute = recompute;
        expect_same(one, train<Images>({.stages = stages, .options = options}, images()),
                    say(schedule, " p ", stages, recompute ? " recompute" : ""));
      }
}

/// One step with plain torch under autocast: the gradients of the layers that split are those that autograd gives.
TEST(Bf16, GivesTheGradientsOfAutocast) {
  PipelineOptions options = options_of(Precision::bf16);
  options.micro_batches = 1;
  World world({.stages = 1});
  Classifier piped, plain;
  Pipeline pipeline(world, piped, cross_entropy, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1.0); });
  const auto before = pipeline.state();
  pipeline.train_step(rows(), torch::arange(16) % 4).wait();
  const auto after = pipeline.state();

  const auto parameters = plain.named_parameters(3);
  torch::Tensor output;
  {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    output = plain(Value(rows())).tensor();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  torch::nn::functional::cross_entropy(output.to(torch::kFloat32), torch::arange(16) % 4).backward();
  for (const auto& [name, value] : parameters) {
    ASSERT_TRUE(torch::equal(value, before.at(name))) << name;
    const torch::Tensor step = before.at(name) - after.at(name);
    EXPECT_LE((step - value.grad()).norm().item<double>(), 5e-3 * value.grad().norm().item<double>()) << name;
  }
}

}  // namespace
}  // namespace penstock::test
