// bf16 and fp16: layers compute in the precision, the state between steps is fp32, and training reaches the same loss.
#include <algorithm>
#include <mutex>
#include <utility>

#include <ATen/autocast_mode.h>

#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::precision_test {
namespace {

/// The types of the inputs of "witness", which several ranks call at a time.
struct Witness {
  static void add(torch::ScalarType type) {
    const std::lock_guard lock(mutex());
    seen().push_back(type);
  }
  static std::vector<torch::ScalarType> take() {
    const std::lock_guard lock(mutex());
    return std::exchange(seen(), {});
  }

 private:
  static std::mutex& mutex() {
    static std::mutex of_all;
    return of_all;
  }
  static std::vector<torch::ScalarType>& seen() {
    static std::vector<torch::ScalarType> types;
    return types;
  }
};

struct Classifier : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(12, 32); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})); });
  Layer hidden = add("hidden", [] { return torch::nn::Linear(32, 32); });
  Layer head = add("head", [] { return torch::nn::Linear(32, 4); });
  Value forward(Value x) override {
    x = apply("witness",
              [](const Tensors& v) {
                Witness::add(v[0].scalar_type());
                return v[0];
              },
              {in(x)});
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
  return {.micro_batches = 4, .precision = precision, .partition = "uniform", .seed = 3};
}

class Precisions : public testing::TestWithParam<Precision> {};

INSTANTIATE_TEST_SUITE_P(Half, Precisions, testing::Values(Precision::bf16, Precision::fp16),
                         [](const auto& one) { return one.param == Precision::bf16 ? "bf16" : "fp16"; });

TEST_P(Precisions, compute_in_their_type_and_keep_parameters_in_fp32) {
  Witness::take();
  const Trained trained = train<Classifier>({.options = options_of(GetParam())}, rows());
  const std::vector<torch::ScalarType> types = Witness::take();
  EXPECT_GT(types.size(), 0U);
  const torch::ScalarType expected = GetParam() == Precision::bf16 ? torch::kBFloat16 : torch::kFloat16;
  EXPECT_TRUE(std::ranges::all_of(types, [&](auto type) { return type == expected; }));
  for (const auto& [name, value] : trained.state.pairs()) EXPECT_EQ(value.scalar_type(), torch::kFloat32) << name;
}

TEST_P(Precisions, stay_close_to_fp32) {
  const Trained exact = train<Classifier>({.options = options_of(Precision::fp32)}, rows());
  const Trained rounded = train<Classifier>({.options = options_of(GetParam())}, rows());
  EXPECT_NE(exact.losses, rounded.losses);
  const bool is_bf16 = GetParam() == Precision::bf16;
  expect_close(exact, rounded, is_bf16 ? 0.02 : 0.005, 0.1);
  expect_close(train<Images>({.options = options_of(Precision::fp32)}, images()),
               train<Images>({.options = options_of(GetParam())}, images()), is_bf16 ? 0.05 : 0.01, 0.1);
}

TEST(Bf16, is_the_same_for_every_partition_and_schedule_and_with_recompute) {
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

/// One step of plain torch under autocast: the gradients of layers that split equal autograd's.
TEST(Bf16, has_the_gradients_of_autocast) {
  PipelineOptions options = options_of(Precision::bf16);
  options.micro_batches = 1;
  World world({.stages = 1});
  Classifier piped, plain;
  Pipeline pipeline(world, piped, cross_entropy, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1.0); });
  const auto before = pipeline.state_dict();
  pipeline.train_step(rows(), torch::arange(16) % 4).wait();
  const auto after = pipeline.state_dict();

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
    ASSERT_TRUE(torch::equal(value, before[name])) << name;
    const torch::Tensor step = before[name] - after[name];
    EXPECT_LE((step - value.grad()).norm().item<double>(), 5e-3 * value.grad().norm().item<double>()) << name;
  }
}

struct Scaled : Trained {
  std::vector<bool> skipped;
};

struct ScaledCase {
  std::string schedule = "1f1b";
  int stages = 1;
  int replicas = 1;
  bool in_parts = false;
  std::optional<double> clip_norm = std::nullopt;
  double initial = 16777216;  // too large for fp16: the first updates are skipped
  int growth_steps = 3;
  bool recompute = false;
};

