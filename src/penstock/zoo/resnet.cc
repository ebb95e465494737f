#include "penstock/zoo/resnet.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <utility>

#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// A square convolution or pooling window.
struct PaddedWindow {
  std::int64_t size = 1;
  std::int64_t stride = 1;

  std::int64_t equal_border() const { return (size - 1) / 2; }
};

/// "Same" padding: the output of the window has size ceil(size / stride). An odd padding is larger at the end.
torch::Tensor pad_same(const torch::Tensor& image, const PaddedWindow& window) {
  const auto border = [&](std::int64_t length) {
    const std::int64_t outputs = (length + window.stride - 1) / window.stride;
    return std::max<std::int64_t>(0, (outputs - 1) * window.stride + window.size - length);
  };
  const std::int64_t rows = border(image.size(2)), columns = border(image.size(3));
  return torch::nn::functional::pad(
      image, torch::nn::functional::PadFuncOptions({columns / 2, columns - columns / 2, rows / 2, rows - rows / 2}));
}

/// Padding that may be uneven is a node of its own; even padding is done by the convolution.
bool pads_apart(ResnetVariant variant, const PaddedWindow& window) {
  return variant == ResnetVariant::v1 && window.stride > 1 && window.size > 1;
}

Value padded(const Value& image, ResnetVariant variant, const PaddedWindow& window) {
  if (!pads_apart(variant, window)) return image;
  return apply(
      "pad", [window](const Tensors& x) { return pad_same(x[0], window); }, Values{image});
}

struct Channels {
  std::int64_t in = 1;
  std::int64_t out = 1;
};

auto convolution(const Channels& channels, const PaddedWindow& window, ResnetVariant variant) {
  const std::int64_t border = pads_apart(variant, window) ? 0 : window.equal_border();
  return [channels, window, border] {
    torch::nn::Conv2d made(torch::nn::Conv2dOptions(channels.in, channels.out, window.size)
                               .stride(window.stride)
                               .padding(border)
                               .bias(false));
    torch::nn::init::kaiming_normal_(made->weight, 0, torch::kFanOut, torch::kReLU);
    return made;
  };
}

struct NormStart {
  double momentum = 0.1;
  double scale = 1;
};

auto norm(std::int64_t channels, const NormStart& start) {
  return [channels, start] {
    torch::nn::BatchNorm2d made(torch::nn::BatchNorm2dOptions(channels).momentum(start.momentum));
    torch::nn::init::constant_(made->weight, start.scale);
    return made;
  };
}

constexpr PaddedWindow stem_pool{.size = 3, .stride = 2};

PaddedWindow stem_window(ResnetStem stem) {
  return stem == ResnetStem::imagenet ? PaddedWindow{.size = 7, .stride = 2} : PaddedWindow{.size = 3, .stride = 1};
}

/// What the depth decides.
struct Depth {
  int layers;
  std::array<int, 4> blocks;  // of layer1 to layer4
  bool is_deep;               // the blocks are Bottlenecks
};
constexpr std::array<Depth, 4> depths{
    {{18, {2, 2, 2, 2}, false}, {34, {3, 4, 6, 3}, false}, {50, {3, 4, 6, 3}, true}, {101, {3, 4, 23, 3}, true}}};

const Depth& depth_of(const ResnetOptions& options) {
  const auto* found = std::ranges::find(depths, options.depth, &Depth::layers);
  require<ConfigError>(found != depths.end(), "a ResNet of depth ", options.depth, ": there are 18, 34, 50 and 101");
  return *found;
}

ResnetOptions check(const ResnetOptions& options) {
  (void)depth_of(options);
  require<ConfigError>(options.classes >= 1, "a ResNet for ", options.classes, " classes: it needs at least 1");
  require<ConfigError>(options.image_channels >= 1, "images of ", options.image_channels,
                       " channels: they have at least 1");
  require<ConfigError>(options.width >= 1, "a ResNet of width ", options.width, ": it needs at least 1 channel");
  require<ConfigError>(options.norm_momentum >= 0 && options.norm_momentum <= 1, "BatchNorm momentum ",
                       options.norm_momentum, ": give the share of the new statistics, 0 to 1");
  return options;
}

}  // namespace

ResnetHead::ResnetHead(const ResnetOptions& options)
    : options_(check(options)),
      conv1_(add("conv1",
                 convolution({options.image_channels, options.width}, stem_window(options.stem), options.variant))),
      bn1_(add("bn1", norm(options.width, {.momentum = options.norm_momentum}))) {}

