// What may be done to an image between the disk and the network.
#pragma once

#include <cstdint>

namespace penstock {

/// In this order, on the pixels as stored; scaling and normalising come afterwards (ImageSet says how). The random
/// choices depend on (seed, epoch, sample) alone: the same for every layout, batch size, share and prefetch.
struct ImageTransforms {
  /// So many rows and columns of zeros on every side, out of which a piece of the image's own size is cropped where
  /// chance wants it.
  std::int64_t pad = 0;
  /// Left and right change places, for half of the samples.
  bool flip = false;
  /// Height and width afterwards, interpolated linearly between the centres of pixels (without smoothing: made for
  /// enlarging); 0: as they are.
  std::int64_t resize = 0;
};

/// What the tutorials do to CIFAR-10 while training: pad 4, crop 32, flip.
inline constexpr ImageTransforms cifar10_augmentation{.pad = 4, .flip = true};

}  // namespace penstock
