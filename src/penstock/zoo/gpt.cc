#include "penstock/zoo/gpt.h"

#include <cmath>

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "penstock/base/error.h"
#include "penstock/model/dropout.h"
#include "penstock/zoo/attention.h"

namespace penstock {
namespace {

constexpr double deviation = 0.02;

const GptOptions& check(const GptOptions& options) {
  const auto positive = [](const char* what, std::int64_t value) {
    require<ConfigError>(value >= 1, "a GPT with ", what, " = ", value, ": give at least 1");
  };
  positive("vocabulary", options.vocabulary);
  positive("context", options.context);
  positive("width", options.width);
  positive("layers", options.layers);
  positive("heads", options.heads);
  require<ConfigError>(options.width % options.heads == 0, "a GPT of width ", options.width, " with ", options.heads,
                       " heads: give a number of heads that divides the width");
  return options;
}

auto embedding(std::int64_t count, std::int64_t width) {
  return [count, width] {
    torch::nn::Embedding made(count, width);
    torch::nn::init::normal_(made->weight, 0, deviation);
    return made;
  };
}

struct DenseShape {
  std::int64_t in = 0, out = 0;
  bool bias = true;
};

auto linear(const DenseShape& shape, double standard_deviation = deviation) {
  return [shape, standard_deviation] {
    torch::nn::Linear made(torch::nn::LinearOptions(shape.in, shape.out).bias(shape.bias));
    torch::nn::init::normal_(made->weight, 0, standard_deviation);
    if (shape.bias) torch::nn::init::zeros_(made->bias);
    return made;
  };
}

auto layer_norm(std::int64_t width) {
  return [width] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); };
}

double residual_deviation(const GptOptions& options) {
  return deviation / std::sqrt(2 * static_cast<double>(options.layers));
}

struct Attention : Cell {
  explicit Attention(const GptOptions& options)
      : norm(add("norm", layer_norm(options.width))),
        qkv(add("qkv", linear({options.width, 3 * options.width}))),
        mix(add("mix", [heads = options.heads] { return CausalAttention(heads); })),
        projection(add("projection", linear({options.width, options.width}, residual_deviation(options)))),
        dropout(add("dropout", [p = options.dropout] { return Dropout(p); })) {}
  Value forward(Value x) override { return dropout(projection(mix(qkv(norm(x))))); }

  Layer norm, qkv, mix, projection, dropout;
};

struct FeedForward : Cell {
  explicit FeedForward(const GptOptions& options)
      : norm(add("norm", layer_norm(options.width))),
        up(add("up", linear({options.width, 4 * options.width}))),
        gelu(add("gelu", [] { return torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")); })),
        down(add("down", linear({4 * options.width, options.width}, residual_deviation(options)))),
        dropout(add("dropout", [p = options.dropout] { return Dropout(p); })) {}
  Value forward(Value x) override { return dropout(down(gelu(up(norm(x))))); }

  Layer norm, up, gelu, down, dropout;
};

}  // namespace

class Gpt::Block : public Cell {
 public:
  explicit Block(const GptOptions& options) : attention_(options), feed_forward_(options) {
    is_block = true;
    add("attention", attention_);
    add("feed_forward", feed_forward_);
  }
  Value forward(Value x) override {
    x = x + attention_(x);
    return x + feed_forward_(x);
  }

 private:
  Attention attention_;
  FeedForward feed_forward_;
};

Gpt::Gpt(const GptOptions& options)
    : token_embedding(add("token_embedding", embedding(check(options).vocabulary, options.width))),
      position_embedding(add("position_embedding", embedding(options.context, options.width))),
      dropout(add("dropout", [p = options.dropout] { return Dropout(p); })),
      norm(add("norm", layer_norm(options.width))),
      head(add("head", linear({options.width, options.vocabulary, false}))),
      options_(options) {
  if (options.tied_head) head.tie("weight", token_embedding, "weight");
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(options));
    add(say("block", i), *blocks_.back());
  }
}

Gpt::~Gpt() = default;

Value Gpt::forward(Value tokens) {
  const Value positions = apply(
      "positions", [context = options_.context](const Tensors& x) { return next_positions(x[0], context); }, {tokens});
  Value x = dropout(token_embedding(tokens) + position_embedding(positions));
  for (const auto& block : blocks_) x = (*block)(x);
  return head(norm(x));
}

Cell& Gpt::block(std::int64_t index) {
  require<ConfigError>(index >= 0 && index < options_.layers, "block ", index, " of a GPT of ", options_.layers,
                       " layers: they count from 0");
  return *blocks_[static_cast<std::size_t>(index)];
}

}  // namespace penstock
