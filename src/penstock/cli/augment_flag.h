// Parses the flag --augment.
#pragma once

#include <string>

#include "penstock/data/transforms.h"

namespace penstock {

/// The help text of --augment.
inline constexpr const char* augment_help =
    "cifar10, training set, by seed, epoch and sample: one or more of crop (of 32 x 32 out of a border of 4), flip, "
    "resized-crop, autoaugment (the CIFAR-10 policy), autoaugment-imagenet, randaugment[:OPERATIONS[:MAGNITUDE]] and "
    "color-jitter, separated by commas; crop-flip, which it means without a value, is crop,flip; none";

/// Parses a list of the names in augment_help. Transforms are applied in the order of ImageTransforms, whatever the
/// order of the names. `side` is the size in pixels to which resized-crop resizes. Throws ConfigError, which suggests
/// the nearest name, for an unknown name.
ImageTransforms parse_augmentation(const std::string& text, std::int64_t side = 32);

}  // namespace penstock
