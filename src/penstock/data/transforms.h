// Options of the image transforms between the data set and the network.
#pragma once

#include <cstdint>

namespace penstock {

/// Crops a box of random size, aspect ratio and position and resizes it to `size` x `size` pixels by linear
/// interpolation with averaging where it shrinks (torchvision's RandomResizedCrop).
struct ResizedCrop {
  std::int64_t size = 0;   // pixels; 0: off
  double min_area = 0.08;  // fraction of the image's area, drawn uniformly
  double max_area = 1;
  double min_ratio = 3.0 / 4;  // width / height, its logarithm drawn uniformly
  double max_ratio = 4.0 / 3;
};

/// One of the published augmentation policies.
enum class AugmentPolicy {
  none,
  autoaugment_cifar10,   // arXiv 1805.09501: one of 25 pairs of operations, each with a probability and a magnitude
  autoaugment_imagenet,  // likewise, with the pairs found on ImageNet
  randaugment,           // arXiv 1909.13719: random operations of one magnitude
};

/// Options of AugmentPolicy::randaugment.
struct RandAugment {
  int operations = 2;  // number of operations applied, each drawn uniformly from 14
  int magnitude = 9;   // 0..30
};

/// Random colour changes (torchvision's ColorJitter): brightness, contrast and saturation are multiplied by factors
/// drawn from [max(0, 1 - x), 1 + x], and the hue is rotated by a fraction of the circle drawn from [-hue, hue], in a
/// random order. 0: off.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  // at most 0.5

  bool is_on() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

/// The transforms are applied in this order to the bytes of the image, before normalisation (see ImageSet). Random
/// choices depend only on (seed, epoch, sample): equal for every layout, batch size, share and prefetch. Each
/// transform draws its own choices, so switching one off does not change the others.
struct ImageTransforms {
  /// Pads the image with this number of rows and columns of zeros on every side and crops a box of the original size at
  /// a random position.
  std::int64_t pad = 0;
  /// Flips the image horizontally with probability 1/2.
  bool flip = false;
  ResizedCrop resized_crop = {};
  AugmentPolicy policy = AugmentPolicy::none;
  RandAugment rand_augment = {};  // for AugmentPolicy::randaugment
  ColorJitter color_jitter = {};
  /// Final height and width in pixels, by linear interpolation between the centres of pixels (without averaging: meant
  /// for enlarging); 0: unchanged.
  std::int64_t resize = 0;
};

/// Pad 4, crop 32, flip: the usual augmentation of CIFAR-10.
inline constexpr ImageTransforms cifar10_augmentation{.pad = 4, .flip = true};

/// Pad 4, crop 32, AutoAugment with the policy found on CIFAR-10, no flip.
inline constexpr ImageTransforms cifar10_autoaugment{.pad = 4, .policy = AugmentPolicy::autoaugment_cifar10};

}  // namespace penstock
