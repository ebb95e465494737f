// A Trainer on batches with several inputs or without targets, and hooks that receive outputs and targets.
#include <filesystem>
#include <optional>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/data/data.h"
#include "penstock/train/train.h"
#include "penstock/world/host_memory.h"
#include "tests/base/error_text.h"
#include "tests/model/auto_encoder.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::outputs_test {
namespace {

/// Token numbers [n, 5] and a mask of those that count.
struct Masked : Cell {
  Layer embed = add("embed", [] { return torch::nn::Embedding(9, 6); });
  Layer middle = add("middle", [] { return torch::nn::Linear(6, 6); });
  Layer head = add("head", [] { return torch::nn::Linear(6, 3); });
  Values forward_many(Values x) override {
    const Value mean = apply(
        "mean", [](const Tensors& t) { return (t[0] * t[1].unsqueeze(2)).sum(1) / t[1].sum(1, true); },
        Values{relu(middle(embed(x[0]))), x[1]});
    return {head(mean)};
  }
};

struct Set {
  torch::Tensor tokens, mask, labels;
};

Set set_of(std::int64_t samples) {
  torch::manual_seed(7);
  torch::Tensor mask = torch::rand({samples, 5}).gt(0.4).to(torch::kFloat32);
  mask.select(1, 0).fill_(1);
  return {torch::randint(0, 9, {samples, 5}), mask, torch::randint(0, 3, {samples})};
}

LoaderOptions in_order(std::int64_t batch_size) { return {.batch_size = batch_size, .shuffle = false}; }

struct Layout {
  int stages = 1, replicas = 1;
};

/// Collects the outputs and checks them against the report that follows.
class Outputs : public Hook {
 public:
  explicit Outputs(WantsOutputs wanted) : wanted_(wanted) {}
  WantsOutputs wants_outputs() const override { return wanted_; }
  void before_test(const TrainingPosition&) override {
    outputs.clear();
    targets.clear();
  }
  void after_batch(const StepReport& report, const BatchOutputs& batch) override {
    EXPECT_EQ(batch.rows, (RowRange{0, report.samples}));
    EXPECT_NEAR(torch::nn::functional::cross_entropy(batch.outputs[0], batch.targets[0]).item<double>(), report.loss,
                1e-5);
    ++trained;
  }
  void after_test_batch(const TestStepReport& report, const BatchOutputs& batch) override {
    EXPECT_EQ(batch.rows, (RowRange{0, report.samples}));
    EXPECT_FALSE(batch.outputs[0].requires_grad());
    outputs.push_back(batch.outputs[0]);
    targets.push_back(batch.targets[0]);
  }
  void after_test_step(const TestStepReport& report) override {
    EXPECT_EQ(report.step + 1, static_cast<std::int64_t>(outputs.size()));
  }

  Tensors outputs, targets;
  int trained = 0;

 private:
  WantsOutputs wanted_;
};

// A user's confusion matrix from outputs and labels, over batches, micro-batches and replicas.
TEST(Hooks, receive_outputs_and_targets) {
  const Set set = set_of(23);
  std::optional<torch::Tensor> first;
  for (const Layout& layout : {Layout{1, 1}, {2, 1}, {3, 1}, {2, 3}}) {
    PipelineOf<Masked> pipeline({.stages = layout.stages, .replicas = layout.replicas},
                                {.inputs = 2, .micro_batches = layout.replicas > 1 ? 1 : 3, .partition = "uniform"},
                                sgd({.learning_rate = 0.1}));
    Loader train(tensor_source({set.tokens, set.mask}, set.labels), in_order(8));
    Loader test(tensor_source({set.tokens, set.mask}, set.labels), in_order(10));
    Trainer trainer(pipeline, {.epochs = 1});
    const Outputs& all = trainer.add_hook(std::make_unique<Outputs>(WantsOutputs::of_all));
    const Outputs& tests = trainer.add_hook(std::make_unique<Outputs>(WantsOutputs::of_tests));
    trainer.fit(train, test);
    EXPECT_EQ(all.trained, 3);
    EXPECT_EQ(tests.trained, 0);
    ASSERT_EQ(tests.outputs.size(), 3u);
    EXPECT_TRUE(torch::equal(torch::cat(tests.targets), set.labels));
    const torch::Tensor outputs = torch::cat(tests.outputs);
    EXPECT_TRUE(torch::allclose(outputs, trainer.predict(test).at(0), 1e-5, 1e-6));
    const EvaluationReport report = trainer.evaluate(test);
    EXPECT_NEAR(*report.accuracy, outputs.argmax(1).eq(set.labels).sum().item<double>() / 23, 1e-9);
    if (!first) first = outputs;
    EXPECT_TRUE(torch::allclose(*first, outputs, 1e-4, 1e-5)) << layout.stages << " " << layout.replicas;
  }
}

TEST(Hooks, outputs_are_stored_only_for_hooks_that_want_them) {
  PipelineOf<Masked> pipeline({}, {.inputs = 2});
  const Set set = set_of(4);
  EXPECT_FALSE(pipeline.evaluate({set.tokens, set.mask}, set.labels).outputs());
  const auto kept = pipeline.evaluate({set.tokens, set.mask}, set.labels, {}, {.keep_outputs = true}).outputs();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->outputs.at(0).sizes(), (torch::IntArrayRef{4, 3}));
}

