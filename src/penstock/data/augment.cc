#include "penstock/data/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock {
namespace {

// Purposes of random numbers, so that switching off one transform does not change the draws of the others.
constexpr std::uint64_t for_crop = 0x63726f70, for_policy = 0x706f6c69, for_jitter = 0x6a697474;

constexpr auto kShearX = ImageOperation::shear_x, kShearY = ImageOperation::shear_y,
               kTranslateX = ImageOperation::translate_x, kTranslateY = ImageOperation::translate_y,
               kRotate = ImageOperation::rotate, kBrightness = ImageOperation::brightness,
               kColor = ImageOperation::color, kContrast = ImageOperation::contrast,
               kSharpness = ImageOperation::sharpness, kPosterize = ImageOperation::posterize,
               kSolarize = ImageOperation::solarize, kAutoContrast = ImageOperation::auto_contrast,
               kEqualize = ImageOperation::equalize, kInvert = ImageOperation::invert;

// Tables of arXiv 1805.09501, appendix A, in torchvision's order.
constexpr SubPolicy of_cifar10[] = {
    {{{kInvert, 0.1}, {kContrast, 0.2, 6}}},         {{{kRotate, 0.7, 2}, {kTranslateX, 0.3, 9}}},
    {{{kSharpness, 0.8, 1}, {kSharpness, 0.9, 3}}},  {{{kShearY, 0.5, 8}, {kTranslateY, 0.7, 9}}},
    {{{kAutoContrast, 0.5}, {kEqualize, 0.9}}},      {{{kShearY, 0.2, 7}, {kPosterize, 0.3, 7}}},
    {{{kColor, 0.4, 3}, {kBrightness, 0.6, 7}}},     {{{kSharpness, 0.3, 9}, {kBrightness, 0.7, 9}}},
    {{{kEqualize, 0.6}, {kEqualize, 0.5}}},          {{{kContrast, 0.6, 7}, {kSharpness, 0.6, 5}}},
    {{{kColor, 0.7, 7}, {kTranslateX, 0.5, 8}}},     {{{kEqualize, 0.3}, {kAutoContrast, 0.4}}},
    {{{kTranslateY, 0.4, 3}, {kSharpness, 0.2, 6}}}, {{{kBrightness, 0.9, 6}, {kColor, 0.2, 8}}},
    {{{kSolarize, 0.5, 2}, {kInvert, 0.0}}},         {{{kEqualize, 0.2}, {kAutoContrast, 0.6}}},
    {{{kEqualize, 0.2}, {kEqualize, 0.6}}},          {{{kColor, 0.9, 9}, {kEqualize, 0.6}}},
    {{{kAutoContrast, 0.8}, {kSolarize, 0.2, 8}}},   {{{kBrightness, 0.1, 3}, {kColor, 0.7, 0}}},
    {{{kSolarize, 0.4, 5}, {kAutoContrast, 0.9}}},   {{{kTranslateY, 0.9, 9}, {kTranslateY, 0.7, 9}}},
    {{{kAutoContrast, 0.9}, {kSolarize, 0.8, 3}}},   {{{kEqualize, 0.8}, {kInvert, 0.1}}},
    {{{kTranslateY, 0.7, 9}, {kAutoContrast, 0.9}}},
};

constexpr SubPolicy of_imagenet[] = {
    {{{kPosterize, 0.4, 8}, {kRotate, 0.6, 9}}}, {{{kSolarize, 0.6, 5}, {kAutoContrast, 0.6}}},
    {{{kEqualize, 0.8}, {kEqualize, 0.6}}},      {{{kPosterize, 0.6, 7}, {kPosterize, 0.6, 6}}},
    {{{kEqualize, 0.4}, {kSolarize, 0.2, 4}}},   {{{kEqualize, 0.4}, {kRotate, 0.8, 8}}},
    {{{kSolarize, 0.6, 3}, {kEqualize, 0.6}}},   {{{kPosterize, 0.8, 5}, {kEqualize, 1.0}}},
    {{{kRotate, 0.2, 3}, {kSolarize, 0.6, 8}}},  {{{kEqualize, 0.6}, {kPosterize, 0.4, 6}}},
    {{{kRotate, 0.8, 8}, {kColor, 0.4, 0}}},     {{{kRotate, 0.4, 9}, {kEqualize, 0.6}}},
    {{{kEqualize, 0.0}, {kEqualize, 0.8}}},      {{{kInvert, 0.6}, {kEqualize, 1.0}}},
    {{{kColor, 0.6, 4}, {kContrast, 1.0, 8}}},   {{{kRotate, 0.8, 8}, {kColor, 1.0, 2}}},
    {{{kColor, 0.8, 8}, {kSolarize, 0.8, 7}}},   {{{kSharpness, 0.4, 7}, {kInvert, 0.6}}},
    {{{kShearX, 0.6, 5}, {kEqualize, 1.0}}},     {{{kColor, 0.4, 0}, {kEqualize, 0.6}}},
    {{{kEqualize, 0.4}, {kSolarize, 0.2, 4}}},   {{{kSolarize, 0.6, 5}, {kAutoContrast, 0.6}}},
    {{{kInvert, 0.6}, {kEqualize, 1.0}}},        {{{kColor, 0.6, 4}, {kContrast, 1.0, 8}}},
    {{{kEqualize, 0.8}, {kEqualize, 0.6}}},
};

/// Element `bin` of torch.linspace(0, most, bins), with its rounding: computed from the nearer end.
double spaced(double the_most, const MagnitudeBin& bin) {
  const auto most = static_cast<float>(the_most);
  const float step = most / static_cast<float>(bin.bins - 1);
  if (bin.bin < bin.bins / 2) return step * static_cast<float>(bin.bin);
  return most - step * static_cast<float>(bin.bins - 1 - bin.bin);
}

ByteImage apply_step(ByteImage image, ImageOperation operation, double amount, bool negative) {
  return apply_operation(image, operation, negative && has_sign(operation) ? -amount : amount);
}

ByteImage apply_sub_policy(ByteImage image, const SubPolicy& steps, SampleRandom random) {
  for (const PolicyStep& step : steps) {
    const bool wanted = random.uniform() <= step.probability, negative = random.below(2) == 0;
    if (!wanted) continue;
    const MagnitudeBin bin{.bin = std::max(step.bin, 0), .bins = 10, .image = {image.height, image.width}};
    image = apply_step(std::move(image), step.operation, amount_of(step.operation, bin), negative);
  }
  return image;
}

ByteImage apply_rand_augment(ByteImage image, const RandAugment& options, SampleRandom random) {
  for (int i = 0; i < options.operations; ++i) {
    const auto operation = static_cast<ImageOperation>(random.below(image_operations - 1));
    const bool negative = random.below(2) == 0;
    const MagnitudeBin bin{.bin = options.magnitude, .bins = 31, .image = {image.height, image.width}};
    image = apply_step(std::move(image), operation, amount_of(operation, bin), negative);
  }
  return image;
}

}  // namespace