Scaled train_scaled(const ScaledCase& one) {
  PipelineOptions options = options_of(Precision::fp16);
  options.schedule = one.schedule;
  options.micro_batches = 4 / one.replicas;
  options.clip_norm = one.clip_norm;
  options.recompute = one.recompute;
  options.loss_scaling = {.initial = one.initial, .growth_steps = one.growth_steps};
  PipelineOf<Classifier> pipeline({.stages = one.stages, .replicas = one.replicas}, options, torch_sgd(0.1));
  const torch::Tensor inputs = rows() * 8, targets = torch::arange(16) % 4;
  Scaled outcome;
  StateDict before = pipeline.state_dict();
  for (int step = 0; step < 14; ++step) {
    const StepResult result =
        one.in_parts ? pipeline.forward_backward(inputs, targets) : pipeline.train_step(inputs, targets);
    if (one.in_parts) pipeline.step();
    outcome.losses.push_back(result.loss());
    outcome.skipped.push_back(result.update_skipped());
    StateDict after = pipeline.state_dict();
    EXPECT_EQ(torch::equal(before["head.weight"], after["head.weight"]), outcome.skipped.back());
    before = std::move(after);
  }
  outcome.state = pipeline.state_dict();
  return outcome;
}

TEST(Fp16, skips_updates_until_the_scale_fits_and_then_trains) {
  const Scaled run = train_scaled({});
  EXPECT_TRUE(run.skipped.front());
  EXPECT_GT(std::ranges::count(run.skipped, false), 5);
  EXPECT_LT(run.losses.back(), 0.95 * run.losses.front());
  for (const auto& [name, value] : run.state.pairs()) EXPECT_TRUE(value.isfinite().all().item<bool>()) << name;
  // Once the scale fits, it grows until it does not.
  const auto first_good = std::ranges::find(run.skipped, false);
  EXPECT_NE(std::find(first_good, run.skipped.end(), true), run.skipped.end());
}

TEST(Fp16, skips_the_same_steps_with_the_same_bits_for_every_partition_and_schedule) {
  for (const std::optional<double> clip : {std::optional<double>(), std::optional<double>(0.3)}) {
    const Scaled alone = train_scaled({.clip_norm = clip});
    const auto expect_equal = [&](const ScaledCase& one) {
      const Scaled other = train_scaled(one);
      const std::string what = say(one.schedule, " p ", one.stages, one.in_parts ? " in parts" : "");
      expect_same(alone, other, what);
      EXPECT_EQ(alone.skipped, other.skipped) << what;
    };
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v"})
      expect_equal({.schedule = schedule, .stages = 2, .clip_norm = clip});
    expect_equal({.stages = 3, .in_parts = true, .clip_norm = clip});
    expect_equal({.schedule = "zb-h1", .stages = 3, .clip_norm = clip, .recompute = true});
  }
  const Scaled replicas = train_scaled({.replicas = 2}), partition = train_scaled({.stages = 2, .replicas = 2});
  EXPECT_EQ(replicas.losses, partition.losses);
  EXPECT_EQ(replicas.skipped, partition.skipped);
}

// With a suitable scale fp16 is close to fp32, also in local_gradients().
TEST(Fp16, returns_gradients_without_the_scale) {
  StateDict gradients[2];
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    PipelineOptions options = options_of(precision);
    options.loss_scaling.initial = 1024;
    PipelineOf<Classifier> pipeline({.stages = 2}, options, torch_sgd(0.1));
    EXPECT_FALSE(pipeline.train_step(rows(), torch::arange(16) % 4).update_skipped());
    pipeline.forward_backward(rows(), torch::arange(16) % 4);
    gradients[precision == Precision::fp16] = pipeline.local_gradients();
    pipeline.step();
  }
  for (const auto& [name, exact] : gradients[0].pairs())
    EXPECT_LE((exact - gradients[1][name]).norm().item<double>(), 0.02 * exact.norm().item<double>()) << name;
}

TEST(Fp16, rejects_a_scale_that_is_not_a_power_of_two) {
  World world({.stages = 1});
  Classifier network;
  PipelineOptions options = options_of(Precision::fp16);
  options.loss_scaling.initial = 1000;
  EXPECT_THROW(Pipeline(world, network, cross_entropy, options), ConfigError);
}

}  // namespace
}  // namespace penstock::test::precision_test
