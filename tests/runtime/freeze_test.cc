// Frozen parameters: they do not change, and no gradients are computed or sent for them; frozen from the start or
// later.
#include "penstock/pipeline/profiler.h"
#include "tests/base/error_text.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::freeze_test {
namespace {

struct Three : Cell {
  explicit Three(bool is_frozen = false)
      : first(add("first", [is_frozen] {
          torch::nn::Linear linear(8, 8);
          for (torch::Tensor& parameter : linear->parameters()) parameter.set_requires_grad(!is_frozen);
          return linear;
        })) {}
  Layer first;
  Layer second = add("second", [] { return torch::nn::Linear(8, 8); });
  Layer third = add("third", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override { return third(relu(second(relu(first(x))))); }
};

struct FrozenFirst : Three {
  FrozenFirst() : Three(true) {}
};

torch::Tensor rows() {
  torch::manual_seed(1);
  return torch::randn({8, 8});
}
torch::Tensor targets() { return torch::arange(8) % 4; }

PipelineOptions options_of(const std::string& schedule) {
  return {.micro_batches = 2, .schedule = schedule, .partition = "second,third", .seed = 3};
}

std::string instructions_of(const Pipeline& pipeline) { return write_schedule(pipeline.schedule()); }

/// `steps` steps with momentum and weight decay, which would change even parameters with a gradient of zero.
void run(Pipeline& pipeline, int steps) {
  for (int step = 0; step < steps; ++step) pipeline.train_step(rows(), targets()).wait();
}

void optimize(Pipeline& pipeline) {
  pipeline.optimize_with(sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = false}));
}

TEST(FrozenParameters, frozen_from_the_start_do_not_change) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    PipelineOf<FrozenFirst> pipeline({.stages = 3}, options_of(schedule));
    optimize(pipeline);
    const auto before = pipeline.state_dict();
    run(pipeline, 3);
    const auto after = pipeline.state_dict();
    EXPECT_TRUE(torch::equal(before["first.weight"], after["first.weight"]));
    EXPECT_TRUE(torch::equal(before["first.bias"], after["first.bias"]));
    EXPECT_FALSE(torch::equal(before["second.weight"], after["second.weight"]));
    // Stage 0 trains nothing, so that no gradient is sent to it.
    EXPECT_EQ(instructions_of(pipeline).find("1SEND_B"), std::string::npos) << instructions_of(pipeline);
    EXPECT_NE(instructions_of(pipeline).find("2SEND_B"), std::string::npos) << instructions_of(pipeline);
    EXPECT_FALSE(pipeline.local_state_dict()["first.weight"].grad().defined());
  }
}

TEST(FrozenParameters, of_a_standalone_network_stay_frozen) {
  World world({.stages = 3});
  Three network;
  for (auto& [name, value] : network.named_parameters(3))
    if (name == "first.weight") value.set_requires_grad(false);
  Pipeline pipeline(world, network, cross_entropy, options_of("1f1b"));
  optimize(pipeline);
  const auto before = pipeline.state_dict();
  run(pipeline, 2);
  const auto after = pipeline.state_dict();
  EXPECT_TRUE(torch::equal(before["first.weight"], after["first.weight"]));
  EXPECT_FALSE(torch::equal(before["first.bias"], after["first.bias"]));
}

/// Frozen for steps 2 and 3 of 5; the result must not depend on `stages`.
Trained freeze_and_thaw(int stages, const std::string& schedule, bool recompute) {
  PipelineOptions options = options_of(schedule);
  if (stages == 1) options.partition = "uniform";
  options.recompute = recompute;
  PipelineOf<Three> pipeline({.stages = stages}, options);
  optimize(pipeline);
  run(pipeline, 1);
  const auto before = pipeline.state_dict();
  pipeline.freeze("first");
  pipeline.freeze("second.bias");
  if (stages == 3) {
    EXPECT_EQ(instructions_of(pipeline).find("1SEND_B"), std::string::npos) << instructions_of(pipeline);
  }
  run(pipeline, 2);
  const auto frozen = pipeline.state_dict();
  for (const char* name : {"first.weight", "first.bias", "second.bias"})
    EXPECT_TRUE(torch::equal(before[name], frozen[name])) << name;
  EXPECT_FALSE(torch::equal(before["second.weight"], frozen["second.weight"]));
  pipeline.unfreeze("first");
  pipeline.unfreeze("second");
  if (stages == 3) {
    EXPECT_NE(instructions_of(pipeline).find("1SEND_B"), std::string::npos) << instructions_of(pipeline);
  }
  const Trained trained = train(pipeline, rows(), targets(), 2);
  EXPECT_FALSE(torch::equal(frozen["first.weight"], trained.state["first.weight"]));
  return trained;
}

TEST(FrozenParameters, can_be_frozen_and_unfrozen_between_steps) {
  const Trained one = freeze_and_thaw(1, "gpipe", false);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    for (bool recompute : {false, true})
      expect_same(one, freeze_and_thaw(3, schedule, recompute), say(schedule, recompute ? " recompute" : ""));
}

TEST(FrozenParameters, frozen_from_the_start_can_train_later) {
  PipelineOf<FrozenFirst> pipeline({.stages = 3}, options_of("1f1b"));
  optimize(pipeline);
  run(pipeline, 1);
  const auto before = pipeline.state_dict();
  pipeline.unfreeze("first");
  run(pipeline, 1);
  EXPECT_FALSE(torch::equal(before["first.weight"], pipeline.state_dict()["first.weight"]));
}

