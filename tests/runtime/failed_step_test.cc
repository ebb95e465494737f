// A step that fails before any update is cancelled and leaves nothing behind; after another failure no state is left.
// The network has batch normalisation in three stages; the reference is a plain loop of LibTorch.
#include <gtest/gtest.h>

#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trained.h"

namespace penstock::test::failed_step_test {
namespace {

/// Counts events by name, on all ranks of this process, and throws at one of them.
class Faults {
 public:
  /// Events: "forward" and "backward" in stage 0, and a parameter's name before the optimiser changes it.
  void meet(const std::string& event) {
    const std::lock_guard lock(mutex_);
    if (event == fails_at && countdown-- == 0) throw std::runtime_error("broken at " + event);
  }
  /// The event fails after `successes` of its kind, from now on.
  void fail(const std::string& event, int successes) {
    const std::lock_guard lock(mutex_);
    fails_at = event;
    countdown = successes;
  }

 private:
  std::mutex mutex_;
  std::string fails_at;
  int countdown = 0;
};

struct FaultyNetwork : Cell {
  explicit FaultyNetwork(std::shared_ptr<Faults> faults) : faults_(std::move(faults)) {
    a.pipeline_stage = norm_a.pipeline_stage = 0;
    b.pipeline_stage = norm_b.pipeline_stage = 1;
    c.pipeline_stage = norm_c.pipeline_stage = 2;
  }
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer norm_a = add("norm_a", [] { return torch::nn::BatchNorm1d(16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 16); });
  Layer norm_b = add("norm_b", [] { return torch::nn::BatchNorm1d(16); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 4); });
  Layer norm_c = add("norm_c", [] { return torch::nn::BatchNorm1d(4); });

  Value forward(Value x) override {
    const auto watch = [faults = faults_](const Tensors& t) {
      faults->meet("forward");
      torch::Tensor result = t[0] * 1;
      if (result.requires_grad()) result.register_hook([faults](const torch::Tensor&) { faults->meet("backward"); });
      return result;
    };
    return norm_c(c(norm_b(b(apply("watch", watch, Values{norm_a(a(x))})))));
  }

 private:
  std::shared_ptr<Faults> faults_;
};

constexpr double faulty_rate = 0.1;

/// SGD that meets the faults before each parameter.
class FaultyOptimizer : public Optimizer {
 public:
  FaultyOptimizer(std::vector<NamedParameter> parameters, std::shared_ptr<Faults> faults)
      : parameters_(std::move(parameters)), faults_(std::move(faults)) {}
  void step() override {
    const torch::NoGradGuard no_grad;
    for (NamedParameter& parameter : parameters_) {
      faults_->meet(parameter.name);
      if (parameter.value.grad().defined()) parameter.value.add_(parameter.value.grad(), -faulty_rate);
    }
  }
  void set_learning_rate(double) override {}
  OptimizerState state() const override { return {}; }  // it has none to store
  void load_state(const OptimizerState&) override {}

