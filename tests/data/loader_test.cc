#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "penstock/data/sample_random.h"
#include "tests/base/error_text.h"
#include "tests/data/real_data.h"

namespace penstock::loader_test {
namespace {

/// `count` images of 2 x 3 pixels; all pixels and the label are the sample's number.
ImageSet numbered(std::int64_t count) {
  const torch::Tensor labels = torch::arange(count, torch::kInt64);
  return {.images = labels.to(torch::kUInt8).view({count, 1, 1, 1}).expand({count, 1, 2, 3}), .labels = labels};
}

std::vector<std::int64_t> targets(Loader& loader) {
  std::vector<std::int64_t> all;
  for (auto& [inputs, batch_targets] : loader) {
    const auto* data = batch_targets[0].const_data_ptr<std::int64_t>();
    all.insert(all.end(), data, data + batch_targets[0].size(0));
  }
  return all;
}

// The pixels of the first test image at row 7, columns 6 and 7 are 84 and 185.
TEST(Loader, normalises_images) {
  Loader loader(load_mnist(real_data(), DataPart::test), {.batch_size = 32, .shuffle = false});
  const Batch batch = *loader.begin();
  ASSERT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{32, 1, 28, 28}));
  ASSERT_EQ(batch.inputs[0].dtype(), torch::kFloat32);
  const auto* pixel = batch.inputs[0].const_data_ptr<float>();
  for (const auto& [at, byte] : {std::pair{0, 0.0f}, {7 * 28 + 6, 84.0f}, {7 * 28 + 7, 185.0f}})
    EXPECT_EQ(pixel[at], (byte / 255.0f - 0.1307f) / 0.3081f);
  EXPECT_EQ(batch.targets[0][0].item<std::int64_t>(), 7);
}

TEST(Loader, the_whole_set_has_mean_0_and_deviation_1) {
  Loader loader = mnist(real_data(), {.batch_size = 1000});
  double sum = 0, squares = 0, count = 0;
  for (auto& [inputs, targets] : loader) {
    sum += inputs[0].sum(torch::kFloat64).item<double>();
    squares += inputs[0].to(torch::kFloat64).square().sum().item<double>();
    count += static_cast<double>(inputs[0].numel());
  }
  EXPECT_EQ(count, 60000.0 * 28 * 28);
  EXPECT_NEAR(sum / count, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / count), 1, 1e-3);
}

TEST(Loader, the_order_is_the_permutation_of_seed_and_epoch) {
  at::set_num_threads(2);
  Loader loader(numbered(100), {.batch_size = 7, .seed = 3});
  for (std::uint64_t epoch : {0, 1, 2}) EXPECT_EQ(targets(loader), permutation(100, {.seed = 3, .epoch = epoch}));
  loader.set_epoch(1);
  EXPECT_EQ(targets(loader), permutation(100, {.seed = 3, .epoch = 1}));
  EXPECT_EQ(at::get_num_threads(), 2) << "a loader leaves this setting as it is";
  at::set_num_threads(1);
}

TEST(Loader, batch_size_shares_and_prefetch_do_not_change_the_order) {
  const auto order = permutation(50, {.seed = 9, .epoch = 0});
  for (const LoaderOptions& options :
       {LoaderOptions{.batch_size = 1, .seed = 9}, LoaderOptions{.batch_size = 50, .seed = 9, .prefetch = 0},
        LoaderOptions{.batch_size = 8, .seed = 9, .share = {1, 3}, .prefetch = 5},
        LoaderOptions{.batch_size = 8, .seed = 9, .inputs = false}}) {
    Loader loader(numbered(50), options);
    EXPECT_EQ(targets(loader), order);
  }
}

