// What of a pipeline's state gets into checkpoints, and out of them.
#include <future>
#include <set>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::checkpoint_state_test {
namespace {

/// Passes its input on once `opens` is ready.
struct GateImpl : torch::nn::Module {
  explicit GateImpl(std::shared_future<void> opens) : opens_(std::move(opens)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (opens_.valid()) opens_.wait();
    return x;
  }

 private:
  std::shared_future<void> opens_;
};
TORCH_MODULE(Gate);

struct Network : Cell {
  explicit Network(std::shared_future<void> opens = {})
      : gate(add("gate", [opens = std::move(opens)] { return Gate(opens); })) {}
  Layer first = add("first", [] { return torch::nn::Linear(6, 8); });
  Layer gate;
  Layer last = add("last", [] { return torch::nn::Linear(8, 3); });
  Value forward(Value x) override { return last(gate(relu(first(x)))); }
};

struct Job {
  explicit Job(const std::shared_future<void>& opens = {}) : network(opens) {
    pipeline.optimize_with(sgd({.learning_rate = 0.1, .momentum = 0.9}));
  }
  StepResult step(const StepOptions& options = {}) { return pipeline.train_step(inputs, targets, options); }
  /// Sets a number of a parameter.
  void set(const std::string& name, float value) {
    StateDict state = pipeline.state_dict();
    state[name] = state[name].clone();
    state[name].flatten()[0] = value;
    pipeline.load_state_dict(state);
  }

  World world{{.stages = 2}};
  Network network;
  Pipeline pipeline{world, network, cross_entropy, {.micro_batches = 2, .partition = "gate", .seed = 4}};
  torch::Tensor inputs = torch::ones({8, 6}), targets = torch::arange(8) % 3;
};

constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t checkpoints_in(const std::string& folder) { return list_checkpoints(folder).size(); }

class CheckpointState : public testing::Test {
 protected:
  const TemporaryFolder temporary_{"checkpoint_state"};
  const std::string folder_ = temporary_ / "run";
};

TEST_F(CheckpointState, with_an_infinite_parameter_is_not_kept) {
  Job job;
  job.step().wait();
  job.pipeline.save(folder_);
  for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    job.set("last.bias", value);
    job.pipeline.save(folder_);
    EXPECT_EQ(checkpoints_in(folder_), 1U) << value;
  }
  // One that is not trained may be a mask.
  job.set("last.bias", -infinity);
  job.pipeline.freeze("last");
  job.pipeline.save(folder_);
  EXPECT_EQ(checkpoints_in(folder_), 2U);
}

TEST_F(CheckpointState, contains_the_averages_of_frozen_parameters) {
  Job job;
  WeightAverage weights(job.pipeline, 0.9);
  for (int i = 0; i < 3; ++i) job.step();
  job.pipeline.freeze("first");
  job.step();
  job.pipeline.save(folder_);
  const StateDict average = weights.state_dict();
  ASSERT_FALSE(average["first.weight"].equal(job.pipeline.state_dict()["first.weight"]));
  for (const bool is_frozen : {true, false}) {
    Job resumed;
    WeightAverage resumed_weights(resumed.pipeline, 0.9);
    if (is_frozen) resumed.pipeline.freeze("first");
    ASSERT_TRUE(resumed.pipeline.load(folder_));
    expect_same(resumed_weights.state_dict(), average);
  }
}

TEST_F(CheckpointState, remembers_what_was_frozen) {
  Job job;
  job.step();
  job.pipeline.freeze("first");
  job.step();
  job.pipeline.save(folder_);
  Job resumed;
  ASSERT_TRUE(resumed.pipeline.load(folder_));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(resumed.step().loss(), job.step().loss());
  expect_same(resumed.pipeline.state_dict(), job.pipeline.state_dict());
  // The optimiser's state from before it was frozen is loaded, too.
  job.pipeline.unfreeze("first");
  resumed.pipeline.unfreeze("first");
  job.step();
  resumed.step();
  expect_same(resumed.pipeline.state_dict(), job.pipeline.state_dict());

  Job never_frozen;
  never_frozen.step();
  never_frozen.pipeline.save(folder_ + "2");
  Job frozen;
  frozen.pipeline.freeze("*");
  ASSERT_TRUE(frozen.pipeline.load(folder_ + "2"));
  frozen.step();
  never_frozen.step();
  expect_same(frozen.pipeline.state_dict(), never_frozen.pipeline.state_dict());
}