std::span<const SubPolicy> sub_policies(AugmentPolicy policy) {
  switch (policy) {
    case AugmentPolicy::autoaugment_cifar10: return of_cifar10;
    case AugmentPolicy::autoaugment_imagenet: return of_imagenet;
    case AugmentPolicy::none:
    case AugmentPolicy::randaugment: break;
  }
  return {};
}

double amount_of(ImageOperation operation, const MagnitudeBin& bin) {
  constexpr double translation = 150.0 / 331.0;  // largest translation as a fraction of the image's size
  switch (operation) {
    case kShearX:
    case kShearY: return spaced(0.3, bin);
    case kTranslateX: return spaced(translation * static_cast<double>(bin.image.width), bin);
    case kTranslateY: return spaced(translation * static_cast<double>(bin.image.height), bin);
    case kRotate: return spaced(30, bin);
    case kBrightness:
    case kColor:
    case kContrast:
    case kSharpness: return spaced(0.9, bin);
    case kPosterize: return 8 - std::nearbyint(spaced(4, bin));
    case kSolarize: return 255 - spaced(255, bin);
    case ImageOperation::identity:
    case kAutoContrast:
    case kEqualize:
    case kInvert: break;
  }
  return 0;
}

bool has_sign(ImageOperation operation) {
  return operation >= ImageOperation::shear_x && operation <= ImageOperation::sharpness;
}

