// Batches of any shape: several or no inputs and targets, tensors without samples, and samples along another dimension.
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/model/auto_encoder.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::batch_axes_test {
namespace {

/// One step of LibTorch on the whole batch.
template <class Network>
Trained plain_step(const Values& inputs, const std::function<torch::Tensor(const Tensors&)>& loss_of) {
  Network network;
  const auto loss = [&] {
    Tensors outputs;
    for (const Value& output : network.forward_many(inputs)) outputs.push_back(output.tensor());
    return loss_of(outputs);
  };
  return train_plainly(network, loss, {.steps = 1});
}

struct Layout {
  int stages = 1;
  int replicas = 1;
  int micro_batches = 4;
  std::string schedule = "1f1b";
};

const std::vector<Layout> layouts{{1}, {2}, {3, 1, 4, "zb-h1"}, {2, 1, 4, "interleaved"}, {3, 1, 4, "gpipe"}};

PipelineOptions options_for(const Layout& layout) {
  return {.micro_batches = layout.micro_batches, .schedule = layout.schedule, .partition = "uniform"};
}

/// [T, n, 6] tokens, a [T, T] mask for all samples, and a padding mask [n, T] that only the last stage reads.
struct TimeFirst : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(6, 8); });
  Layer middle = add("middle", [] { return torch::nn::Linear(8, 8); });
  Layer low = add("low", [] { return torch::nn::Linear(8, 8); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 5); });
  Values forward_many(Values x) override {
    const Value mixed = apply(
        "mix",
        [](const Tensors& t) {
          return torch::einsum("ts,snc->tnc", {t[1], t[0]});
        },
        Values{relu(in(x[0])), x[1]});
    const Value again = apply(
        "pad", [](const Tensors& t) { return t[0] * t[1].t().unsqueeze(2); },
        Values{relu(low(relu(middle(mixed)))), x[2]});
    return {head(again), again};
  }
};

constexpr std::int64_t length = 5, samples = 11;

Tensors time_first_inputs() {
  torch::manual_seed(3);
  return {torch::randn({length, samples, 6}), torch::rand({length, length}).tril(),
          torch::rand({samples, length}).gt(0.3).to(torch::kFloat32)};
}
Tensors time_first_targets() {
  torch::manual_seed(4);
  return {torch::randint(0, 5, {length, samples}), torch::randn({samples})};
}

