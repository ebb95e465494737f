#include "penstock/data/dataset.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::dataset_test {
namespace {

using Numbers = std::vector<std::int64_t>;
using Batches = std::vector<Numbers>;

/// Samples 0 .. count-1: the input is the number and its square, the target the number.
Dataset counted(std::int64_t count) {
  const torch::Tensor numbers = torch::arange(count);
  return Dataset(torch::stack({numbers, numbers * numbers}, 1).to(torch::kFloat32), numbers);
}

Numbers values(const torch::Tensor& tensor) {
  const torch::Tensor whole = tensor.to(torch::kInt64).contiguous();
  return {whole.const_data_ptr<std::int64_t>(), whole.const_data_ptr<std::int64_t>() + whole.numel()};
}

/// The targets of an epoch's batches.
Batches targets_of(const Dataset& dataset, std::int64_t epoch = 0, LoaderOptions options = {.seed = 1}) {
  Loader loader(dataset, options);
  loader.set_epoch(epoch);
  Batches all;
  for (auto& [inputs, targets] : loader) all.push_back(values(targets));
  EXPECT_EQ(all.size(), static_cast<std::size_t>(loader.batches_per_epoch()));
  return all;
}

Numbers joined(const Batches& batches) {
  Numbers all;
  for (const Numbers& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST(Dataset, batches_in_order_with_or_without_the_remainder) {
  EXPECT_EQ(targets_of(counted(7).batch(3)), (Batches{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(targets_of(counted(7).batch(3, true)), (Batches{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(targets_of(counted(4).batch(3).repeat(2)), (Batches{{0, 1, 2}, {3}, {0, 1, 2}, {3}}));
  EXPECT_EQ(targets_of(counted(4).repeat(2).batch(3)), (Batches{{0, 1, 2}, {3, 0, 1}, {2, 3}}));
}

TEST(Dataset, shuffles_within_the_buffer) {
  const Numbers drawn = joined(targets_of(counted(100).shuffle(10).batch(8)));
  Numbers sorted = drawn;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);                   // each sample once
    EXPECT_LE(drawn[static_cast<std::size_t>(i)], i + 9) << "at " << i;  // not before it can be in the buffer
  }
  EXPECT_NE(drawn, sorted);
  EXPECT_EQ(joined(targets_of(counted(100).shuffle(1).batch(8))), sorted);
  // A buffer of the set's size reaches every order.
  std::set<Numbers> orders;
  const Dataset three = counted(3).shuffle(3).batch(3);
  for (std::int64_t epoch = 0; epoch < 100; ++epoch) orders.insert(joined(targets_of(three, epoch)));
  EXPECT_EQ(orders.size(), 6U);
  // After batch(), shuffle() reorders batches.
  Batches batches = targets_of(counted(40).batch(2).shuffle(20));
  EXPECT_NE(batches, targets_of(counted(40).batch(2)));
  std::sort(batches.begin(), batches.end());
  EXPECT_EQ(batches, targets_of(counted(40).batch(2)));
}

TEST(Dataset, order_depends_on_seed_epoch_and_repetition) {
  const Dataset dataset = counted(50).shuffle(20).batch(10);
  EXPECT_EQ(targets_of(dataset), targets_of(dataset));
  EXPECT_NE(targets_of(dataset, 0), targets_of(dataset, 1));
  EXPECT_NE(targets_of(dataset, 0, {.seed = 1}), targets_of(dataset, 0, {.seed = 2}));
  EXPECT_EQ(targets_of(dataset, 3, {.seed = 1, .prefetch = 0}), targets_of(dataset, 3, {.seed = 1, .prefetch = 5}));
  const Batches twice = targets_of(dataset.repeat(2));
  ASSERT_EQ(twice.size(), 10U);
  EXPECT_NE(Batches(twice.begin(), twice.begin() + 5), Batches(twice.begin() + 5, twice.end()));
  // repeat() before shuffle() mixes the repetitions.
  const Numbers mixed = joined(targets_of(counted(10).repeat(2).shuffle(20).batch(20)));
  EXPECT_EQ(mixed.size(), 20U);
  EXPECT_NE(std::set<std::int64_t>(mixed.begin(), mixed.begin() + 10).size(), 10U);
}

TEST(Dataset, map_takes_and_returns_samples) {
  const Dataset dataset = counted(5)
                              .map([](Sample sample) {
                                EXPECT_EQ(sample.inputs[0].sizes(), torch::IntArrayRef({2}));
                                return Sample{{sample.inputs[0].sum(), sample.inputs}, sample.targets[0] + 100};
                              })
                              .map([](Sample sample) {
                                return Sample{sample.inputs, {sample.targets, sample.targets[0] * 2}};
                              })
                              .batch(5);
  Loader loader(dataset, {});
  const Batch batch = *loader.begin();
  ASSERT_EQ(batch.inputs.count(), 2U);
  EXPECT_EQ(values(batch.inputs[0]), (Numbers{0, 2, 6, 12, 20}));
  EXPECT_EQ(batch.inputs.list()[1].sizes(), torch::IntArrayRef({5, 2}));
  ASSERT_EQ(batch.targets.count(), 2U);
  EXPECT_EQ(values(batch.targets.list()[1]), (Numbers{200, 202, 204, 206, 208}));
}

/// Adds a random number to the input.
BatchTensors noisy(const BatchTensors& inputs, SampleRandom& random) {
  return inputs[0] + static_cast<double>(random.below(1'000'000));
}

TEST(Dataset, random_functions_depend_on_seed_epoch_sample_and_repetition) {
  const auto inputs_of = [](const Dataset& dataset, std::int64_t epoch, const LoaderOptions& options) {
    Loader loader(dataset, options);
    loader.set_epoch(epoch);
    std::vector<torch::Tensor> all;
    for (auto& [inputs, targets] : loader) all.push_back(torch::Tensor(inputs));
    return values(torch::cat(all).select(1, 0));
  };
  const Dataset dataset = counted(12).map_inputs(noisy).map_inputs(noisy);
  const Numbers by_four = inputs_of(dataset.batch(4), 2, {.seed = 3});
  EXPECT_EQ(by_four, inputs_of(dataset.batch(6), 2, {.seed = 3, .prefetch = 0}));
  EXPECT_NE(by_four, inputs_of(dataset.batch(4), 1, {.seed = 3}));
  EXPECT_NE(by_four, inputs_of(dataset.batch(4), 2, {.seed = 4}));
  EXPECT_NE(by_four, inputs_of(counted(12).map_inputs(noisy).batch(4), 2, {.seed = 3}));
  // Half of each batch, the share of one of two replicas.
  const Numbers second = inputs_of(dataset.batch(4), 2, {.seed = 3, .share = {.index = 1, .of = 2}});
  EXPECT_EQ(second, (Numbers{by_four[2], by_four[3], by_four[6], by_four[7], by_four[10], by_four[11]}));
  const Numbers twice = inputs_of(dataset.repeat(2).batch(4), 2, {.seed = 3});
  EXPECT_NE(Numbers(twice.begin(), twice.begin() + 12), Numbers(twice.begin() + 12, twice.end()));
}

TEST(Dataset, targets_cover_the_batch_if_inputs_are_a_share_or_none) {
  int calls = 0;
  const auto count = [&](Sample sample) {
    ++calls;
    sample.targets = sample.inputs[0].select(0, 1).to(torch::kInt64);  // targets computed from inputs
    return sample;
  };
  const LoaderOptions a_half{.share = {.index = 1, .of = 2}, .prefetch = 0};
  Loader loader(counted(4).map(count).batch(4), a_half);
  Batch batch = *loader.begin();
  EXPECT_EQ(batch.inputs[0].sizes(), torch::IntArrayRef({2, 2}));
  EXPECT_EQ(values(batch.targets), (Numbers{0, 1, 4, 9}));
  EXPECT_EQ(calls, 4);

  int input_calls = 0;
  const auto count_inputs = [&](const BatchTensors& inputs) {
    ++input_calls;
    return BatchTensors(inputs[0].repeat({3}));
  };
  Loader of_inputs(counted(4).map_inputs(count_inputs).batch(4), a_half);
  batch = *of_inputs.begin();
  EXPECT_EQ(batch.inputs[0].sizes(), torch::IntArrayRef({2, 6}));
  EXPECT_EQ(input_calls, 2);
  Loader of_none(counted(4).map_inputs(count_inputs).batch(4), {.inputs = false, .prefetch = 0});
  batch = *of_none.begin();
  EXPECT_EQ(batch.inputs[0].sizes(), torch::IntArrayRef({0, 6}));
  EXPECT_EQ(values(batch.targets), (Numbers{0, 1, 2, 3}));
}

TEST(Dataset, applies_image_transforms) {
  ImageSet set;
  set.images = (torch::arange(6 * 3 * 8 * 8) * 7 % 256).to(torch::kUInt8).view({6, 3, 8, 8});
  set.labels = torch::arange(6);
  const ImageTransforms transforms{.pad = 2, .flip = true, .policy = AugmentPolicy::autoaugment_cifar10};
  Loader plain(set, {.batch_size = 3, .shuffle = false, .seed = 5, .transforms = transforms});
  const auto same = [](Sample sample) { return sample; };
  Loader mapped(Dataset(set, transforms).map(same).batch(3), {.seed = 5});
  auto other = mapped.begin();
  for (auto& [inputs, targets] : plain) {
    EXPECT_TRUE(inputs[0].equal(other->inputs));
    EXPECT_TRUE(targets[0].equal(other->targets));
    ++other;
  }
  // Each repetition has other augmentations.
  Loader twice(Dataset(set, transforms).batch(6).repeat(2), {.seed = 5});
  auto repetition = twice.begin();
  const torch::Tensor first = repetition->inputs;
  ++repetition;
  EXPECT_FALSE(first.equal(repetition->inputs));
}

TEST(Dataset, refuses_invalid_arguments) {
  const auto refusal = [](auto&& f) { return error_text<ConfigError>(f); };
  EXPECT_EQ(refusal([] { counted(3).shuffle(0); }), "a shuffle buffer of 0: pass 1 (no shuffling) or more");
  EXPECT_EQ(refusal([] { counted(3).repeat(0); }), "repeat(0): pass 1 or more; epochs repeat without it");
  EXPECT_EQ(refusal([] { counted(3).batch(0); }), "the batch size must be at least 1, not 0");
  EXPECT_EQ(refusal([] { counted(3).batch(2).batch(4); }), "batch(4) of batches of 2: call batch() only once");
  EXPECT_EQ(refusal([] { counted(3).batch(2).map([](Sample sample) { return sample; }); }),
            "map() after batch(): its function takes single samples, so call map() first");
  EXPECT_EQ(refusal([] { Loader(counted(3), {}); }), "a dataset for a Loader needs batches: add .batch(32)");
  EXPECT_EQ(refusal([] { Loader(counted(3).batch(4, true), {}); }),
            "no batch is left: the remainder that batch() drops is all of 3 samples");
  EXPECT_EQ(refusal([] {
              Dataset(torch::zeros({3, 2}), torch::zeros({4}));
            }),
            "the inputs have 3 samples and the targets 4: pass as many of each");
  const Dataset uneven = counted(3).map_inputs([](const BatchTensors& inputs) {
    return BatchTensors(inputs[0].repeat({1 + inputs[0].select(0, 0).item<std::int64_t>()}));
  });
  EXPECT_EQ(refusal([&] { Loader(uneven.batch(3), {}).begin(); }),
            "a dataset's function gave a tensor of shape [2] for one sample and [4] for another: samples of a batch "
            "need one shape");
}

}  // namespace
}  // namespace penstock::test::dataset_test
