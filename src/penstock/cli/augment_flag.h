// What --augment says, as transforms.
#pragma once

#include <string>

#include "penstock/data/transforms.h"

namespace penstock {

/// What --augment can be given, for its help.
inline constexpr const char* augment_help =
    "cifar10, training set, by seed, epoch and sample: one or more of crop (of 32 x 32 out of a border of 4), flip, "
    "resized-crop, autoaugment (the CIFAR-10 policy), autoaugment-imagenet, randaugment[:OPERATIONS[:MAGNITUDE]] and "
    "color-jitter, separated by commas; crop-flip, which it means without a value, is crop,flip; none";

/// `text` is a list of those names. They are applied in the order of ImageTransforms, whatever their order here. `side`
/// is what resized-crop resizes to. Throws ConfigError naming the nearest one for one that does not exist.
ImageTransforms parse_augmentation(const std::string& text, std::int64_t side = 32);

}  // namespace penstock
