// What may be done to an image between the disk and the network.
#pragma once

#include <cstdint>

namespace penstock {

/// A piece of random size, shape and place is cropped and resized to `size` x `size` pixels by linear interpolation
/// that averages where it shrinks (torchvision's RandomResizedCrop).
struct ResizedCrop {
  std::int64_t size = 0;   // 0: no such crop
  double min_area = 0.08;  // of the image's area, drawn uniformly
  double max_area = 1;
  double min_ratio = 3.0 / 4;  // width by height, its logarithm drawn uniformly
  double max_ratio = 4.0 / 3;
};

/// One of the published augmentation policies.
enum class AugmentPolicy {
  none,
  autoaugment_cifar10,   // arXiv 1805.09501: one of 25 pairs of operations, each with a probability and a magnitude
  autoaugment_imagenet,  // the same with the pairs that were found on ImageNet
  randaugment,           // arXiv 1909.13719: operations at random, all of one magnitude
};

/// How AugmentPolicy::randaugment augments.
struct RandAugment {
  int operations = 2;  // applied one after the other, each drawn uniformly out of 14
  int magnitude = 9;   // 0..30
};

/// Random factors (torchvision's ColorJitter): brightness, contrast and saturation are multiplied by factors drawn from
/// [max(0, 1 - x), 1 + x], the hue is turned by a part of the circle drawn from [-hue, hue], in a random order. 0: off.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  // at most 0.5

  bool is_on() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

/// In this order, on the pixels as stored; scaling and normalising come afterwards (ImageSet says how). The random
/// choices depend on (seed, epoch, sample) alone: the same for every layout, batch size, share and prefetch. Each
/// transform has choices of its own, so switching one off leaves those of the others.
struct ImageTransforms {
  /// So many rows and columns of zeros on every side, out of which a piece of the image's own size is cropped where
  /// chance wants it.
  std::int64_t pad = 0;
  /// Left and right change places, for half of the samples.
  bool flip = false;
  ResizedCrop resized_crop = {};
  AugmentPolicy policy = AugmentPolicy::none;
  RandAugment rand_augment = {};  // for AugmentPolicy::randaugment
  ColorJitter color_jitter = {};
  /// Height and width afterwards, interpolated linearly between the centres of pixels (without smoothing: made for
  /// enlarging); 0: as they are.
  std::int64_t resize = 0;
};

/// Pad 4, crop 32, flip: what most tutorials do to CIFAR-10 while training.
inline constexpr ImageTransforms cifar10_augmentation{.pad = 4, .flip = true};

/// Pad 4, crop 32, AutoAugment with the policy found on CIFAR-10, no flip.
inline constexpr ImageTransforms cifar10_autoaugment{.pad = 4, .policy = AugmentPolicy::autoaugment_cifar10};

}  // namespace penstock