TEST(Loader, without_shuffling_samples_are_in_stored_order) {
  Loader loader(numbered(10), {.batch_size = 4, .shuffle = false});
  EXPECT_EQ(targets(loader), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  Loader of_no_inputs(numbered(10), {.batch_size = 4, .inputs = false});
  for (const Batch& batch : of_no_inputs) EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(Loader, inputs_belong_to_their_targets) {
  Loader loader(numbered(100), {.batch_size = 30, .seed = 4});
  for (auto& [inputs, labels] : loader) {
    EXPECT_EQ(inputs[0].sizes(), (std::vector<std::int64_t>{labels[0].size(0), 1, 2, 3}));
    EXPECT_TRUE(inputs[0].equal((labels[0].to(torch::kFloat32) / 255).view({-1, 1, 1, 1}).expand_as(inputs[0])));
  }
}

TEST(Loader, keeps_the_short_last_batch_by_default) {
  const auto sizes = [](Loader loader) {
    std::vector<std::int64_t> all;
    for (const Batch& batch : loader) all.push_back(batch.targets[0].size(0));
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), loader.batches_per_epoch());
    return all;
  };
  EXPECT_EQ(sizes(Loader(numbered(10), {.batch_size = 4})), (std::vector<std::int64_t>{4, 4, 2}));
  EXPECT_EQ(sizes(Loader(numbered(10), {.batch_size = 4, .drop_last = true})), (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(sizes(Loader(numbered(8), {.batch_size = 4, .drop_last = true})), (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(sizes(Loader(numbered(3), {.batch_size = 4})), (std::vector<std::int64_t>{3}));
}

TEST(Loader, shares_are_contiguous_and_cover_the_batch) {
  constexpr std::int64_t kShares = 4;
  const LoaderOptions options{.batch_size = 30, .seed = 2};  // 8, 8, 7, 7 rows; in the last batch of 10: 3, 3, 2, 2
  Loader whole(numbered(100), options);
  std::vector<Loader> shares;
  for (std::int64_t i = 0; i < kShares; ++i) {
    LoaderOptions mine = options;
    mine.share = {i, kShares};
    shares.emplace_back(numbered(100), mine);
  }
  std::vector<Loader::Iterator> at;
  for (Loader& share : shares) at.push_back(share.begin());
  for (const Batch& batch : whole) {
    std::vector<torch::Tensor> rows;
    for (std::int64_t i = 0; i < kShares; ++i) {
      auto& iterator = at[static_cast<std::size_t>(i)];
      EXPECT_EQ(iterator->inputs[0].size(0), split(batch.targets[0].size(0), {i, kShares}).size());
      EXPECT_TRUE(iterator->targets[0].equal(batch.targets));
      rows.push_back(iterator->inputs);
      ++iterator;
    }
    EXPECT_TRUE(torch::cat(rows).equal(batch.inputs));
  }
  for (auto& iterator : at) EXPECT_TRUE(iterator == Loader::Sentinel{});
}

// A transformed sample does not depend on batch size, share or prefetch.
TEST(Loader, random_transforms_do_not_depend_on_the_layout) {
  ImageSet set = numbered(40);
  set.images = torch::arange(40 * 6, torch::kInt64).to(torch::kUInt8).view({40, 1, 2, 3});
  const auto by_label = [&set](LoaderOptions options, std::int64_t epoch = 2) {
    options.seed = 5;
    options.transforms = {.pad = 1, .flip = true, .resize = 4};
    Loader loader(set, options);
    loader.set_epoch(epoch);
    std::map<std::int64_t, torch::Tensor> images;
    for (auto& [inputs, labels] : loader) {
      const RowRange rows = split(labels[0].size(0), options.share);
      for (std::int64_t i = 0; i < rows.size(); ++i)
        images[labels[0][rows.begin + i].item<std::int64_t>()] = inputs[0][i].clone();
    }
    return images;
  };
  const auto whole = by_label({.batch_size = 40});
  ASSERT_EQ(whole.size(), 40U);
  EXPECT_EQ(whole.at(0).sizes(), (torch::IntArrayRef{1, 4, 4}));
  for (const LoaderOptions& options :
       {LoaderOptions{.batch_size = 7, .prefetch = 0}, LoaderOptions{.batch_size = 9, .share = {1, 2}},
        LoaderOptions{.batch_size = 8, .shuffle = false}})
    for (const auto& [label, image] : by_label(options)) EXPECT_TRUE(image.equal(whole.at(label))) << label;
  int changed = 0;
  for (const auto& [label, image] : by_label({.batch_size = 40}, 3)) changed += image.equal(whole.at(label)) ? 0 : 1;
  EXPECT_GT(changed, 10) << "of 40 in the next epoch";
}

TEST(Loader, for_test_disables_randomness) {
  const LoaderOptions options = for_test(
      {.batch_size = 3, .shuffle = true, .drop_last = true, .transforms = {.pad = 4, .flip = true, .resize = 7}});
  EXPECT_FALSE(options.shuffle || options.drop_last || options.transforms.flip);
  EXPECT_EQ(options.transforms.pad, 0);
  EXPECT_EQ(options.transforms.resize, 7);
  EXPECT_EQ(options.batch_size, 3);
}

TEST(Loader, can_be_moved_during_an_epoch) {
  Loader first(numbered(100), {.batch_size = 10, .shuffle = false});
  Loader::Iterator at = first.begin();
  Loader second = std::move(first);
  ++at;
  EXPECT_EQ(at->targets[0][0].item<std::int64_t>(), 10);
}

TEST(Loader, can_be_destroyed_during_an_epoch) {
  auto loader = std::make_unique<Loader>(numbered(200), LoaderOptions{.batch_size = 1, .prefetch = 3});
  Loader::Iterator at = loader->begin();
  ++at;
  loader.reset();  // must return within the test's time limit
}

TEST(Loader, a_second_begin_invalidates_the_first) {
  Loader loader(numbered(20), {.batch_size = 2, .shuffle = false});
  Loader::Iterator old = loader.begin();
  ++old;
  EXPECT_EQ(loader.begin()->targets[0][0].item<std::int64_t>(), 0);
  EXPECT_EQ(test::error_text<ConfigError>([&] { ++old; }),
            "this iterator's epoch is over, because a later begin() started another: use one at a time");
}

TEST(Loader, refuses_invalid_options) {
  const auto with = [](const LoaderOptions& options) {
    return test::error_text<ConfigError>([&] { Loader(numbered(10), options); });
  };
  EXPECT_EQ(with({.batch_size = 0}), "the batch size must be at least 1, not 0");
  EXPECT_EQ(with({.batch_size = -3}), "the batch size must be at least 1, not -3");
  EXPECT_EQ(with({.share = {2, 2}}), "share 2 of 2 does not exist: the index counts from 0");
  EXPECT_EQ(with({.share = {0, 0}}), "share 0 of 0 does not exist: the index counts from 0");
  EXPECT_EQ(with({.prefetch = -1}), "prefetch must be 0 (none) or more batches, not -1");
  EXPECT_TRUE(test::says(with({.batch_size = 11, .drop_last = true}), "batches of 11 ", "nothing of 10 samples: "));
  Loader loader(numbered(10), {});
  EXPECT_EQ(test::error_text<ConfigError>([&] { loader.set_epoch(-1); }), "epochs count from 0, not -1");
}

TEST(Loader, refuses_invalid_sets) {
  const auto with = [](const ImageSet& set) { return test::error_text<ConfigError>([&] { Loader(set, {}); }); };
  EXPECT_EQ(with({}), "an image set needs images and labels");
  ImageSet set = numbered(10);
  set.images = set.images.to(torch::kFloat32);
  EXPECT_EQ(with(set), "images must be [N, C, H, W] of uint8, not 4-dimensional float");
  set = numbered(10);
  set.labels = set.labels.to(torch::kInt32);
  EXPECT_EQ(with(set), "labels must be [N] of int64, not 1-dimensional int");
  set.labels = numbered(9).labels;
  EXPECT_EQ(with(set), "10 images and 9 labels: each image needs one");
  set = numbered(10);
  set.std = {0};
  EXPECT_EQ(with(set), "the standard deviation of an image set must be above 0, not 0");
  set.std = {1, 1};
  EXPECT_EQ(with(set), "2 means or standard deviations for 1 channels: pass one for all, or one each");
  EXPECT_EQ(with(numbered(0)), "an image set of 0 samples has no batches");
}

}  // namespace
}  // namespace penstock::loader_test