std::set<std::string> stored_in(const std::string& folder, FileKind kind) {
  std::set<std::string> names;
  const NewestCheckpoint newest = newest_checkpoint(folder, CheckpointCheck::checksums);
  for (const FileRecord& file : newest.checkpoint->manifest().files)
    for (const TensorRecord& tensor : file.tensors)
      if (file.kind == kind) names.insert(tensor.name);
  return names;
}

TEST_F(CheckpointState, may_leave_out_frozen_parameters) {
  World world({.stages = 2});
  Network network;
  const PipelineOptions options{.micro_batches = 2, .partition = "gate", .seed = 4};
  Pipeline pipeline(world, network, cross_entropy, options);
  pipeline.freeze("first");
  pipeline.optimize_with(adamw({}));
  const torch::Tensor inputs = torch::ones({8, 6}), targets = torch::arange(8) % 3;
  pipeline.train_step(inputs, targets);
  pipeline.save(folder_, {.trained_only = true});
  EXPECT_EQ(stored_in(folder_, FileKind::model), (std::set<std::string>{"last.bias", "last.weight"}));
  for (const std::string& name : stored_in(folder_, FileKind::optimizer))
    EXPECT_TRUE(name.starts_with("last.")) << "a frozen parameter has no optimiser state";
  for (const int stages : {2, 1}) {
    World another({.stages = stages});
    Network same;
    Pipeline resumed(another, same, cross_entropy,
                     {.micro_batches = 2, .partition = stages == 2 ? "gate" : "uniform", .seed = 4});
    resumed.optimize_with(adamw({}));
    ASSERT_TRUE(resumed.load(folder_));
    expect_same(resumed.state_dict(), pipeline.state_dict());
    if (stages == 1) pipeline.train_step(inputs, targets);
    if (stages == 1) resumed.train_step(inputs, targets);
    expect_same(resumed.state_dict(), pipeline.state_dict());
  }
  World another({.stages = 2});
  Network other;
  Pipeline with_other_weights(another, other, cross_entropy, {.micro_batches = 2, .partition = "gate", .seed = 5});
  with_other_weights.optimize_with(adamw({}));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { with_other_weights.load(folder_); }),
                   "leaves out the frozen 'first.weight', which has other values"));
  pipeline.unfreeze("first");
  pipeline.train_step(inputs, targets);
  pipeline.save(folder_, {.trained_only = true});
  EXPECT_EQ(stored_in(folder_, FileKind::model).size(), 4U);
}

TEST_F(CheckpointState, from_before_the_first_learning_rate_has_that_of_the_optimiser) {
  Job plain;
  for (int i = 0; i < 2; ++i) plain.step();
  Job job;
  job.step();
  job.pipeline.save(folder_);
  job.pipeline.set_learning_rate(3);
  job.step();
  ASSERT_TRUE(job.pipeline.load(folder_));
  job.step();
  expect_same(job.pipeline.state_dict(), plain.pipeline.state_dict());
}

TEST_F(CheckpointState, is_saved_after_one_that_was_abandoned) {
  std::promise<void> gate;
  Job job(gate.get_future().share());
  auto saver = job.pipeline.checkpoints({.folder = folder_});
  job.step();
  saver->save({});  // whose state cannot be copied before the step ends
  saver.reset();
  gate.set_value();
  job.pipeline.save(folder_);
  EXPECT_EQ(checkpoints_in(folder_), 1U);
}

TEST_F(CheckpointState, is_saved_where_an_invalid_loss_has_ended_two_steps) {
  Job job;
  job.step().wait();
  const StateDict before = job.pipeline.state_dict();
  job.inputs = torch::full({8, 6}, infinity);
  const StepResult refused = job.step({.refuse_invalid_loss = true});
  const StepResult behind = job.step({.refuse_invalid_loss = true, .require_previous = true});
  EXPECT_THROW(refused.loss(), InvalidLoss);
  EXPECT_THROW(behind.loss(), StepFailure);
  job.pipeline.save(folder_);
  ASSERT_EQ(checkpoints_in(folder_), 1U);
  Job resumed;
  EXPECT_EQ(resumed.pipeline.load(folder_)->step, 3);
  expect_same(resumed.pipeline.state_dict(), before);
}

}  // namespace
}  // namespace penstock::test::checkpoint_state_test
