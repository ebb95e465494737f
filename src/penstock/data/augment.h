// Which operations an augmentation applies to which sample. Torch-free.
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
  int bin = -1;  // of 10 magnitudes; -1: the operation has none
};
using SubPolicy = std::array<PolicyStep, 2>;

/// The 25 pairs of a policy that has some; none of `none` and `randaugment`.
std::span<const SubPolicy> sub_policies(AugmentPolicy policy);

/// Of how many magnitudes, and which; and the size of the image, for translations.
struct MagnitudeBin {
  int bin = 0;
  int bins = 10;
  ImageSize image = {};
};
/// What apply_operation() takes as its amount, without a sign.
double amount_of(ImageOperation operation, const MagnitudeBin& bin);
/// Whether the amount's sign is drawn.
bool has_sign(ImageOperation operation);

/// Applies what the policy draws for this sample. The images have 1 or 3 channels.
ByteImage augment(ByteImage image, const ImageTransforms& transforms, const SampleKey& key);

/// The random crop of this sample, resized.
ByteImage apply_crop(const ByteImage& image, const ResizedCrop& crop, const SampleKey& key);
ImageBox choose_box(const ResizedCrop& crop, const ImageSize& image, SampleRandom& random);

/// The factors of this sample, in the order in which they are applied.
ByteImage apply_jitter(ByteImage image, const ColorJitter& jitter, const SampleKey& key);

}  // namespace penstock