/// The loss of every token's class, plus that of a second target [n] against the mean feature.
torch::Tensor two_targets(const Tensors& outputs, const Tensors& targets) {
  const torch::Tensor classes =
      torch::nn::functional::cross_entropy(outputs[0].flatten(0, 1), targets[0].flatten(),
                                           torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  return classes + (outputs[1].mean({0, 2}) - targets[1]).square().sum();
}

const Loss two_targets_loss{"two_targets", two_targets};  // weighs samples

PipelineOptions time_first_options(const Layout& layout) {
  PipelineOptions options = options_for(layout);
  options.inputs = 3;
  options.batch_dims = {.inputs = {1, std::nullopt}, .targets = {1}, .outputs = {1, 1}};  // the third input: 0
  return options;
}

TEST(BatchAxes, other_sample_dimensions_and_whole_inputs_equal_the_plain_loop) {
  const Tensors inputs = time_first_inputs(), targets = time_first_targets();
  const Trained plain = plain_step<TimeFirst>({inputs[0], inputs[1], inputs[2]}, [&](const Tensors& outputs) {
    return two_targets(outputs, targets) / static_cast<double>(samples);
  });
  const double loss = plain.losses[0];
  TimeFirst alone;
  const torch::Tensor logits = alone.forward_many({inputs[0], inputs[1], inputs[2]})[0].tensor().detach();

  std::optional<StateDict> first;
  for (const Layout& layout : layouts) {
    PipelineOf<TimeFirst> pipeline({.stages = layout.stages, .replicas = layout.replicas}, time_first_options(layout),
                                   torch_sgd(0.1), two_targets_loss);
    const InferResult result = pipeline.infer(inputs);
    ASSERT_EQ(result.output().sizes(), logits.sizes());
    EXPECT_TRUE(torch::allclose(result.output(), logits, 1e-4, 1e-5));
    EXPECT_EQ(BatchShare(pipeline).samples(inputs, targets), samples);
    const Metric both{"both", [](const Tensors& outputs, const Tensors& all) {
                        EXPECT_EQ(outputs[0].size(1), all[1].size(0));
                        return static_cast<double>(all[0].numel() + all[1].numel());
                      }};
    const StepResult seen = pipeline.evaluate(inputs, targets, {both});
    EXPECT_NEAR(seen.loss(), loss, 1e-4);
    EXPECT_EQ(seen.metrics()[0], static_cast<double>(samples * (length + 1)));
    EXPECT_EQ(seen.weight(), static_cast<double>(samples));
    EXPECT_NEAR(pipeline.train_step(inputs, targets).loss(), loss, 1e-4);
    const StateDict state = pipeline.state_dict();
    expect_close(plain.state, state);
    if (!first) first = state;
    expect_same(*first, state);
  }
  for (const Layout& layout : {Layout{2, 2, 2}, {1, 3, 2}}) {
    PipelineOf<TimeFirst> pipeline({.stages = layout.stages, .replicas = layout.replicas}, time_first_options(layout),
                                   torch_sgd(0.1), two_targets_loss);
    EXPECT_TRUE(torch::allclose(pipeline.infer(inputs).output(), logits, 1e-4, 1e-5));
    EXPECT_NEAR(pipeline.train_step(inputs, targets).loss(), loss, 1e-4);
    expect_close(plain.state, pipeline.state_dict());
  }
}

TEST(BatchAxes, targets_may_be_missing) {
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({10, 6});
  const Trained plain =
      plain_step<AutoEncoder>({x}, [&](const Tensors& outputs) { return (outputs[0] - x).square().sum() / 10; });
  for (const Layout& layout : {Layout{1}, {2}, {2, 2, 2}, {2, 1, 4, "zb-h1"}}) {
    PipelineOf<AutoEncoder> pipeline({.stages = layout.stages, .replicas = layout.replicas}, options_for(layout),
                                     torch_sgd(0.1), reconstruction);
    EXPECT_NEAR(pipeline.evaluate(x, {}).loss(), plain.losses[0], 1e-5);
    const StepResult result = pipeline.train_step(x, BatchTensors::none(10));
    EXPECT_NEAR(result.loss(), plain.losses[0], 1e-5);
    EXPECT_EQ(result.weight(), 10);
    expect_close(plain.state, pipeline.state_dict());
  }
}

/// The error text of `call`, which must leave the pipeline usable.
template <class Call>
std::string told(Pipeline& pipeline, Call call) {
  const std::string text = error_text<ConfigError>([&] { call(); });
  EXPECT_NO_THROW(pipeline.evaluate(time_first_inputs(), time_first_targets()).loss());
  return text;
}

TEST(BatchAxes, misuse_throws_before_any_message_is_sent) {
  World world({.stages = 2});
  TimeFirst network;
  Pipeline pipeline(world, network, two_targets_loss, time_first_options({2}));
  Tensors inputs = time_first_inputs(), targets = time_first_targets();
  const auto evaluate = [&] { pipeline.evaluate(inputs, targets).wait(); };
  inputs[2] = torch::ones({samples - 1, length});
  EXPECT_TRUE(says(told(pipeline, evaluate), "number 0 of the inputs has 11 rows and number 2 has 10", "batch_dims"));
  inputs = time_first_inputs();
  inputs[0] = torch::ones({3});
  EXPECT_TRUE(says(told(pipeline, evaluate), "number 0 of the inputs has sizes [3]", "along dimension 1"));
  inputs = time_first_inputs();
  inputs.pop_back();
  EXPECT_TRUE(says(told(pipeline, evaluate), "takes 3 inputs, not 2"));
  inputs = time_first_inputs();
  targets[1] = torch::ones({samples + 2});
  EXPECT_TRUE(says(told(pipeline, evaluate), "number 0 of the targets has 11 rows and number 1 has 13"));
  targets = {torch::ones({length, 7}, torch::kInt64), torch::ones({7})};
  EXPECT_TRUE(says(told(pipeline, evaluate), "the inputs have 11 rows and the batch 7"));
  EXPECT_TRUE(
      says(told(pipeline, [&] { pipeline.evaluate(inputs, {}, {correct}).wait(); }), "metric 'correct'", "has none"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     PipelineOptions options;
                     options.batch_dims.inputs = {-1};
                     Pipeline(world, network, two_targets_loss, options);
                   }),
                   "dimension -1", "count dimensions from 0"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     PipelineOptions options = time_first_options({2});
                     options.batch_dims.inputs = SampleDims(4);
                     Pipeline(world, network, two_targets_loss, options);
                   }),
                   "batch_dims has 4 dimensions for inputs", "takes 3"));
  AutoEncoder small;
  Pipeline labelled(world, small, squared_error, {.partition = "uniform"});
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     labelled.evaluate(torch::ones({4, 6}), {});
                   }),
                   "'squared_error' compares with a target", "has none"));
}

