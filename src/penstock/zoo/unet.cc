#include "penstock/zoo/unet.h"

#include <torch/nn/functional/upsampling.h>
#include <torch/nn/modules/conv.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr int most_levels = 10;

auto convolution(std::int64_t in, std::int64_t out, std::int64_t size) {
  return [in, out, size] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, size).padding(size / 2)); };
}

UnetOptions check(const UnetOptions& options) {
  require<ConfigError>(options.in_channels >= 1 && options.out_channels >= 1, "a U-Net from ", options.in_channels,
                       " to ", options.out_channels, " channels: both are at least 1");
  require<ConfigError>(options.width >= 1, "a U-Net of width ", options.width, ": it needs at least 1 channel");
  require<ConfigError>(options.levels >= 1 && options.levels <= most_levels, "a U-Net of ", options.levels,
                       " levels: give 1 to ", most_levels);
  return options;
}

Value halve(const Value& image) {
  return apply(
      "halve", [](const Tensors& x) { return torch::max_pool2d(x[0], 2, 2, 0, 1, /*ceil_mode=*/true); }, Values{image});
}

/// Enlarges `below` to the size of `skip` and concatenates the channels of both.
Value join(const Value& below, const Value& skip) {
  return apply(
      "join",
      [](const Tensors& x) {
        const std::vector<std::int64_t> size{x[1].size(2), x[1].size(3)};
        const auto options = torch::nn::functional::InterpolateFuncOptions().size(size).mode(torch::kNearest);
        return torch::cat({torch::nn::functional::interpolate(x[0], options), x[1]}, 1);
      },
      Values{below, skip});
}

}  // namespace

UnetBlock::UnetBlock(const Channels& channels)
    : conv1_(add("conv1", convolution(channels.in, channels.out, 3))),
      conv2_(add("conv2", convolution(channels.out, channels.out, 3))) {}

Value UnetBlock::forward(Value x) { return relu(conv2_(relu(conv1_(x)))); }

Unet::Unet(const UnetOptions& options) : out_(add("out", convolution(check(options).width, options.out_channels, 1))) {
  const auto block = [this](const std::string& name, const UnetBlock::Channels& channels) {
    auto made = std::make_unique<UnetBlock>(channels);
    add(name, *made);
    return made;
  };
  std::int64_t in = options.in_channels, width = options.width;
  for (int level = 0; level < options.levels; ++level, in = width, width *= 2)
    down_.push_back(block(say("down", level), {in, width}));
  middle_ = block("middle", {in, width});
  up_.resize(down_.size());
  for (int level = options.levels; level-- > 0;) {
    const std::int64_t below = width;
    width /= 2;
    up_[static_cast<std::size_t>(level)] = block(say("up", level), {below + width, width});
  }
}

Value Unet::forward(Value x) {
  Values skips;
  for (const auto& down : down_) {
    skips.push_back((*down)(x));
    x = halve(skips.back());
  }
  x = (*middle_)(x);
  for (std::size_t level = up_.size(); level-- > 0;) x = (*up_[level])(join(x, skips[level]));
  return out_(x);
}

}  // namespace penstock