 private:
  std::vector<NamedParameter> parameters_;
  std::shared_ptr<Faults> faults_;
};

struct FaultyBatch {
  explicit FaultyBatch(int step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    inputs = torch::randn({16, 12});
    targets = torch::randint(0, 4, {16}, torch::kInt64);
  }
  torch::Tensor inputs, targets;
};

/// The state after `steps` steps of a plain loop from `initial`, with 4 micro-batches each.
StateDict plain_state(const StateDict& initial, int steps) {
  FaultyNetwork plain(std::make_shared<Faults>());
  plain.load_state_dict(initial);
  for (int step = 0; step < steps; ++step) {
    const FaultyBatch batch(step);
    for (torch::Tensor& parameter : plain.parameters()) parameter.mutable_grad() = torch::Tensor();
    for (int i = 0; i < 4; ++i) {
      const torch::Tensor sum = torch::nn::functional::cross_entropy(
          plain(Value(batch.inputs.narrow(0, 4 * i, 4))).tensor(), batch.targets.narrow(0, 4 * i, 4),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      (sum / 16).backward();
    }
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : plain.parameters()) parameter.add_(parameter.grad(), -faulty_rate);
  }
  return plain.state_dict();
}

/// A pipeline of the network, and its state before training.
struct FaultyJob {
  FaultyJob(const WorldOptions& ranks, PipelineOptions options)
      : world(ranks), network(faults), pipeline(world, network, cross_entropy, with_defaults(std::move(options))) {
    pipeline.optimize_with(OptimizerFactory([faults = faults](const std::vector<NamedParameter>& parameters) {
      return std::make_unique<FaultyOptimizer>(parameters, faults);
    }));
    initial = pipeline.state_dict();
  }
  static PipelineOptions with_defaults(PipelineOptions options) {
    options.micro_batches = 4;
    options.seed = 3;
    return options;
  }
  StepResult step(int number) {
    const FaultyBatch batch(number);
    return pipeline.train_step(batch.inputs, batch.targets);
  }

  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  World world;
  FaultyNetwork network;
  Pipeline pipeline;
  StateDict initial;
};

TEST(FailedStep, leaves_running_statistics_as_they_were) {
  FaultyJob job({.stages = 3}, {});
  job.step(0).wait();
  for (int at = 0; at < 4; ++at) {
    job.faults->fail("forward", at);
    EXPECT_THROW(job.step(7).loss(), StepFailure);
    expect_same(job.pipeline.state_dict(), plain_state(job.initial, 1), std::to_string(at));
  }
  job.pipeline.evaluate(FaultyBatch(3).inputs, FaultyBatch(3).targets).wait();
  expect_same(job.pipeline.state_dict(), plain_state(job.initial, 1));
  job.step(1).wait();
  expect_same(job.pipeline.state_dict(), plain_state(job.initial, 2));
}

std::string error_of_state(FaultyJob& job) {
  return error_text<RankFailure>([&] { job.pipeline.state_dict(); });
}

// The last B of stage 0 fails when later stages have updated their parameters, or an optimiser fails half way.
TEST(FailedStep, that_ends_the_world_leaves_no_state) {
  for (const auto& [event, successes] : {std::pair{"backward", 3}, {"a.bias", 0}, {"norm_c.weight", 0}}) {
    FaultyJob job({.stages = 3}, {});
    job.step(0).wait();
    job.faults->fail(event, successes);
    EXPECT_THROW(job.step(1).wait(), RankFailure);
    for (int i = 0; i < 2; ++i) {
      SCOPED_TRACE(event);
      const std::string error = error_of_state(job);
      EXPECT_TRUE(says(error, "no state is left after a failure", say("broken at ", event), "--checkpoint")) << error;
    }
    FaultyNetwork copy(job.faults);
    EXPECT_THROW(copy_state(job.pipeline, copy), RankFailure);
  }
}

TEST(FailedStep, that_ends_the_world_names_the_newest_checkpoint) {
  const TemporaryFolder folder("failed_step");
  FaultyJob job({.stages = 3}, {});
  const auto saver = job.pipeline.checkpoints({.folder = folder.string()});
  for (int step = 0; step < 2; ++step) {
    job.step(step).wait();
    saver->save({});
    saver->finish();
  }
  job.faults->fail("b.bias", 0);
  EXPECT_THROW(job.step(2).wait(), RankFailure);
  const std::string error = error_of_state(job);
  EXPECT_TRUE(says(error, "continue from the checkpoint " + folder.string() + "/step-00000002")) << error;
}

TEST(FailedStep, that_ends_the_world_says_that_there_is_no_checkpoint) {
  const TemporaryFolder folder("failed_step");
  FaultyJob job({.stages = 3}, {});
  const auto saver = job.pipeline.checkpoints({.folder = folder.string()});
  job.faults->fail("b.bias", 0);
  EXPECT_THROW(job.step(0).wait(), RankFailure);
  const std::string error = error_of_state(job);
  EXPECT_TRUE(says(error, "there is no complete checkpoint in " + folder.string())) << error;
}

}  // namespace
}  // namespace penstock::test::failed_step_test
