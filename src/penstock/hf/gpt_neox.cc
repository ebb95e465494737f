// GPT-NeoX (Pythia): both branches of a block read the same input, rotary positions in a part of each head, and one
// projection to the queries, keys and values of each head.
#include <cmath>

#include "penstock/base/error.h"
#include "penstock/hf/attention.h"
#include "penstock/hf/hf_layers.h"
#include "penstock/model/dropout.h"
#include "penstock/model/functions.h"

namespace penstock::hf {
namespace {

struct NeoxBlockOptions {
  std::int64_t width = 0, inner = 0;
  double epsilon = 1e-5, dropout = 0;
  bool is_parallel = true;  // whether the feed-forward branch reads the block's input instead of attention's output
  bool has_bias = true;     // of attention's projections
  Activation activation = Activation::gelu;
  AttentionOptions attention = {};
  Initial initial = {};
};

struct NeoxAttention : Cell {
  explicit NeoxAttention(const NeoxBlockOptions& options)
      : query_key_value(add_factory("query_key_value",
                                    linear({options.width, 3 * options.width, options.has_bias}, options.initial))),
        attend(add_factory("attend", attention(options.attention))),
        dense(add_factory("dense", linear({options.width, options.width, options.has_bias}, options.initial))),
        heads(options.attention.heads) {}

  Values forward_many(Values inputs) override {
    // [n, T, heads * 3 * size] to three of [n, T, heads, size].
    Values arguments = apply(
        "split_heads",
        [heads = heads](const Tensors& x) {
          return x[0].unflatten(2, {heads, 3, -1}).unbind(3);
        },
        {query_key_value(inputs[0])}, 3);
    arguments.insert(arguments.end(), inputs.begin() + 1, inputs.end());
    return {dense(attend.call(arguments).front())};
  }

  Layer query_key_value, attend, dense;
  std::int64_t heads;
};

struct NeoxFeedForward : Cell {
  explicit NeoxFeedForward(const NeoxBlockOptions& options)
      : up(add_factory("dense_h_to_4h", linear({options.width, options.inner}, options.initial))),
        down(add_factory("dense_4h_to_h", linear({options.inner, options.width}, options.initial))),
        activation(options.activation) {}

  Value forward(Value x) override { return down(activate(up(x), activation)); }

  Layer up, down;
  Activation activation;
};

class NeoxBlock : public Cell {
 public:
  explicit NeoxBlock(const NeoxBlockOptions& options)
      : input_layernorm_(add_factory("input_layernorm", layer_norm(options.width, options.epsilon))),
        attention_(options),
        post_attention_dropout_(add("post_attention_dropout", [p = options.dropout] { return Dropout(p); })),
        post_attention_layernorm_(add_factory("post_attention_layernorm", layer_norm(options.width, options.epsilon))),
        mlp_(options),
        post_mlp_dropout_(add("post_mlp_dropout", [p = options.dropout] { return Dropout(p); })),
        is_parallel_(options.is_parallel) {
    add("attention", attention_);
    add("mlp", mlp_);
  }

  Values forward_many(Values inputs) override {
    const Value x = inputs[0];
    inputs[0] = input_layernorm_(x);
    const Value attended = post_attention_dropout_(attention_(inputs).front());
    const Value y = attended + x;
    return {post_mlp_dropout_(mlp_(post_attention_layernorm_(is_parallel_ ? x : y))) + y};
  }

 private:
  Layer input_layernorm_;
  NeoxAttention attention_;
  Layer post_attention_dropout_, post_attention_layernorm_;
  NeoxFeedForward mlp_;
  Layer post_mlp_dropout_;
  bool is_parallel_;
};

class Neox : public CausalLm {
 public:
  Neox(const ConfigFile& file, const Config& config, const Initial& initial)
      : CausalLm(config, "layers"),
        embed_in_(base().add_factory("embed_in", embedding({config.vocabulary, config.width}, initial))),
        emb_dropout_(base().add("emb_dropout", [p = file.number("hidden_dropout", 0)] { return Dropout(p); })),
        final_layer_norm_(
            base().add_factory("final_layer_norm", layer_norm(config.width, file.number("layer_norm_eps", 1e-5)))),
        embed_out_(add_factory("embed_out", linear({config.width, config.vocabulary, false}, initial))) {
    if (config.tied_head) embed_out_.tie("weight", embed_in_, "weight");
    require<ConfigError>(config.width % config.heads == 0, file.place(), " has 'hidden_size' = ", config.width,
                         " and 'num_attention_heads' = ", config.heads, ": the second must divide the first");
    const std::int64_t size = config.width / config.heads;
    const double share = file.part("rope_parameters").number("partial_rotary_factor", file.number("rotary_pct", 0.25));
    const RotaryReading reading{.size = static_cast<std::int64_t>(static_cast<double>(size) * share),
                                .theta_key = "rotary_emb_base"};
    const NeoxBlockOptions options{.width = config.width,
                                   .inner = file.size("intermediate_size"),
                                   .epsilon = file.number("layer_norm_eps", 1e-5),
                                   .dropout = file.number("hidden_dropout", 0),
                                   .is_parallel = file.flag("use_parallel_residual", true),
                                   .has_bias = file.flag("attention_bias", true),
                                   .activation = activation_named(file.text("hidden_act", "gelu"), file.place()),
                                   .attention = {.heads = config.heads,
                                                 .key_value_heads = config.heads,
                                                 .head_size = size,
                                                 .scale = 1 / std::sqrt(static_cast<double>(size)),
                                                 .dropout = file.number("attention_dropout", 0),
                                                 .rotary = std::make_shared<const Rotary>(read_rotary(file, reading))},
                                   .initial = initial};
    for (std::int64_t i = 0; i < config.layers; ++i) add_block(std::make_unique<NeoxBlock>(options));
  }

 private:
  Value embed(const Values& inputs) override { return emb_dropout_(embed_in_(inputs[0])); }
  Value head(const Value& x) override { return embed_out_(final_layer_norm_(x)); }

  Layer embed_in_, emb_dropout_, final_layer_norm_, embed_out_;
};

}  // namespace

std::unique_ptr<CausalLm> make_gpt_neox(const ConfigFile& file, Init init) {
  const Config config = read_common(file, {.prefix = "gpt_neox"});
  return std::make_unique<Neox>(file, config, Initial{init == Init::random, config.deviation});
}

}  // namespace penstock::hf
