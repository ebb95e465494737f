#include "penstock/zoo/vit.h"

#include <cmath>

#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "penstock/base/error.h"
#include "penstock/model/causal_attention.h"

namespace penstock {
namespace {

const VitOptions& check(const VitOptions& options) {
  const auto positive = [](const char* what, std::int64_t value) {
    require<ConfigError>(value >= 1, "a Vision Transformer with ", what, " = ", value, ": pass at least 1");
  };
  positive("classes", options.classes);
  positive("image channels", options.image_channels);
  positive("patch", options.patch);
  positive("width", options.width);
  positive("layers", options.layers);
  positive("heads", options.heads);
  require<ConfigError>(options.image_side >= options.patch && options.image_side % options.patch == 0, "images of ",
                       options.image_side, " pixels a side, in patches of ", options.patch,
                       ": pass a multiple of the patch");
  require<ConfigError>(options.width % options.heads == 0, "a Vision Transformer of width ", options.width, " with ",
                       options.heads, " heads: pass a number of heads that divides the width");
  return options;
}

std::int64_t patches_of(const VitOptions& options) {
  const std::int64_t side = options.image_side / options.patch;
  return side * side;
}

struct VitWidths {
  std::int64_t in = 1, out = 1;
};

auto dense(const VitWidths& widths) {
  return [widths] {
    torch::nn::Linear made(widths.in, widths.out);
    torch::nn::init::xavier_uniform_(made->weight);
    torch::nn::init::normal_(made->bias, 0, 1e-6);
    return made;
  };
}

auto vit_norm(std::int64_t width) {
  return [width] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-6)); };
}

/// Queries, keys and values [n, T, 3 * width] to [n, T, width]: every position attends to all.
torch::Tensor attend(const torch::Tensor& x, std::int64_t heads) {
  const auto [queries, keys, values] = split_heads(x, heads);
  return merged_heads(torch::scaled_dot_product_attention(queries, keys, values));
}

struct VitAttention : Cell {
  explicit VitAttention(const VitOptions& options)
      : in_proj(add("in_proj", dense({options.width, 3 * options.width}))),
        out_proj(add("out_proj", dense({options.width, options.width}))),
        heads(options.heads) {}
  Value forward(Value x) override {
    return out_proj(apply(
        "attend", [heads = heads](const Tensors& all) { return attend(all[0], heads); }, Values{in_proj(x)}));
  }
  Layer in_proj, out_proj;
  std::int64_t heads;
};

struct VitMlp : Cell {
  explicit VitMlp(std::int64_t width)
      : up(add("0", dense({width, 4 * width}))), down(add("3", dense({4 * width, width}))) {}
  Value forward(Value x) override { return down(gelu(up(x))); }
  Layer up, down;
};

struct VitBlock : Cell {
  explicit VitBlock(const VitOptions& options)
      : ln_1(add("ln_1", vit_norm(options.width))),
        ln_2(add("ln_2", vit_norm(options.width))),
        self_attention(options),
        mlp(options.width) {
    is_block = true;
    add("self_attention", self_attention);
    add("mlp", mlp);
  }
  Value forward(Value x) override {
    x = x + self_attention(ln_1(x));
    return x + mlp(ln_2(x));
  }
  Layer ln_1, ln_2;
  VitAttention self_attention;
  VitMlp mlp;
};

struct VitBlocks : Cell {
  explicit VitBlocks(const VitOptions& options) {
    for (std::int64_t i = 0; i < options.layers; ++i) {
      all.push_back(std::make_unique<VitBlock>(options));
      add(say("encoder_layer_", i), *all.back());
    }
  }
  Value forward(Value x) override {
    for (const auto& block : all) x = (*block)(x);
    return x;
  }
  std::vector<std::unique_ptr<VitBlock>> all;
};

}  // namespace

struct Vit::Encoder : Cell {
  explicit Encoder(const VitOptions& options)
      : pos_embedding(add_parameter("pos_embedding",
                                    [length = patches_of(options) + 1, width = options.width] {
                                      return torch::randn({1, length, width}) * 0.02;
                                    })),
        layers(options),
        ln(add("ln", vit_norm(options.width))) {
    add("layers", layers);
  }
  Value forward(Value x) override { return ln(layers(x + pos_embedding.value())); }

  Parameter pos_embedding;
  VitBlocks layers;
  Layer ln;
};

struct Vit::Heads : Cell {
  explicit Heads(const VitOptions& options)
      : head(add("head", [in = options.width, out = options.classes] {
          torch::nn::Linear made(in, out);
          torch::nn::init::zeros_(made->weight);
          torch::nn::init::zeros_(made->bias);
          return made;
        })) {}
  Value forward(Value x) override { return head(x); }
  Layer head;
};

Vit::Vit(const VitOptions& options)
    : options_(check(options)),
      class_token_(add_parameter("class_token",
                                 [width = options.width] {
                                   return torch::zeros({1, 1, width});
                                 })),
      conv_proj_(add(
          "conv_proj",
          [options] {
            torch::nn::Conv2d made(
                torch::nn::Conv2dOptions(options.image_channels, options.width, options.patch).stride(options.patch));
            const auto inputs = static_cast<double>(options.image_channels * options.patch * options.patch);
            torch::nn::init::normal_(made->weight, 0, std::sqrt(1 / inputs));
            torch::nn::init::zeros_(made->bias);
            return made;
          })),
      encoder_(std::make_unique<Encoder>(options)),
      heads_(std::make_unique<Heads>(options)) {
  add("encoder", *encoder_);
  add("heads", *heads_);
}

Vit::~Vit() = default;

Value Vit::forward(Value images) {
  const Value patches = transpose(flatten(conv_proj_(images), 2), 1, 2);
  const Value tokens = apply(
      "with_class_token",
      [](const Tensors& x) {
        return torch::cat({x[1].expand({x[0].size(0), -1, -1}), x[0]}, 1);
      },
      Values{patches, class_token_.value()});
  const Value classes = slice((*encoder_)(tokens), {.dimension = 1, .begin = 0, .end = 1});
  return (*heads_)(squeeze(classes, 1));
}

std::string vit_name(const std::string& torchvision_name) {
  constexpr std::string_view packed = "in_proj_";
  std::string name = torchvision_name;
  if (const std::size_t at = name.find(packed); at != std::string::npos) name[at + packed.size() - 1] = '.';
  return name;
}

}  // namespace penstock
