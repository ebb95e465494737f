// Batch normalisation with micro-batches: statistics of each micro-batch, as in a plain loop over the same ones;
// running statistics are updated once per micro-batch, in order.
#include "tests/base/error_text.h"
#include "tests/runtime/trained.h"

namespace penstock::test::batch_norm_test {
namespace {

struct Normed : Cell {
  Layer conv = add("conv", [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 6, 3)); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm2d(6); });
  Layer mix = add("mix", [] { return torch::nn::Linear(24, 8); });
  Layer norm_1d = add("norm_1d", [] { return torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(8).momentum(0.3)); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override { return head(relu(norm_1d(mix(flatten(relu(norm(conv(x))), 1))))); }
};

torch::Tensor images(std::int64_t samples = 12) {
  torch::manual_seed(1);
  return torch::randn({samples, 2, 4, 4});
}

PipelineOptions options_of(const std::string& schedule, int micro_batches) {
  return {.micro_batches = micro_batches, .schedule = schedule, .partition = "uniform", .seed = 3};
}

/// Three steps of the standalone network and an evaluation, with the gradients of all micro-batches and the statistics of
/// the first share.
Trained train_plainly(int replicas, int micro_batches) {
  Normed network;
  const auto parameters = network.parameters(3);
  const torch::Tensor inputs = images(), targets = torch::arange(inputs.size(0)) % 4;
  torch::optim::SGD optimizer(parameters, 0.1);
  const auto sum_of = [&](const torch::Tensor& x, const torch::Tensor& y) {
    return torch::nn::functional::cross_entropy(
        network(Value(x)).tensor(), y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  };
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    double loss = 0;
    std::vector<std::pair<torch::Tensor, torch::Tensor>> after_first;
    const std::int64_t share = inputs.size(0) / replicas;
    for (int r = 0; r < replicas; ++r) {
      // Each replica has its own statistics, which start equal and are never combined: these are replica 0's.
      for (const auto& [name, buffer] : network.named_buffers())
        if (r == 1) after_first.emplace_back(buffer, buffer.clone());
      for (int i = 0; i < micro_batches; ++i) {
        const RowRange rows = split(share, {.index = i, .of = micro_batches});
        const torch::Tensor part = sum_of(inputs.narrow(0, r * share + rows.begin, rows.size()),
                                          targets.narrow(0, r * share + rows.begin, rows.size())) /
                                   static_cast<double>(inputs.size(0));
        part.backward();
        loss += part.item<double>();
      }
    }
    for (auto& [buffer, value] : after_first) buffer.copy_(value);
    optimizer.step();
    trained.losses.push_back(loss);
  }
  network.eval();
  const torch::NoGradGuard no_grad;
  trained.losses.push_back(sum_of(inputs, targets).item<double>() / static_cast<double>(inputs.size(0)));
  trained.state = network.state_dict();
  return trained;
}

TEST(BatchNorm, equals_a_plain_loop_over_the_same_micro_batches) {
  for (int m : {1, 3}) {
    const Trained plain = train_plainly(1, m);
    for (bool recompute : {false, true}) {
      PipelineOptions options = options_of("gpipe", m);
      options.recompute = recompute;
      const Trained piped = train<Normed>({.stages = 1, .options = options}, images());
      expect_close(plain, piped, 1e-5);
      EXPECT_EQ(piped.state["norm.num_batches_tracked"].item<std::int64_t>(), 3 * m);
    }
  }
}

TEST(BatchNorm, is_the_same_for_every_partition_and_schedule) {
  const Trained one = train<Normed>({.stages = 1, .options = options_of("gpipe", 4)}, images());
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "sequential"})
    for (int stages : {2, 3, 4})
      for (bool recompute : {false, true}) {
        PipelineOptions options = options_of(schedule, 4);
        options.recompute = recompute;
        expect_same(one, train<Normed>({.stages = stages, .options = options}, images()),
                    say(schedule, " p ", stages, recompute ? " recompute" : ""));
      }
}

// Replicas train with their own statistics; replica 0's are saved, and every replica evaluates with these.
TEST(BatchNorm, statistics_of_replica_zero_are_saved_and_evaluated) {
  expect_close(train_plainly(2, 3),
               train<Normed>({.stages = 2, .replicas = 2, .options = options_of("1f1b", 3)}, images()), 1e-5);
}

struct Validated {
  double loss = 0;
  double correct = 0;
  torch::Tensor outputs;
};

Validated validate_with(Pipeline& pipeline) {
  const torch::Tensor inputs = images(), targets = torch::arange(inputs.size(0)) % 4;
  Validated validated;
  validated.outputs = pipeline.infer(inputs).output();
  const StepResult result = pipeline.evaluate(inputs, targets, {correct});
  validated.loss = result.loss();
  validated.correct = result.metrics()[0];
  return validated;
}

TEST(BatchNorm, replicas_evaluate_and_infer_as_the_saved_model) {
  World world({.stages = 2, .replicas = 3}), world_of_one({.stages = 1});
  Normed network, same_network;
  Pipeline pipeline(world, network, cross_entropy, options_of("1f1b", 2));
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  Pipeline alone(world_of_one, same_network, cross_entropy, options_of("gpipe", 1));
  const torch::Tensor inputs = images(), targets = torch::arange(inputs.size(0)) % 4;
  for (int round = 0; round < 2; ++round) {
    pipeline.train_step(inputs + round, targets);
    pipeline.train_step(inputs * 2, targets);
    const Validated here = validate_with(pipeline);
    alone.load_state_dict(pipeline.state_dict());
    const Validated saved = validate_with(alone);
    EXPECT_NEAR(here.loss, saved.loss, 1e-6);
    EXPECT_EQ(here.correct, saved.correct);
    EXPECT_TRUE(torch::allclose(here.outputs, saved.outputs, 1e-5, 1e-6));
  }
}

TEST(BatchNorm, one_sample_is_an_error_that_names_layer_stage_and_micro_batch) {
  const std::string message = test::error_text<RankFailure>([&] {
    train<Normed>({.stages = 2, .options = options_of("gpipe", 4)}, images(7));  // 2, 2, 2 and 1 samples
  });
  for (const char* part : {"stage 1", "1F3", "'norm_1d'", "more than 1 value per channel", "fewer micro-batches"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

}  // namespace
}  // namespace penstock::test::batch_norm_test
