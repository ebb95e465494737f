// Chooses and applies the random augmentation of a sample. Free of LibTorch.
#pragma once

#include <array>
#include <span>

#include "penstock/data/image_operations.h"
#include "penstock/data/sample_random.h"
#include "penstock/data/transforms.h"

namespace penstock {

/// One operation of an AutoAugment policy.
struct PolicyStep {
  ImageOperation operation = ImageOperation::identity;
  double probability = 0;
  int bin = -1;  // 0..9, the magnitude; -1: the operation has none
};
using SubPolicy = std::array<PolicyStep, 2>;

/// The 25 pairs of operations of an AutoAugment policy; empty for `none` and `randaugment`.
std::span<const SubPolicy> sub_policies(AugmentPolicy policy);

/// A magnitude on the scale of the papers.
struct MagnitudeBin {
  int bin = 0;           // 0..bins-1
  int bins = 10;         // number of magnitudes: 10 for AutoAugment, 31 for RandAugment
  ImageSize image = {};  // for translations, which are a fraction of the image's size
};
/// The absolute value of apply_operation()'s argument `amount`.
double amount_of(ImageOperation operation, const MagnitudeBin& bin);
/// Whether the sign of the amount is random.
bool has_sign(ImageOperation operation);

/// Applies the random operations of `transforms.policy` for the sample `key`. The image has 1 or 3 channels.
ByteImage augment(ByteImage image, const ImageTransforms& transforms, const SampleKey& key);

/// Applies the random crop of the sample `key` and resizes it to crop.size x crop.size.
ByteImage apply_crop(const ByteImage& image, const ResizedCrop& crop, const SampleKey& key);
/// Draws the box of that crop.
ImageBox choose_box(const ResizedCrop& crop, const ImageSize& image, SampleRandom& random);

/// Applies the random colour jitter of the sample `key`.
ByteImage apply_jitter(ByteImage image, const ColorJitter& jitter, const SampleKey& key);

}  // namespace penstock
