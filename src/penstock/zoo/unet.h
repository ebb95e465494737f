// A small U-Net (Ronneberger, Fischer, Brox: U-Net, arXiv 1505.04597), from images to images.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

struct UnetOptions {
  std::int64_t in_channels = 3;
  std::int64_t out_channels = 3;  // outputs per pixel: colours, or a logit per class
  std::int64_t width = 16;        // channels of the first level; each further level has twice as many
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

/// Takes [n, in_channels, H, W], returns [n, out_channels, H, W]. The encoder blocks "down0", "down1", ... are each
/// followed by a halving of the image; "middle" is the bottom; the decoder blocks ..., "up1", "up0" each enlarge the
/// image and also take the output of the encoder block of the same level. These skip connections go directly from an
/// early stage to a late one. "out" is a 1x1 convolution.
class Unet : public Cell {
 public:
  /// Throws ConfigError for invalid options.
  explicit Unet(const UnetOptions& options = {});
  Value forward(Value x) override;

 private:
  std::vector<std::unique_ptr<UnetBlock>> down_, up_;
  std::unique_ptr<UnetBlock> middle_;
  Layer out_;
};

}  // namespace penstock
