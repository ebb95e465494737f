// GPT-2: learned positions, LayerNorm, one projection to queries, keys and values; weights of projections are stored as
// [in, out].
#include <cmath>

#include "penstock/base/error.h"
#include "penstock/hf/attention.h"
#include "penstock/hf/hf_layers.h"
#include "penstock/model/dropout.h"
#include "penstock/model/functions.h"

namespace penstock::hf {
namespace {

LayerFactory dropout(double p) {
  return layer_factory([p] { return Dropout(p); });
}

struct Gpt2BlockOptions {
  std::int64_t width = 0, inner = 0;
  double epsilon = 1e-5, dropout = 0;
  Activation activation = Activation::gelu_tanh;
  AttentionOptions attention = {};
  Initial initial = {}, into_residual = {};  // the second for projections into the residual stream
};

struct Gpt2Attention : Cell {
  explicit Gpt2Attention(const Gpt2BlockOptions& options)
      : c_attn(add_factory("c_attn", conv1d({options.width, 3 * options.width}, options.initial))),
        attend(add_factory("attend", attention(options.attention))),
        c_proj(add_factory("c_proj", conv1d({options.width, options.width}, options.into_residual))),
        resid_dropout(add_factory("resid_dropout", dropout(options.dropout))) {}

  Values forward_many(Values inputs) override {
    Values arguments = split(c_attn(inputs[0]), 3, 2);
    arguments.insert(arguments.end(), inputs.begin() + 1, inputs.end());
    return {resid_dropout(c_proj(attend.call(arguments).front()))};
  }

  Layer c_attn, attend, c_proj, resid_dropout;
};

struct Gpt2FeedForward : Cell {
  explicit Gpt2FeedForward(const Gpt2BlockOptions& options)
      : c_fc(add_factory("c_fc", conv1d({options.width, options.inner}, options.initial))),
        c_proj(add_factory("c_proj", conv1d({options.inner, options.width}, options.into_residual))),
        dropped(add_factory("dropout", dropout(options.dropout))),
        activation(options.activation) {}

  Value forward(Value x) override { return dropped(c_proj(activate(c_fc(x), activation))); }

  Layer c_fc, c_proj, dropped;
  Activation activation;
};

class Gpt2Block : public Cell {
 public:
  explicit Gpt2Block(const Gpt2BlockOptions& options)
      : ln_1_(add_factory("ln_1", layer_norm(options.width, options.epsilon))),
        attn_(options),
        ln_2_(add_factory("ln_2", layer_norm(options.width, options.epsilon))),
        mlp_(options) {
    add("attn", attn_);
    add("mlp", mlp_);
  }

  Values forward_many(Values inputs) override {
    const Value x = inputs[0];
    inputs[0] = ln_1_(x);
    const Value y = x + attn_(inputs).front();
    return {y + mlp_(ln_2_(y))};
  }

 private:
  Layer ln_1_;
  Gpt2Attention attn_;
  Layer ln_2_;
  Gpt2FeedForward mlp_;
};

class Gpt2 : public CausalLm {
 public:
  Gpt2(const ConfigFile& file, const Config& config, const Initial& initial)
      : CausalLm(config, "h"),
        wte_(base().add_factory("wte", embedding({config.vocabulary, config.width}, initial))),
        wpe_(base().add_factory("wpe", embedding({config.context, config.width}, initial))),
        drop_(base().add_factory("drop", dropout(file.number("embd_pdrop", 0.1)))),
        ln_f_(base().add_factory("ln_f", layer_norm(config.width, file.number("layer_norm_epsilon", 1e-5)))),
        lm_head_(add_factory("lm_head", linear({config.width, config.vocabulary, false}, initial))) {
    if (config.tied_head) lm_head_.tie("weight", wte_, "weight");
    require<ConfigError>(config.width % config.heads == 0, file.place(), " has 'n_embd' = ", config.width,
                         " and 'n_head' = ", config.heads, ": the second must divide the first");
    const std::int64_t size = config.width / config.heads;
    const double scale = file.flag("scale_attn_weights", true) ? 1 / std::sqrt(static_cast<double>(size)) : 1;
    Gpt2BlockOptions options{.width = config.width,
                             .inner = file.size("n_inner", 4 * config.width),
                             .epsilon = file.number("layer_norm_epsilon", 1e-5),
                             .dropout = file.number("resid_pdrop", 0.1),
                             .activation = activation_named(file.text("activation_function", "gelu_new"), file.place()),
                             .attention = {.heads = config.heads,
                                           .key_value_heads = config.heads,
                                           .head_size = size,
                                           .dropout = file.number("attn_pdrop", 0.1)},
                             .initial = initial,
                             .into_residual = initial};
    options.into_residual.deviation /= std::sqrt(2 * static_cast<double>(config.layers));
    const bool by_depth = file.flag("scale_attn_by_inverse_layer_idx", false);
    for (std::int64_t i = 0; i < config.layers; ++i) {
      options.attention.scale = by_depth ? scale / static_cast<double>(i + 1) : scale;
      add_block(std::make_unique<Gpt2Block>(options));
    }
  }

 private:
  Value embed(const Values& inputs) override {
    const Value positions = apply("positions", positions_of, inputs);
    const Value of_tokens = wte_(inputs[0]);
    const Value of_positions = wpe_(positions);
    return drop_(of_tokens + of_positions);
  }
  Value head(const Value& x) override { return lm_head_(ln_f_(x)); }

  Layer wte_, wpe_, drop_, ln_f_, lm_head_;
};

}  // namespace

std::unique_ptr<CausalLm> make_gpt2(const ConfigFile& file, Init init) {
  file.refuse("add_cross_attention");
  const Config config = read_common(file, {.prefix = "transformer", .tied_head = true});
  return std::make_unique<Gpt2>(file, config, Initial{init == Init::random, config.deviation});
}

}  // namespace penstock::hf
