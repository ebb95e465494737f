#include "penstock/cli/augment_flag.h"

#include <charconv>
#include <sstream>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

int whole_number(const std::string& text, const std::string& argument) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require<ConfigError>(error == std::errc() && end == text.data() + text.size(), "--augment ", argument, ": '", text,
                       "' is not a whole number; randaugment:2:9 means 2 operations of magnitude 9");
  return number;
}

/// Parses "randaugment:2:9".
RandAugment parse_rand_augment(const std::string& argument) {
  RandAugment options;
  std::istringstream parts(argument);
  std::string part;
  std::getline(parts, part, ':');  // skips the name
  if (std::getline(parts, part, ':')) options.operations = whole_number(part, argument);
  if (std::getline(parts, part, ':')) options.magnitude = whole_number(part, argument);
  require<ConfigError>(!std::getline(parts, part, ':'), "--augment ", argument,
                       ": give at most two numbers, randaugment:OPERATIONS:MAGNITUDE");
  require<ConfigError>(options.operations >= 1 && options.magnitude >= 0 && options.magnitude <= 30, "--augment ",
                       argument, ": OPERATIONS is 1 or more, MAGNITUDE 0 to 30");
  return options;
}

}  // namespace

ImageTransforms parse_augmentation(const std::string& text, std::int64_t side) {
  const std::vector<std::string> known = {"crop-flip",    "crop",         "flip",
                                          "resized-crop", "autoaugment",  "autoaugment-imagenet",
                                          "randaugment",  "color-jitter", "none"};
  ImageTransforms transforms;
  const auto set_policy = [&](AugmentPolicy policy) {
    require<ConfigError>(transforms.policy == AugmentPolicy::none || transforms.policy == policy, "--augment ", text,
                         ": give one of autoaugment, autoaugment-imagenet and randaugment");
    transforms.policy = policy;
  };
  std::istringstream list(text);
  for (std::string argument; std::getline(list, argument, ',');) {
    const std::string name = argument.substr(0, argument.find(':'));
    const std::string& meant = nearest(name, known);
    require<ConfigError>(meant == name && (name == argument || name == "randaugment"), "--augment: there is no '",
                         argument, "': did you mean '", meant,
                         "'? There are crop-flip, crop, flip, resized-crop, autoaugment, ",
                         "autoaugment-imagenet, randaugment[:OPERATIONS[:MAGNITUDE]], color-jitter and none");
    if (name == "crop" || name == "crop-flip") transforms.pad = cifar10_augmentation.pad;
    if (name == "flip" || name == "crop-flip") transforms.flip = true;
    if (name == "resized-crop") transforms.resized_crop.size = side;
    if (name == "autoaugment") set_policy(AugmentPolicy::autoaugment_cifar10);
    if (name == "autoaugment-imagenet") set_policy(AugmentPolicy::autoaugment_imagenet);
    if (name == "randaugment") {
      set_policy(AugmentPolicy::randaugment);
      transforms.rand_augment = parse_rand_augment(argument);
    }
    if (name == "color-jitter")
      transforms.color_jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  }
  return transforms;
}

}  // namespace penstock
