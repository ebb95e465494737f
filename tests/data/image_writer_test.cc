#include "penstock/data/image_writer.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "penstock/base/error.h"
#include "penstock/data/augment.h"
#include "tests/base/error_text.h"

namespace penstock::test::image_writer_test {
namespace {

using Numbers = std::vector<float>;

/// Reads lines "name number number ...".
std::map<std::string, Numbers> goldens() {
  std::map<std::string, Numbers> all;
  std::ifstream file(TESTS_FOLDER "/data/goldens/image_transforms.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (float number = 0; words >> number;) all[name].push_back(number);
  }
  return all;
}

/// The golden file's image of 3 x 4 x 5 as a set of one.
ImageSet golden_set() {
  const Numbers pixels = goldens().at("image");
  ImageSet set;
  set.images = torch::empty({1, 3, 4, 5}, torch::kUInt8);
  std::copy(pixels.begin(), pixels.end(), set.images.data_ptr<std::uint8_t>());
  set.labels = torch::zeros({1}, torch::kInt64);
  return set;
}

Numbers written(const ImageSet& set, const ImageTransforms& transforms, const SampleKey& key = {}) {
  const ImageWriter writer(set, transforms);
  Numbers out(static_cast<std::size_t>(writer.channels() * writer.height() * writer.width()));
  EXPECT_EQ(writer.write(key, out.data()), out.data() + out.size());
  return out;
}

void expect_near(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-5) << "number " << i;
}

/// A seed with which the first sample of the first epoch has this crop and flip.
std::uint64_t seed_for(const ImageTransforms& transforms, const ImageChoice& wanted) {
  std::uint64_t seed = 0;
  while (!(choose(transforms, {.seed = seed}) == wanted)) ++seed;
  return seed;
}

TEST(ImageWriter, every_transform_equals_the_reference) {
  const auto golden = goldens();
  ImageSet set = golden_set();
  const ImageTransforms crop{.pad = 2}, flip{.flip = true};
  expect_near(written(set, crop, {.seed = seed_for(crop, {3, 1, false})}), golden.at("crop"));
  expect_near(written(set, flip, {.seed = seed_for(flip, {0, 0, true})}), golden.at("flip"));
  expect_near(written(set, {.resize = 6}), golden.at("enlarge"));
  expect_near(written(set, {.resize = 2}), golden.at("shrink"));

  set.mean = {0.4914, 0.4822, 0.4465};
  set.std = {0.2023, 0.1994, 0.2010};
  expect_near(written(set, {}), golden.at("normalise"));
  const ImageTransforms all{.pad = 2, .flip = true, .resize = 6};
  expect_near(written(set, all, {.seed = seed_for(all, {3, 1, true})}), golden.at("all"));
}

TEST(ImageWriter, an_image_of_the_right_size_is_not_interpolated) {
  ImageSet set = golden_set();
  set.images = set.images.narrow(3, 0, 4).contiguous();
  EXPECT_EQ(written(set, {.resize = 4}), written(set, {}));
}

TEST(Choose, is_a_function_of_seed_epoch_and_sample) {
  const ImageTransforms wide{.pad = 1000, .flip = true};
  const ImageChoice one = choose(wide, {.seed = 1, .epoch = 2, .sample = 3});
  EXPECT_EQ(one, choose(wide, {.seed = 1, .epoch = 2, .sample = 3}));
  EXPECT_NE(one, choose(wide, {.seed = 2, .epoch = 2, .sample = 3}));
  EXPECT_NE(one, choose(wide, {.seed = 1, .epoch = 3, .sample = 3}));
  EXPECT_NE(one, choose(wide, {.seed = 1, .epoch = 2, .sample = 4}));
  EXPECT_NE(choose(wide, {.seed = 1, .epoch = 0}), choose(wide, {.seed = 0, .epoch = 1}));
}

TEST(Choose, covers_every_position_and_flips_half) {
  constexpr int samples = 9000;
  std::map<std::int64_t, int> rows, columns;
  int flips = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const ImageChoice choice = choose(cifar10_augmentation, {.seed = 7, .epoch = 1, .sample = sample});
    ++rows[choice.row];
    ++columns[choice.column];
    flips += choice.flip;
  }
  for (const auto& places : {rows, columns}) {
    EXPECT_EQ(places.size(), 9U);
    EXPECT_EQ(places.rbegin()->first, 8);
    for (const auto& [place, count] : places) EXPECT_NEAR(count, samples / 9, 150) << place;
  }
  EXPECT_NEAR(flips, samples / 2, 200);
}

