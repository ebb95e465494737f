#include "penstock/data/augment.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::test::augment_test {
namespace {

/// The images written by image_operations.py, by the line before each image without its size.
std::map<std::string, ByteImage> goldens() {
  std::map<std::string, ByteImage> all;
  std::ifstream file(TESTS_FOLDER "/data/goldens/image_operations.bin", std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    ByteImage image;
    std::vector<std::string> words;
    std::istringstream stream(line);
    for (std::string word; stream >> word;) words.push_back(word);
    image.width = std::stoll(words.at(words.size() - 1));
    image.height = std::stoll(words.at(words.size() - 2));
    image.channels = std::stoll(words.at(words.size() - 3));
    image.pixels.resize(static_cast<std::size_t>(image.channels * image.plane()));
    file.read(reinterpret_cast<char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
    std::string name;
    for (std::size_t i = 0; i + 3 < words.size(); ++i) name += (i ? " " : "") + words[i];
    all[name] = image;
  }
  return all;
}

/// The largest difference in grey levels; 256 where the shapes differ.
int difference(const ByteImage& one, const ByteImage& other) {
  if (one.channels != other.channels || one.height != other.height || one.width != other.width) return 256;
  int most = 0;
  for (std::size_t i = 0; i < one.pixels.size(); ++i) most = std::max(most, std::abs(one.pixels[i] - other.pixels[i]));
  return most;
}

/// As a string, to be put into a set: gcc 12 warns about the comparison of vectors of bytes.
std::string text_of(const ByteImage& image) { return {image.pixels.begin(), image.pixels.end()}; }

ImageOperation operation_called(const std::string& name) {
  for (int i = 0; i < image_operations; ++i)
    if (name_of(static_cast<ImageOperation>(i)) == name) return static_cast<ImageOperation>(i);
  ADD_FAILURE() << "no operation " << name;
  return ImageOperation::identity;
}

AugmentPolicy policy_called(const std::string& name) {
  return name == "cifar10" ? AugmentPolicy::autoaugment_cifar10 : AugmentPolicy::autoaugment_imagenet;
}

TEST(ImageOperations, equal_those_of_pillow) {
  const auto all = goldens();
  std::map<std::string, int> checked;
  for (const auto& [name, wanted] : all) {
    std::istringstream words(name);
    std::string kind, image, operation;
    words >> kind >> image;
    if (kind == "image" || kind == "policy") continue;
    const ByteImage& from = all.at("image " + image);
    double amount = 0;
    ByteImage got;
    if (kind == "operation") {
      words >> operation >> amount;
      got = apply_operation(from, operation_called(operation), amount);
    } else if (kind == "hue") {
      words >> amount;
      got = turn_hue(from, amount);
    } else {
      ASSERT_EQ(kind, "crop");
      ImageBox box;
      ImageSize size;
      words >> box.top >> box.left >> box.height >> box.width >> size.height >> size.width;
      got = crop_and_resize(from, box, size);
    }
    EXPECT_LE(difference(got, wanted), 1) << name;
    ++checked[kind];
  }
  EXPECT_EQ(checked, (std::map<std::string, int>{{"operation", 52}, {"hue", 8}, {"crop", 8}}));
}

TEST(AutoAugment, tables_and_magnitudes_are_the_published_ones) {
  std::ifstream file(TESTS_FOLDER "/data/goldens/augment_policies.txt");
  std::map<std::string, std::vector<std::string>> tables;
  int magnitudes = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, operation;
    words >> kind;
    if (kind != "magnitude") {
      tables[kind].push_back(line);
      continue;
    }
    MagnitudeBin bin{.image = {.height = 19, .width = 26}};
    double amount = 0;
    bool sign = false;
    words >> bin.bins >> operation >> bin.bin >> amount >> sign;
    EXPECT_NEAR(amount_of(operation_called(operation), bin), amount, 1e-4) << line;
    EXPECT_EQ(has_sign(operation_called(operation)), sign) << line;
    ++magnitudes;
  }
  EXPECT_EQ(magnitudes, 11 * (10 + 31) + 3 + 3);
  for (const auto& [name, lines] : tables) {
    std::vector<std::string> ours;
    int index = 0;
    for (const SubPolicy& pair : sub_policies(policy_called(name))) {
      for (const PolicyStep& step : pair) {
        std::ostringstream line;
        line << name << ' ' << index << ' ' << name_of(step.operation) << ' ' << std::fixed;
        line.precision(1);
        line << step.probability << ' ' << step.bin;
        ours.push_back(line.str());
      }
      ++index;
    }
    EXPECT_EQ(ours, lines);
  }
  EXPECT_EQ(tables.size(), 2U);
}

/// Small differences of the first operation may grow in the second one.
TEST(AutoAugment, every_pair_equals_that_of_torchvision) {
  const auto all = goldens();
  int pairs = 0;
  for (const auto& [name, wanted] : all) {
    std::istringstream words(name);
    std::string kind, policy;
    std::size_t index = 0;
    int sign = 0;
    words >> kind >> policy >> index >> sign;
    if (kind != "policy") continue;
    ByteImage image = all.at("image colour");
    for (const PolicyStep& step : sub_policies(policy_called(policy))[index]) {
      const double amount =
          amount_of(step.operation, {.bin = std::max(step.bin, 0), .bins = 10, .image = {image.height, image.width}});
      image = apply_operation(image, step.operation, sign == 0 && has_sign(step.operation) ? -amount : amount);
    }
    EXPECT_LE(difference(image, wanted), 1) << name;
    ++pairs;
  }
  EXPECT_EQ(pairs, 2 * (25 + 10));
}

ByteImage colour() { return goldens().at("image colour"); }

TEST(Augment, is_a_function_of_seed_epoch_and_sample) {
  const ByteImage image = colour();
  for (const ImageTransforms& transforms : {ImageTransforms{.policy = AugmentPolicy::autoaugment_cifar10},
                                            ImageTransforms{.policy = AugmentPolicy::autoaugment_imagenet},
                                            ImageTransforms{.policy = AugmentPolicy::randaugment}}) {
    for (const auto key_of :
         {+[](std::uint64_t i) { return SampleKey{.seed = i}; }, +[](std::uint64_t i) { return SampleKey{.epoch = i}; },
          +[](std::uint64_t i) { return SampleKey{.sample = static_cast<std::int64_t>(i)}; }}) {
      std::set<std::string> images;
      for (std::uint64_t i = 0; i < 40; ++i) {
        images.insert(text_of(augment(image, transforms, key_of(i))));
        EXPECT_EQ(augment(image, transforms, key_of(i)).pixels, augment(image, transforms, key_of(i)).pixels);
      }
      EXPECT_GT(images.size(), 15U);
    }
  }
}

TEST(Augment, draws_every_pair_and_operation_with_its_probability) {
  // Most operations leave no trace by which to identify them, so the test counts unchanged images.
  const ByteImage image = colour();
  const ImageTransforms transforms{.policy = AugmentPolicy::autoaugment_cifar10};
  int untouched = 0;
  constexpr int samples = 4000;
  for (std::int64_t sample = 0; sample < samples; ++sample)
    untouched += augment(image, transforms, {.seed = 3, .sample = sample}).pixels == image.pixels;
  double expected = 0;  // probability that no operation is applied, or only Color 0 or Posterize to 8 bits
  for (const SubPolicy& pair : sub_policies(transforms.policy)) {
    double none = 1;
    for (const PolicyStep& step : pair)
      if (step.bin != 0) none *= 1 - step.probability;
    expected += none / 25;
  }
  EXPECT_NEAR(untouched, samples * expected, 120);
}

TEST(Augment, rand_augment_without_magnitude_or_operations) {
  const ByteImage image = colour();
  EXPECT_EQ(augment(image, {.policy = AugmentPolicy::randaugment, .rand_augment = {.operations = 0}}, {}).pixels,
            image.pixels);
  EXPECT_EQ(augment(image, {}, {}).pixels, image.pixels);
}

TEST(ResizedCrop, boxes_have_the_requested_area_and_ratio) {
  const ImageSize image{.height = 100, .width = 200};
  std::set<std::int64_t> tops, heights;
  for (std::int64_t sample = 0; sample < 500; ++sample) {
    SampleRandom random({.seed = 5, .sample = sample});
    const ImageBox box = choose_box({.size = 32, .min_area = 0.2, .max_area = 0.4}, image, random);
    EXPECT_GE(box.top, 0);
    EXPECT_GE(box.left, 0);
    EXPECT_LE(box.top + box.height, image.height);
    EXPECT_LE(box.left + box.width, image.width);
    const auto height = static_cast<double>(box.height), width = static_cast<double>(box.width);
    EXPECT_NEAR(width * height, 0.3 * 20000, 0.1 * 20000 + 200);
    EXPECT_GT(width / height, 0.74);
    EXPECT_LT(width / height, 1.36);
    tops.insert(box.top);
    heights.insert(box.height);
  }
  EXPECT_GT(tops.size(), 30U);
  EXPECT_GT(heights.size(), 20U);
  // No such box fits into a strip, so the centred box is taken.
  SampleRandom random({.seed = 5});
  const ImageBox middle = choose_box({.size = 8}, {.height = 4, .width = 400}, random);
  EXPECT_EQ(middle.width, 5);
  EXPECT_EQ(middle.left, 197);
}

TEST(ColorJitter, factors_are_drawn_independently) {
  const ByteImage image = colour();
  std::set<std::string> all;
  for (std::int64_t sample = 0; sample < 20; ++sample) {
    const SampleKey key{.seed = 2, .sample = sample};
    const ColorJitter jitter{.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    all.insert(text_of(apply_jitter(image, jitter, key)));
    EXPECT_EQ(apply_jitter(image, {.hue = 1e-9}, key).pixels, turn_hue(image, 0).pixels);
  }
  EXPECT_EQ(all.size(), 20U);
}

}  // namespace
}  // namespace penstock::test::augment_test