TEST(FitOutputs, needs_no_targets) {
  torch::manual_seed(8);
  const torch::Tensor x = torch::randn({21, 6});
  PipelineOf<AutoEncoder> pipeline({.stages = 2}, {.micro_batches = 2, .partition = "uniform"},
                                   adam({.learning_rate = 0.05}), reconstruction);
  Loader train(tensor_source(x), {.batch_size = 8, .seed = 2}), test(tensor_source(x), in_order(8));
  Trainer trainer(pipeline, {.epochs = 20});
  const LossHook& losses = trainer.add_hook(std::make_unique<LossHook>());
  std::ostringstream lines;
  const MemoryHook& memory = trainer.add_hook(std::make_unique<MemoryHook>(&lines));
  trainer.fit(train, test);
  EXPECT_LT(losses.test().back(), 0.7 * losses.test().front());
  const EvaluationReport report = trainer.evaluate(test);
  EXPECT_EQ(report.samples, 21);
  EXPECT_FALSE(report.accuracy);
  EXPECT_NEAR(report.loss, (trainer.predict(test).at(0) - x).square().sum().item<double>() / 21, 1e-4);

  ASSERT_EQ(memory.epochs().size(), 20u);
  for (const MemoryUse& use : memory.epochs()) {
    EXPECT_GT(use.resident_bytes, 1 << 20);
    EXPECT_GE(use.peak_resident_bytes, use.resident_bytes);
    EXPECT_EQ(use.peak_activations, 2);
  }
  EXPECT_TRUE(says(lines.str(), "epoch: 0, memory ", " MiB, at most ", "live micro-batches at most 2\n"));
}

TEST(TensorSource, selects_samples_along_any_dimension) {
  const torch::Tensor rows = torch::arange(12).view({4, 3}), columns = torch::arange(24).view({2, 4, 3}),
                      table = torch::ones({5}), labels = torch::arange(4);
  const auto source = tensor_source({rows, columns, table}, labels, {.inputs = {0, 1, std::nullopt}});
  EXPECT_EQ(source->size(), 4);
  const std::vector<std::int64_t> wanted{3, 0, 2};
  const Batch batch = source->make({.samples = wanted, .inputs = {1, 3}});
  const torch::Tensor some = torch::tensor({0, 2}), all = torch::tensor({3, 0, 2});
  ASSERT_EQ(batch.inputs.count(), 3u);
  EXPECT_TRUE(torch::equal(batch.inputs.list()[0], rows.index_select(0, some)));
  EXPECT_TRUE(torch::equal(batch.inputs.list()[1], columns.index_select(1, some)));
  EXPECT_TRUE(torch::equal(batch.inputs.list()[2], table));
  EXPECT_TRUE(torch::equal(batch.targets, labels.index_select(0, all)));
  EXPECT_EQ(source->make({.samples = wanted, .inputs = {}}).inputs.list()[1].size(1), 0);
  EXPECT_TRUE(
      says(error_text<ConfigError>([&] { tensor_source(rows, torch::ones({5})); }), "4 samples", "the targets 5"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { tensor_source({rows, table}); }), "number 1 has 5"));
}

}  // namespace
}  // namespace penstock::test::outputs_test
