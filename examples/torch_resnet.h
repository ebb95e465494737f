// A residual network as an ordinary torch module, without any code for pipelines.
#pragma once

#include <torch/torch.h>

struct BlockShape {
  std::int64_t in, inside, out, stride;
  bool bottleneck;  // 1x1, 3x3, 1x1 instead of two 3x3
};

/// Convolutions with BatchNorms, and a shortcut.
struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  explicit BlockImpl(const BlockShape& block_shape) : shape(block_shape) { reset(); }

  void reset() override {
    body = register_module("body", torch::nn::Sequential());
    if (shape.bottleneck) {
      append(body, shape.in, shape.inside, 1, 1);
      body->push_back(torch::nn::ReLU());
      append(body, shape.inside, shape.inside, 3, shape.stride);
      body->push_back(torch::nn::ReLU());
      append(body, shape.inside, shape.out, 1, 1);
    } else {
      append(body, shape.in, shape.inside, 3, shape.stride);
      body->push_back(torch::nn::ReLU());
      append(body, shape.inside, shape.out, 3, 1);
    }
    around = register_module("around", torch::nn::Sequential());
    if (shape.in != shape.out || shape.stride != 1) append(around, shape.in, shape.out, 1, shape.stride);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body->forward(x) + (around->is_empty() ? x : around->forward(x)));
  }

  /// Appends a convolution with Kaiming initial weights and a BatchNorm.
  static void append(torch::nn::Sequential& to, std::int64_t in, std::int64_t out, std::int64_t size,
                     std::int64_t stride) {
    torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
    torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
    to->push_back(convolution);
    to->push_back(torch::nn::BatchNorm2d(out));
  }

  BlockShape shape;
  torch::nn::Sequential body{nullptr}, around{nullptr};
};
TORCH_MODULE(Block);

/// The standard ResNet-50 (depth 50, 1000 classes, for large images), or a ResNet-18 for images of 32 x 32.
struct ResnetModule : torch::nn::Module {
  ResnetModule(int depth, std::int64_t width, std::int64_t classes) {
    const bool large = depth == 50;
    auto stem = large ? torch::nn::Conv2dOptions(3, width, 7).stride(2).padding(3)
                      : torch::nn::Conv2dOptions(3, width, 3).padding(1);
    register_module("conv1", torch::nn::Conv2d(stem.bias(false)));
    register_module("bn1", torch::nn::BatchNorm2d(width));
    register_module("relu", torch::nn::ReLU());
    if (large)
      register_module("maxpool", torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
    else
      register_module("maxpool", torch::nn::Identity());
    std::int64_t in = width;
    for (int layer = 0; layer < 4; ++layer) {
      const int blocks_of_50[] = {3, 4, 6, 3};
      const std::int64_t inside = width << layer, out = large ? 4 * inside : inside;
      torch::nn::Sequential blocks;
      for (int block = 0; block < (large ? blocks_of_50[layer] : 2); ++block) {
        blocks->push_back(Block(BlockShape{in, inside, out, layer > 0 && block == 0 ? 2 : 1, large}));
        in = out;
      }
      register_module("layer" + std::to_string(layer + 1), blocks);
    }
    register_module("avgpool", torch::nn::AdaptiveAvgPool2d(1));
    register_module("fc", torch::nn::Linear(in, classes));
  }
};