Value ResnetHead::forward(Value x) {
  x = relu(bn1_(conv1_(padded(x, options_.variant, stem_window(options_.stem)))));
  if (options_.stem == ResnetStem::cifar) return x;
  // After a ReLU, zero padding does not change a maximum.
  const bool apart = pads_apart(options_.variant, stem_pool);
  return apply(
      "pool",
      [apart](const Tensors& image) {
        return torch::nn::functional::max_pool2d(image[0], torch::nn::functional::MaxPool2dFuncOptions(stem_pool.size)
                                                               .stride(stem_pool.stride)
                                                               .padding(apart ? 0 : stem_pool.equal_border()));
      },
      Values{padded(x, options_.variant, stem_pool)});
}

struct ResidualBlock::Step {
  PaddedWindow window;
  Layer convolution, norm;

  Value operator()(const Value& x, ResnetVariant variant) const {
    return norm(convolution(padded(x, variant, window)));
  }
};

ResidualBlock::ResidualBlock(const Shape& shape, const ResnetOptions& options) : variant_(options.variant) {
  const auto step = [&](const std::string& convolution_name, const std::string& norm_name, const Channels& channels,
                        const PaddedWindow& window) {
    const bool is_last = norm_name == (depth_of(options).is_deep ? "bn3" : "bn2");
    return Step{window, add(convolution_name, convolution(channels, window, options.variant)),
                add(norm_name,
                    norm(channels.out, {.momentum = options.norm_momentum, .scale = is_last ? options.last_norm : 1}))};
  };
  if (!depth_of(options).is_deep) {
    steps_.push_back(step("conv1", "bn1", {shape.in, shape.inside}, {.size = 3, .stride = shape.stride}));
    steps_.push_back(step("conv2", "bn2", {shape.inside, shape.out}, {.size = 3}));
  } else {
    const bool first_halves = options.variant == ResnetVariant::v1;
    steps_.push_back(step("conv1", "bn1", {shape.in, shape.inside}, {.stride = first_halves ? shape.stride : 1}));
    steps_.push_back(
        step("conv2", "bn2", {shape.inside, shape.inside}, {.size = 3, .stride = first_halves ? 1 : shape.stride}));
    steps_.push_back(step("conv3", "bn3", {shape.inside, shape.out}, {}));
  }
  if (shape.in != shape.out || shape.stride != 1)
    shortcut_.push_back(step("shortcut", "shortcut_bn", {shape.in, shape.out}, {.stride = shape.stride}));
}

ResidualBlock::~ResidualBlock() = default;

Value ResidualBlock::forward(Value x) {
  Value inner = x;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (i > 0) inner = relu(inner);
    inner = steps_[i](inner, variant_);
  }
  return relu(inner + (shortcut_.empty() ? x : shortcut_.front()(x, variant_)));
}

ResidualGroup::ResidualGroup(const ResnetOptions& options, int number) {
  const auto at = static_cast<std::size_t>(number - 1);
  const int blocks = depth_of(options).blocks[at];
  const std::int64_t expansion = depth_of(options).is_deep ? 4 : 1;
  const std::int64_t inside = options.width << at;
  ResidualBlock::Shape shape{.in = number == 1 ? options.width : inside / 2 * expansion,
                             .inside = inside,
                             .out = inside * expansion,
                             .stride = number == 1 ? 1 : 2};
  for (int i = 0; i < blocks; ++i) {
    blocks_.push_back(std::make_unique<ResidualBlock>(shape, options));
    add(say("block", i), *blocks_.back());
    shape.in = shape.out;
    shape.stride = 1;
  }
}

Value ResidualGroup::forward(Value x) {
  for (const auto& block : blocks_) x = (*block)(x);
  return x;
}

Resnet::Resnet(const ResnetOptions& options)
    : head(options),
      layer1(options, 1),
      layer2(options, 2),
      layer3(options, 3),
      layer4(options, 4),
      fc(add("fc", [in = options.width * (depth_of(options).is_deep ? 32 : 8), out = options.classes] {
        return torch::nn::Linear(in, out);
      })) {
  add("head", head);
  add("layer1", layer1);
  add("layer2", layer2);
  add("layer3", layer3);
  add("layer4", layer4);
}

Value Resnet::forward(Value x) { return fc(mean(layer4(layer3(layer2(layer1(head(x))))), {2, 3})); }

std::string resnet_name(const std::string& torchvision_name) {
  std::istringstream parts(torchvision_name);
  std::string name, part, before;
  while (std::getline(parts, part, '.')) {
    const std::string last = std::exchange(before, part);
    if (last == "downsample")
      part = part == "0" ? "shortcut" : "shortcut_bn";
    else if (last.starts_with("layer") && part.find_first_not_of("0123456789") == std::string::npos)
      part = "block" + part;
    else if (last.empty() && (part == "conv1" || part == "bn1"))
      part = "head." + part;
    if (before != "downsample") name += (name.empty() ? "" : ".") + part;
  }
  return name;
}

}  // namespace penstock