TEST(Choose, choices_of_transforms_are_independent) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const ImageChoice both = choose({.pad = 4, .flip = true}, {.seed = seed});
    const ImageChoice crop = choose({.pad = 4}, {.seed = seed});
    EXPECT_EQ(crop, (ImageChoice{both.row, both.column, false}));
    EXPECT_EQ(choose({.flip = true}, {.seed = seed}).flip, both.flip);
  }
}

TEST(ImageWriter, normalises_augmented_bytes) {
  ImageSet set;
  set.images = (torch::arange(2 * 3 * 24 * 20) * 37 % 251).to(torch::kUInt8).view({2, 3, 24, 20});
  set.labels = torch::zeros({2}, torch::kInt64);
  const SampleKey key{.seed = 4, .epoch = 1, .sample = 1};
  ByteImage image{3, 24, 20, {}};
  const auto* bytes = set.images[1].const_data_ptr<std::uint8_t>();
  image.pixels.assign(bytes, bytes + 3 * 24 * 20);
  const ImageTransforms policy{.policy = AugmentPolicy::randaugment}, jitter{.color_jitter = {.hue = 0.3}},
      crop{.resized_crop = {.size = 8}};
  const auto numbers = [](const ByteImage& from) {
    Numbers all;
    for (const std::uint8_t pixel : from.pixels) all.push_back(static_cast<float>(pixel) / 255);
    return all;
  };
  EXPECT_EQ(written(set, policy, key), numbers(augment(image, policy, key)));
  EXPECT_EQ(written(set, jitter, key), numbers(apply_jitter(image, jitter.color_jitter, key)));
  EXPECT_EQ(written(set, crop, key), numbers(apply_crop(image, crop.resized_crop, key)));
  // All together, in the order of ImageTransforms; crop, policy and jitter draw as they do alone.
  const ImageTransforms all{
      .resized_crop = {.size = 8}, .policy = AugmentPolicy::randaugment, .color_jitter = {.hue = 0.3}};
  EXPECT_EQ(
      written(set, all, key),
      numbers(apply_jitter(augment(apply_crop(image, crop.resized_crop, key), policy, key), jitter.color_jitter, key)));
  // The final resize is computed in floating point.
  EXPECT_EQ(written(set, {.resized_crop = {.size = 8}, .resize = 16}, key).size(), 3U * 16 * 16);
}

TEST(ImageWriter, refuses_invalid_arguments) {
  const auto refusal = [](const ImageTransforms& transforms) {
    return error_text<ConfigError>([&] { ImageWriter(golden_set(), transforms); });
  };
  EXPECT_EQ(refusal({.pad = -1}), "a border of -1 pixels: pass 0 (none) to 16384");
  EXPECT_EQ(refusal({.resized_crop = {.size = 8, .min_area = 0.5, .max_area = 2}}),
            "a random crop of 0.5 to 2 of an image's area: pass numbers above 0, at most 1, the smaller one first");
  EXPECT_EQ(refusal({.color_jitter = {.hue = 0.6}}), "a hue jitter of 0.6: pass 0 (none) to 0.5");
  EXPECT_EQ(refusal({.rand_augment = {.magnitude = 31}}), "RandAugment with magnitude 31: pass 0 to 30");
  ImageSet two_channels = golden_set();
  two_channels.images = two_channels.images.narrow(1, 0, 2).contiguous();
  EXPECT_EQ(error_text<ConfigError>([&] { ImageWriter(two_channels, {.policy = AugmentPolicy::autoaugment_cifar10}); }),
            "images of 2 channels: augmentation policies and colour jitter support grey (1) and RGB (3)");
  EXPECT_EQ(refusal({.resize = -2}), "images resized to -2 pixels a side: pass 1 to 16384, or 0 to leave them");
}

}  // namespace
}  // namespace penstock::test::image_writer_test
