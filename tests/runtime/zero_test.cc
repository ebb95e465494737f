// --zero 1: replicas share the optimiser's state. The bits are those without it, and checkpoints do not depend on it.
#include <numeric>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/rank/replica_rows.h"
#include "tests/base/error_text.h"
#include "tests/runtime/zero_jobs.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::zero_test {
namespace {

void expect_same_with_zero(const ZeroCase& one) {
  World world({.stages = one.stages, .replicas = one.replicas});
  const ZeroOutcome plain = run_zero_job(world, one, 0), zero = run_zero_job(world, one, 1);
  expect_same(plain, zero, one.name());
  EXPECT_NE(plain.losses.front(), plain.losses[3]) << "nothing was trained";
}

TEST(Zero, changes_no_bit) {
  for (const int stages : {1, 2, 3})
    for (const int replicas : {2, 3, 4}) expect_same_with_zero({.stages = stages, .replicas = replicas});
  for (const char* schedule : {"gpipe", "interleaved", "zb-h1", "zb-v"}) expect_same_with_zero({.schedule = schedule});
}

TEST(Zero, changes_no_bit_if_something_needs_whole_gradients) {
  for (const int replicas : {2, 3}) {
    expect_same_with_zero({.replicas = replicas, .clip_norm = 0.05});
    expect_same_with_zero({.replicas = replicas, .has_hook = true});
    expect_same_with_zero({.replicas = replicas, .precision = Precision::fp16});  // skips updates
    expect_same_with_zero({.replicas = replicas, .update_every = 2});
  }
}

TEST(Zero, divides_the_state_among_replicas) {
  World world({.stages = 2, .replicas = 4});
  const ZeroOutcome plain = run_zero_job(world, {.replicas = 4}, 0), zero = run_zero_job(world, {.replicas = 4}, 1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto begin = zero.state_bytes.begin() + static_cast<std::ptrdiff_t>(4 * rank);
    const std::int64_t whole = plain.state_bytes[4 * rank];
    EXPECT_NEAR(static_cast<double>(std::accumulate(begin, begin + 4, std::int64_t{0})), static_cast<double>(whole), 64)
        << "beside the numbers of steps, which all have";
    for (auto of_replica = begin; of_replica != begin + 4; ++of_replica)
      EXPECT_LT(static_cast<double>(*of_replica), 1.15 * static_cast<double>(whole) / 4);
  }
}

TEST(ReplicaRows, together_are_all_rows_and_begin_at_multiples_of_64_numbers) {
  const std::vector<torch::Tensor> parameters = {torch::zeros({}),
                                                 torch::zeros({0, 3}),
                                                 torch::zeros({5}),
                                                 torch::zeros({1000}),
                                                 torch::zeros({96, 48}),
                                                 torch::zeros({7, 100}),
                                                 torch::zeros({300, 10}),
                                                 torch::zeros({64, 32}).t(),
                                                 torch::zeros({1, 64}),
                                                 torch::zeros({8, 3, 64}),
                                                 torch::zeros({40, 8, 4, 4}).to(at::MemoryFormat::ChannelsLast),
                                                 torch::zeros({128, 64}).narrow(1, 0, 32)};
  for (const torch::Tensor& parameter : parameters)
    for (const int of : {1, 2, 3, 4, 7}) {
      const std::int64_t all = parameter.dim() == 0 ? 1 : parameter.size(0);
      std::vector<bool> taken(static_cast<std::size_t>(all), false);
      for (Replica r(0); r.value() < of; r = r.next()) {
        const rank::ReplicaRows rows = rank::rows_of("a", parameter, {r, of});
        for (std::int64_t i = rows.rows.begin; i < rows.rows.end; ++i) {
          EXPECT_FALSE(taken[static_cast<std::size_t>(i)]);
          taken[static_cast<std::size_t>(i)] = true;
        }
        if (rows.is_empty()) continue;
        const torch::Tensor part = rows.in(parameter);
        EXPECT_EQ(part.data_ptr<float>() - parameter.data_ptr<float>(),
                  rows.is_whole() ? 0 : rows.rows.begin * parameter.stride(0));
        EXPECT_TRUE(rows.is_whole() ||
                    (rows.rows.begin * parameter.stride(0) % 64 == 0 && part.is_non_overlapping_and_dense()));
      }
      EXPECT_EQ(std::count(taken.begin(), taken.end(), true), all) << parameter.sizes();
    }
}

struct Sharing : PipelineOf<WideNetwork> {
  Sharing(int replicas, int zero)
      : PipelineOf<WideNetwork>({.stages = 2, .replicas = replicas},
                                {.micro_batches = 2, .zero = zero, .partition = "uniform", .seed = 5}) {
    optimize_with(zero_optimizers());
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto [inputs, targets] = zero_batch(10 + i);
      train_step(inputs, targets).wait();
    }
  }
};

TEST(Zero, checkpoints_do_not_depend_on_it) {
  const TemporaryFolder temporary("zero");
  for (const int zero : {0, 1}) {
    const std::string folder = temporary / say(zero);
    Sharing saved(2, zero);
    saved.train(3);
    saved.save(folder);
    saved.train(2);
    for (const int replicas : {1, 2, 4}) {
      Sharing unshared(replicas, 0);
      ASSERT_TRUE(unshared.load(folder));
      unshared.train(2);
      if (replicas == 2) expect_same(saved.state_dict(), unshared.state_dict(), say("saved with zero ", zero));
      if (replicas == 1) continue;
      Sharing shared(replicas, 1);
      ASSERT_TRUE(shared.load(folder));
      shared.train(2);
      expect_same(unshared.state_dict(), shared.state_dict(), say("saved with zero ", zero, ", d ", replicas));
    }
  }
  EXPECT_EQ(bytes_of_file(temporary / "0/step-0000000003/optimizer-00001-of-00002.safetensors"),
            bytes_of_file(temporary / "1/step-0000000003/optimizer-00001-of-00002.safetensors"));
}

TEST(Zero, continues_with_what_was_frozen) {
  Sharing plain(3, 0), zero(3, 1);
  for (Sharing* run : {&plain, &zero}) {
    run->train(1);
    run->freeze("second");
    run->train(1);
    run->unfreeze("*");
    run->train(2);
  }
  expect_same(plain.state_dict(), zero.state_dict());
}

TEST(Zero, is_refused_if_nothing_can_be_shared) {
  EXPECT_TRUE(says(error_text<ConfigError>([] { Sharing(1, 1); }), "there is 1"));
  EXPECT_TRUE(says(error_text<ConfigError>([] { Sharing(2, 2); }), "zero is 2"));
  Sharing run(2, 1);
  for (const auto& whole : {ParameterGroups(torch_sgd(0.1)), ParameterGroups(sgd({})).add("norm.*", torch_sgd(0.1))})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { run.optimize_with(whole); }), "may need all of them"));
  run.train(1);
}

}  // namespace
}  // namespace penstock::test::zero_test
