// Residual networks for images (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, arXiv 1512.03385).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

/// Where a Bottleneck halves the image.
enum class ResnetVariant {
  v1,   // in its first 1x1 convolution, as in the paper; borders as in "same" padding: where their width is odd, the
        // larger half comes after the image
  v1_5  // in its 3x3 convolution; borders of equal width on both sides
};

/// What comes before layer1.
enum class ResnetStem {
  imagenet,  // 7x7 convolution and 3x3 maximum, each halving the image: for 224 x 224
  cifar      // one 3x3 convolution: for images of 32 x 32
};

struct ResnetOptions {
  int depth = 50;  // 18 (blocks of two 3x3 convolutions) or 50 (Bottlenecks)
  std::int64_t classes = 1000;
  ResnetVariant variant = ResnetVariant::v1_5;
  ResnetStem stem = ResnetStem::imagenet;
  std::int64_t image_channels = 3;
  std::int64_t width = 64;     // channels after the stem; layer1 to layer4 have 1, 2, 4, 8 times as many inside
  double last_norm = 1;        // what the last BatchNorm of a block multiplies by at first; 0 keeps deep ones calm
  double norm_momentum = 0.1;  // share of a micro-batch's statistics in BatchNorm's running ones
};

/// The stem: "conv1", "bn1", ReLU and, for `imagenet`, the maximum. [n, channels, H, W] to [n, width, H/4, W/4] (or
/// [n, width, H, W]).
class ResnetHead : public Cell {
 public:
  explicit ResnetHead(const ResnetOptions& options);
  Value forward(Value x) override;

 private:
  ResnetOptions options_;
  Layer conv1_, bn1_;
};

/// Two or three convolutions, each with its BatchNorm, whose result is added to their input: "conv1", "bn1", ...; where
/// shapes differ, the input goes through "shortcut" and "shortcut_bn".
class ResidualBlock : public Cell {
 public:
  struct Shape {
    std::int64_t in = 0;      // channels that come in
    std::int64_t inside = 0;  // channels of the 3x3 convolution
    std::int64_t out = 0;     // channels that go out
    std::int64_t stride = 1;
  };
  ResidualBlock(const Shape& shape, const ResnetOptions& options);
  ~ResidualBlock() override;
  Value forward(Value x) override;

 private:
  struct Step;  // a convolution and its BatchNorm

  ResnetVariant variant_;
  std::vector<Step> steps_;
  std::vector<Step> shortcut_;  // none or one
};

/// layer1 to layer4: "block0", "block1", ...; the first may halve the image and change the channels.
class ResidualGroup : public Cell {
 public:
  /// `number` is 1 to 4.
  ResidualGroup(const ResnetOptions& options, int number);
  Value forward(Value x) override;

 private:
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
};

/// ResNet-18 and ResNet-50. Images [n, image_channels, H, W] in, logits [n, classes] out. Its parts are there to be
/// annotated: `net.layer3.pipeline_stage = 1;` places all of layer3; the mean over the image and `flatten` follow what
/// is before them. Convolutions start from a normal distribution that keeps the variance of gradients (fan-out, for
/// ReLU), BatchNorms from 1 (or last_norm) and 0. ResNet-50 has 25,557,032 parameters for 1000 classes.
///
/// BatchNorm takes its statistics over a micro-batch, as a plain loop over micro-batches does. Where an image has come
/// down to 1 x 1, a micro-batch needs 2 samples while training.
class Resnet : public Cell {
 public:
  /// Throws ConfigError for options that cannot be.
  explicit Resnet(const ResnetOptions& options = {});
  Value forward(Value x) override;

  ResnetHead head;
  ResidualGroup layer1, layer2, layer3, layer4;
  Layer fc;
};

}  // namespace penstock