TEST(FrozenParameters, need_their_full_names) {
  PipelineOptions options = options_of("gpipe");
  options.partition = "uniform";
  PipelineOf<Three> pipeline({.stages = 1}, options);
  optimize(pipeline);
  for (const char* wrong : {"fourth", "first.weights", "fir", "relu", "*.weights", "?irst.*.*"})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.freeze(wrong); }), "'", wrong, "', and no layer"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.freeze("tird.bias"); }), "'third.bias', the nearest"));
  EXPECT_NO_THROW(run(pipeline, 1));
}

using Names = std::vector<std::string>;

TEST(FrozenParameters, are_named_by_patterns) {
  PipelineOf<Three> by_pattern({.stages = 3}, options_of("zb-h1")), by_name({.stages = 3}, options_of("zb-h1"));
  EXPECT_EQ(by_pattern.freeze("*"),
            (Names{"first.bias", "first.weight", "second.bias", "second.weight", "third.bias", "third.weight"}));
  EXPECT_EQ(by_pattern.unfreeze("?hir*"), (Names{"third.bias", "third.weight"}));
  EXPECT_EQ(by_pattern.unfreeze("*.bias"), (Names{"first.bias", "second.bias", "third.bias"}));
  EXPECT_EQ(by_name.freeze("first.weight"), (Names{"first.weight"}));
  by_name.freeze("second.weight");
  optimize(by_pattern);
  optimize(by_name);
  const auto before = by_pattern.state_dict();
  const Trained trained = train(by_pattern, rows(), targets(), 2);
  expect_same(train(by_name, rows(), targets(), 2), trained, "the same parameters by their names");
  EXPECT_EQ(by_pattern.state_dict({.pattern = "*.bias"}).keys(), (Names{"first.bias", "second.bias", "third.bias"}));
  EXPECT_EQ(by_pattern.state_dict({.trained_only = true}).keys(),
            (Names{"first.bias", "second.bias", "third.weight", "third.bias"}));
  EXPECT_TRUE(torch::equal(before["second.weight"], trained.state["second.weight"]));
  EXPECT_FALSE(torch::equal(before["first.bias"], trained.state["first.bias"]));
}

TEST(FrozenParameters, of_which_nothing_trains) {
  PipelineOf<Three> pipeline({.stages = 3}, options_of("1f1b"));
  pipeline.freeze("*");
  optimize(pipeline);
  const double loss = pipeline.train_step(rows(), targets()).loss();
  EXPECT_EQ(pipeline.train_step(rows(), targets()).loss(), loss);
}

TEST(FrozenParameters, that_are_tied_are_frozen_by_any_name) {
  Gpt gpt({.vocabulary = 11, .context = 8, .width = 12, .layers = 2, .heads = 3, .dropout = 0});
  World world({.stages = 2});
  Pipeline pipeline(world, gpt, next_token_loss);
  optimize(pipeline);
  testing::internal::CaptureStderr();
  EXPECT_EQ(pipeline.freeze("head"), (Names{"token_embedding.weight"}));
  EXPECT_EQ(pipeline.unfreeze("token_embedding"), (Names{"token_embedding.weight"}));
  EXPECT_EQ(pipeline.freeze("*head*"), (Names{"token_embedding.weight"}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(log, "'head' freezes tied parameters: token_embedding.weight with head",
                   "'token_embedding' unfreezes tied parameters: head.weight with token_embedding.weight"));
  const auto before = pipeline.state_dict();
  const torch::Tensor tokens = torch::arange(16).reshape({2, 8}) % 11;
  pipeline.train_step(tokens, tokens).wait();
  const auto after = pipeline.state_dict();
  EXPECT_TRUE(torch::equal(before["token_embedding.weight"], after["token_embedding.weight"]));
  EXPECT_FALSE(torch::equal(before["norm.weight"], after["norm.weight"]));
}

struct Wide : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(64, 64); });
  Layer second = add("second", [] { return torch::nn::Linear(64, 64); });
  Layer third = add("third", [] { return torch::nn::Linear(64, 64); });
  Value forward(Value x) override { return third(second(first(x))); }
};

/// The bytes that one micro-batch of 16 rows keeps from F to I, and from I to W.
StageBytes bytes_of(const Names& frozen) {
  PipelineOf<Wide> pipeline({.stages = 1}, {.micro_batches = 2, .schedule = "zb-h1", .count_bytes = true},
                            squared_error);
  for (const std::string& pattern : frozen) pipeline.freeze(pattern);
  optimize(pipeline);
  for (int step = 0; step < 3; ++step) pipeline.train_step(torch::ones({32, 64}), torch::ones({32, 64})).wait();
  if (!frozen.empty()) {
    pipeline.forward_backward(torch::ones({32, 64}), torch::ones({32, 64})).wait();
    for (const auto& gradient : pipeline.local_gradients())
      EXPECT_TRUE(gradient.key().starts_with("first")) << gradient.key() << " has a gradient";
    pipeline.step();
  }
  return Profiler(pipeline).activation_bytes().front();
}

TEST(FrozenParameters, keep_no_activations_for_their_gradients) {
  constexpr std::int64_t rows_of_64 = 16 * 64 * 4;
  const StageBytes trained = bytes_of({}), frozen = bytes_of({"second", "third"});
  // The inputs of the frozen layers; and after I, these and the gradients of their outputs.
  EXPECT_EQ(trained.after_forward - frozen.after_forward, 2 * rows_of_64);
  EXPECT_EQ(trained.after_input_grad - frozen.after_input_grad, 4 * rows_of_64);
}

}  // namespace
}  // namespace penstock::test::freeze_test