ByteImage augment(ByteImage image, const ImageTransforms& transforms, const SampleKey& key) {
  SampleRandom random(key, for_policy);
  if (transforms.policy == AugmentPolicy::none) return image;
  if (transforms.policy == AugmentPolicy::randaugment)
    return apply_rand_augment(std::move(image), transforms.rand_augment, random);
  const std::span<const SubPolicy> table = sub_policies(transforms.policy);
  const auto chosen = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(table.size())));
  return apply_sub_policy(std::move(image), table[chosen], random);
}

ImageBox choose_box(const ResizedCrop& crop, const ImageSize& image, SampleRandom& random) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  const double least = std::log(crop.min_ratio), most = std::log(crop.max_ratio);
  constexpr int tries = 10;
  for (int i = 0; i < tries; ++i) {
    const double area = height * width * (crop.min_area + (crop.max_area - crop.min_area) * random.uniform());
    const double ratio = std::exp(least + (most - least) * random.uniform());
    ImageBox box;
    box.width = std::lround(std::sqrt(area * ratio));
    box.height = std::lround(std::sqrt(area / ratio));
    if (box.width < 1 || box.width > image.width || box.height < 1 || box.height > image.height) continue;
    box.top = random.below(image.height - box.height + 1);
    box.left = random.below(image.width - box.width + 1);
    return box;
  }
  // Fallback: the largest centred box of an allowed ratio.
  ImageBox box{.height = image.height, .width = image.width};
  if (width / height < crop.min_ratio)
    box.height = std::clamp<std::int64_t>(std::lround(width / crop.min_ratio), 1, image.height);
  else if (width / height > crop.max_ratio)
    box.width = std::clamp<std::int64_t>(std::lround(height * crop.max_ratio), 1, image.width);
  box.top = (image.height - box.height) / 2;
  box.left = (image.width - box.width) / 2;
  return box;
}

ByteImage apply_crop(const ByteImage& image, const ResizedCrop& crop, const SampleKey& key) {
  SampleRandom random(key, for_crop);
  return crop_and_resize(image, choose_box(crop, {image.height, image.width}, random), {crop.size, crop.size});
}

ByteImage apply_jitter(ByteImage image, const ColorJitter& jitter, const SampleKey& key) {
  SampleRandom random(key, for_jitter);
  std::array<int, 4> order = {0, 1, 2, 3};
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(left)))]);
  // All are drawn even if unused, so that switching one on does not change the others.
  const auto change = [&](double most) {
    const double least = -std::min(1.0, most);
    return least + (most - least) * random.uniform();
  };
  const double brightness = change(jitter.brightness), contrast = change(jitter.contrast),
               saturation = change(jitter.saturation), hue = change(jitter.hue);
  for (const int which : order) {
    if (which == 0 && jitter.brightness > 0) image = apply_operation(image, kBrightness, brightness);
    if (which == 1 && jitter.contrast > 0) image = apply_operation(image, kContrast, contrast);
    if (which == 2 && jitter.saturation > 0) image = apply_operation(image, kColor, saturation);
    if (which == 3 && jitter.hue > 0) image = turn_hue(std::move(image), hue);
  }
  return image;
}

}  // namespace penstock
