// A small U-shaped network (Ronneberger, Fischer, Brox: U-Net, arXiv 1505.04597): images in, images out.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

struct UnetOptions {
  std::int64_t in_channels = 3;
  std::int64_t out_channels = 3;  // what each pixel is given: colours, or a logit per class
  std::int64_t width = 16;        // channels of the first level; each level below has twice as many
  int levels = 3;                 // how often the image is halved
};

/// Two 3x3 convolutions, each followed by a ReLU.
class UnetBlock : public Cell {
 public:
  struct Channels {
    std::int64_t in = 1;
    std::int64_t out = 1;
  };
  explicit UnetBlock(const Channels& channels);
  Value forward(Value x) override;

 private:
  Layer conv1_, conv2_;
};

/// [n, in_channels, H, W] to [n, out_channels, H, W]. On the way down ("down0", "down1", ...) every level halves the
/// image, "middle" is the bottom, and on the way up ("up2", "up1", ...) every level enlarges it and looks again at what
/// the same level saw on the way down. These skip connections go straight from an early stage to a late one. "out" is a
/// 1x1 convolution.
class Unet : public Cell {
 public:
  /// Throws ConfigError for options that cannot be.
  explicit Unet(const UnetOptions& options = {});
  Value forward(Value x) override;

 private:
  std::vector<std::unique_ptr<UnetBlock>> down_, up_;
  std::unique_ptr<UnetBlock> middle_;
  Layer out_;
};

}  // namespace penstock
