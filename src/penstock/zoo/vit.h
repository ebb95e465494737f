// Vision Transformers (Dosovitskiy and others: An Image is Worth 16x16 Words, arXiv 2010.11929).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

/// The defaults are ViT-B/16.
struct VitOptions {
  std::int64_t classes = 1000;
  std::int64_t image_channels = 3;
  std::int64_t image_side = 224;  // in pixels; a multiple of the patch
  std::int64_t patch = 16;        // side in pixels
  std::int64_t width = 768;       // channels of the residual stream
  std::int64_t layers = 12;       // blocks
  std::int64_t heads = 12;        // must divide the width
};

/// Input: images [n, image_channels, image_side, image_side]; output: logits [n, classes]. Patches and a class token,
/// with positions; blocks of attention and a feed-forward part of four times the width, each after a LayerNorm; a
/// LayerNorm, and the head of the class token. Names are torchvision's (vit_name):
///
///   class_token conv_proj encoder.pos_embedding
///   encoder.layers.encoder_layer_0.ln_1 .self_attention.in_proj .self_attention.out_proj .ln_2 .mlp.0 .mlp.3   ...
///   encoder.ln heads.head
///
/// Initial weights are torchvision's as well: among them a head of zeros.
class Vit : public Cell {
 public:
  /// Throws ConfigError for invalid options.
  explicit Vit(const VitOptions& options = {});
  ~Vit() override;
  Value forward(Value images) override;

 private:
  struct Encoder;
  struct Heads;

  VitOptions options_;
  Parameter class_token_;
  Layer conv_proj_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Heads> heads_;
};

/// The name in a Vit of the tensor that torchvision's Vision Transformers call `name`.
std::string vit_name(const std::string& torchvision_name);

}  // namespace penstock
