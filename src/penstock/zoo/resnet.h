// Residual networks for images (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, arXiv 1512.03385).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

/// Which convolution of a Bottleneck has the stride.
enum class ResnetVariant {
  v1,   // the first 1x1 convolution, as in the paper; "same" padding: an odd padding is larger after the image
  v1_5  // the 3x3 convolution; equal padding on both sides
};

/// The part before layer1.
enum class ResnetStem {
  imagenet,  // 7x7 convolution and 3x3 max pooling, each with stride 2: for images of 224 x 224
  cifar      // one 3x3 convolution with stride 1: for images of 32 x 32
};

struct ResnetOptions {
  int depth = 50;  // 18 or 34 (blocks of two 3x3 convolutions), 50 or 101 (Bottlenecks)
  std::int64_t classes = 1000;
  ResnetVariant variant = ResnetVariant::v1_5;
  ResnetStem stem = ResnetStem::imagenet;
  std::int64_t image_channels = 3;
  std::int64_t width = 64;     // channels after the stem; 3x3 convolutions of layer1..4 have 1, 2, 4, 8 times as many
  double last_norm = 1;        // initial weight of the last BatchNorm of each block; 0 starts with identity blocks
  double norm_momentum = 0.1;  // weight of a micro-batch's statistics in BatchNorm's running statistics
};

/// The stem: "conv1", "bn1", ReLU and, for `imagenet`, max pooling. Takes [n, image_channels, H, W] to
/// [n, width, H/4, W/4] (`imagenet`) or [n, width, H, W] (`cifar`).
class ResnetHead : public Cell {
 public:
  explicit ResnetHead(const ResnetOptions& options);
  Value forward(Value x) override;

 private:
  ResnetOptions options_;
  Layer conv1_, bn1_;
};

/// A residual block: two or three convolutions, each with its BatchNorm ("conv1", "bn1", ...), plus the block's input.
/// If shapes differ, the input goes through a 1x1 convolution "shortcut" and "shortcut_bn".
class ResidualBlock : public Cell {
 public:
  struct Shape {
    std::int64_t in = 0;      // channels of the input
    std::int64_t inside = 0;  // channels of the 3x3 convolution
    std::int64_t out = 0;     // channels of the output
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

/// layer1 to layer4: the blocks "block0", "block1", ...; the first may have stride 2 and change the number of channels.
class ResidualGroup : public Cell {
 public:
  /// `number` is 1 to 4.
  ResidualGroup(const ResnetOptions& options, int number);
  Value forward(Value x) override;

 private:
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
};

/// ResNet-18, 34, 50 and 101. Input: images [n, image_channels, H, W]; output: logits [n, classes]. The public members
/// can be annotated: `net.layer3.pipeline_stage = 1;` places all of layer3; the mean over the image and `flatten` run
/// on the stage before them. Convolutions have Kaiming normal initial weights (fan-out, for ReLU), BatchNorms have
/// weight 1 (or last_norm) and bias 0. ResNet-50 has 25,557,032 parameters for 1000 classes.
///
/// BatchNorm computes its statistics per micro-batch, as a plain loop over micro-batches does. If the image shrinks to
/// 1 x 1, a micro-batch needs at least 2 samples in training.
class Resnet : public Cell {
 public:
  /// Throws ConfigError for invalid options.
  explicit Resnet(const ResnetOptions& options = {});
  Value forward(Value x) override;

  ResnetHead head;
  ResidualGroup layer1, layer2, layer3, layer4;
  Layer fc;
};

/// The name in a Resnet of the tensor that torchvision's ResNets call `name`: "layer1.block0.shortcut.weight" of
/// "layer1.0.downsample.0.weight". Names of a Resnet stay as they are.
std::string resnet_name(const std::string& torchvision_name);

}  // namespace penstock
