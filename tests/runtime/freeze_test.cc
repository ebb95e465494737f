// Frozen parameters: they do not change, and no gradients are computed or sent for them; frozen from the start or
// later.
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
  pipeline.freeze("first", false);
  pipeline.freeze("second", false);
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
  pipeline.freeze("first", false);
  run(pipeline, 1);
  EXPECT_FALSE(torch::equal(before["first.weight"], pipeline.state_dict()["first.weight"]));
}

TEST(FrozenParameters, need_their_full_names) {
  PipelineOptions options = options_of("gpipe");
  options.partition = "uniform";
  PipelineOf<Three> pipeline({.stages = 1}, options);
  optimize(pipeline);
  for (const char* wrong : {"fourth", "first.weights", "fir", "relu"})
    EXPECT_THROW(pipeline.freeze(wrong), ConfigError) << wrong;
  EXPECT_NO_THROW(run(pipeline, 1));
}

}  // namespace
}  // namespace penstock::test::freeze_test
