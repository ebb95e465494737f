// Replicas and micro-batches of a batch: its loss and gradients, and how long its memory is read.
#include <cstring>
#include <semaphore>

#include "penstock/rank/batch.h"
#include "tests/runtime/small_job.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::batch_layout_test {
namespace {

std::pair<torch::Tensor, torch::Tensor> even_batch() {
  torch::manual_seed(3);
  return {torch::randn({48, 12}), torch::arange(48) * 3 % 4};
}

Trained train_reduced(int replicas, const LossReduction& reduction = {}) {
  PipelineOf<SmallNetwork> pipeline({.stages = 2, .replicas = replicas},
                                    {.micro_batches = 3, .loss_reduction = reduction}, torch_sgd(0.1));
  const auto [inputs, targets] = even_batch();
  return train(pipeline, inputs, targets, 4);
}

TEST(Reductions, replicas_do_not_change_results_unless_they_are_summed) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const Trained one = train_reduced(1, {.reduction = reduction});
    EXPECT_NEAR(one.losses[0], reduction == Reduction::mean ? 1.4 : 4.2, 0.6);
    for (const int replicas : {2, 4}) expect_close(one, train_reduced(replicas, {.reduction = reduction}));
  }
}

// Compares the first step alone: after it the parameters differ.
TEST(Reductions, a_sum_over_replicas_multiplies_by_their_number) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const Trained one = train_reduced(1, {.reduction = reduction});
    const Trained four = train_reduced(4, {reduction, Reduction::sum});
    EXPECT_NEAR(four.losses[0], 4 * one.losses[0], 1e-4);
    EXPECT_GT(std::abs(four.losses[3] - 4 * one.losses[3]), 1e-2) << "gradients are summed too";
  }
}

TEST(Reductions, the_reported_loss_is_independent_of_the_gradients) {
  for (const int replicas : {1, 2}) {
    const Trained mean = train_reduced(replicas);
    const Trained sum = train_reduced(replicas, {.reduction = Reduction::sum});
    const Trained both = train_reduced(replicas, {.reduction = Reduction::sum, .reported_loss = Reduction::mean});
    EXPECT_NEAR(both.losses[0], mean.losses[0], 1e-6);
    for (std::size_t i = 0; i < sum.losses.size(); ++i) EXPECT_NEAR(both.losses[i], sum.losses[i] / 3, 1e-5);
    expect_same(sum.state, both.state);
    const Trained other = train_reduced(replicas, {.reported_loss = Reduction::sum});
    EXPECT_NEAR(other.losses[0], 3 * mean.losses[0], 1e-5);
    expect_same(mean.state, other.state);
  }
}

// A batch of 3 samples leaves one of four replicas without samples; the others are averaged.
TEST(Reductions, averages_do_not_count_a_replica_without_samples) {
  PipelineOf<SmallNetwork> pipeline({.stages = 1, .replicas = 4},
                                    {.micro_batches = 2, .loss_reduction = {.reduction = Reduction::sum}},
                                    torch_sgd(0.1));
  const StepResult result = pipeline.train_step(torch::zeros({3, 12}), torch::ones({3}, torch::kInt64));
  EXPECT_NEAR(result.loss(), result.loss_sum() / 3, 1e-5);
}

struct ReusedCase {
  std::string schedule = "1f1b";
  int micro_batches = 4;
  bool recompute = false;
};

void overwrite(const torch::Tensor& tensor) { std::memset(tensor.data_ptr(), 0x3f, tensor.nbytes()); }

/// Cross entropy whose backward pass through the last micro-batch of a step waits at `gate`, when the loss is
/// available.
Loss gated_loss(std::counting_semaphore<>& gate, int micro_batches) {
  Loss loss = cross_entropy;
  loss.sum = [&gate, micro_batches, calls = std::make_shared<int>(0)](const torch::Tensor& output,
                                                                      const torch::Tensor& target) {
    torch::Tensor held = output * 1;
    if (++*calls % micro_batches == 0)
      held.register_hook([&gate](const torch::Tensor& gradient) {
        gate.acquire();
        return gradient;
      });
    return cross_entropy.sum(held, target);
  };
  return loss;
}

/// The first stage trains nothing, so that its rank finishes a step and reports the loss while the second one computes
/// gradients from both inputs and the targets.
struct HalfFrozen : Cell {
  Layer frozen = add("frozen", [] { return torch::nn::Linear(12, 8); });
  Layer direct = add("direct", [] { return torch::nn::Linear(12, 8); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });

  HalfFrozen() {
    frozen.pipeline_stage = 0;
    direct.pipeline_stage = head.pipeline_stage = 1;
  }
  Values forward_many(Values x) override { return {head(relu(frozen(x[0])) + relu(direct(x[1])))}; }
};

/// Trains from buffers for inputs and targets, which a loader overwrites for every step.
Trained train_from_buffers(const ReusedCase& one, bool overwrites) {
  const PipelineOptions options{
      .inputs = 2, .micro_batches = one.micro_batches, .schedule = one.schedule, .recompute = one.recompute};
  std::counting_semaphore<> gate(0);
  PipelineOf<HalfFrozen> pipeline({.stages = 2}, options, gated_loss(gate, one.micro_batches));
  pipeline.freeze("frozen");
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  Trained trained;
  const auto [inputs, targets] = even_batch();
  for (int step = 0; step < 4; ++step) {
    const Tensors buffers{inputs.clone(), inputs * 2, targets.clone()};
    trained.losses.push_back(pipeline.train_step({buffers[0], buffers[1]}, buffers[2]).loss());
    if (overwrites) std::ranges::for_each(buffers, overwrite);
    gate.release();
  }
  trained.state = pipeline.state_dict();
  return trained;
}

TEST(CallersBatch, may_be_overwritten_once_the_loss_is_available) {
  for (const char* schedule : {"gpipe", "1f1b", "1f1b-early", "zb-h1", "zb-h2", "zb-auto", "sequential"})
    for (const int micro_batches : {1, 4})
      for (const bool recompute : {false, true}) {
        const ReusedCase one{schedule, micro_batches, recompute};
        expect_same(train_from_buffers(one, false), train_from_buffers(one, true),
                    say(schedule, " m ", micro_batches, recompute ? " recompute" : ""));
      }
}

TEST(RowsOfBatch, are_copied_where_they_outlive_the_result) {
  const torch::Tensor batch = torch::arange(12).view({6, 2}), rows = batch.narrow(0, 2, 2);
  const torch::Tensor shared = rank::usable_rows(rows, {}), own = rank::usable_rows(rows, {c10::kCPU, true});
  EXPECT_TRUE(torch::equal(shared, own));
  EXPECT_EQ(shared.data_ptr(), rows.data_ptr());
  EXPECT_NE(own.storage().data(), batch.storage().data());
}

}  // namespace
}  // namespace penstock::test::batch_layout_test