TEST(BatchTensors, are_a_list_and_not_a_tensor) {
  const torch::Tensor a = torch::ones({2, 3}), b = torch::zeros({2});
  const BatchTensors none, one = a, two{a, b}, three{two, b}, same{two}, undefined = torch::Tensor();
  EXPECT_EQ(none.count(), 0u);
  EXPECT_EQ(undefined.count(), 0u);
  EXPECT_EQ(one.count(), 1u);
  EXPECT_EQ(three.count(), 3u);
  EXPECT_EQ(same.count(), 2u);
  EXPECT_TRUE(two[0].is_same(a));
  EXPECT_TRUE(two[1].is_same(b));
  EXPECT_TRUE(two.list()[1].is_same(b));
  static_assert(!std::derived_from<BatchTensors, torch::Tensor>);
  const auto use = [](const torch::Tensor& tensor) { return tensor.dim(); };
  EXPECT_EQ(use(one), 2);
  EXPECT_TRUE(says(error_text<ConfigError>([&] { use(two); }), "a list of 2 tensors", "as in [0]"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { use(none); }), "a list of 0 tensors"));
  EXPECT_EQ(error_text<ConfigError>([&] { two[2].dim(); }), "tensor 2 of a list of 2: count from 0");
  EXPECT_EQ(BatchTensors{BatchTensors::none(7)}.samples_of_none(), 7);
  BatchTensors changed = two;
  changed = b;
  EXPECT_EQ(changed.count(), 1u);
  EXPECT_EQ(two.count(), 2u);
}

TEST(BatchFunction, takes_the_first_tensor_or_all) {
  const Tensors outputs{torch::full({1}, 2), torch::full({1}, 3)}, targets{torch::full({1}, 5), torch::full({1}, 7)};
  const auto of = [&](const BatchFunction<double>& f) { return f(outputs, targets); };
  EXPECT_EQ(of([](const torch::Tensor& o, const torch::Tensor& t) { return (o * t).item<double>(); }), 10);
  EXPECT_EQ(of([](const auto& o, const auto& t) { return (o * t).template item<double>(); }), 10);
  EXPECT_EQ(of([](const Tensors& o, const torch::Tensor& t) { return (o[1] * t).item<double>(); }), 15);
  EXPECT_EQ(of([](torch::Tensor o, const Tensors& t) { return (o * t[1]).item<double>(); }), 14);
  EXPECT_EQ(of([](const Tensors& o, const Tensors& t) { return (o[1] * t[1]).item<double>(); }), 21);
  EXPECT_EQ(of([](const Tensors& o) { return o[1].item<double>(); }), 3);
  EXPECT_EQ(of([](const torch::Tensor& o) { return o.item<double>(); }), 2);
  EXPECT_FALSE(BatchFunction<double>(nullptr));
  EXPECT_FALSE(BatchFunction<double>(std::function<double(const Tensors&)>()));
  EXPECT_EQ(TargetFunction([](const torch::Tensor& t) { return t.item<double>(); })(targets), 5);
  EXPECT_EQ(TargetFunction([](const Tensors& t) { return t[1].item<double>(); })(targets), 7);
}

}  // namespace
}  // namespace penstock::test::batch_axes_test
