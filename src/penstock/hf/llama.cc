// The Llama family: Llama, Mistral, Qwen2, Qwen3 and Gemma 3 differ in the options of one block.
#include <cmath>

#include "penstock/base/error.h"
#include "penstock/hf/attention.h"
#include "penstock/hf/hf_layers.h"
#include "penstock/model/functions.h"

namespace penstock::hf {
namespace {

/// What an architecture adds to config.json's values.
struct Family {
  bool qkv_bias = false;  // of the projections to queries, keys and values
  bool output_bias = false;
  bool has_query_norms = false;  // of queries and keys, per head
  bool is_gemma = false;         // norms around both branches, with weight + 1; scaled embeddings; two kinds of rotary
  std::vector<std::int64_t> windows = {};  // of each block if there are no layer_types; empty: none
};

struct BlockOptions {
  std::int64_t width = 0, inner = 0;
  Family family = {};
  bool inner_bias = false;
  double epsilon = 1e-6;
  Activation activation = Activation::silu;
  AttentionOptions attention = {};
  Initial initial = {};

  RmsNormOptions norm() const { return {width, epsilon, family.is_gemma ? 1.0 : 0.0}; }
  RmsNormOptions head_norm() const { return {attention.head_size, epsilon, norm().offset}; }
};

struct SelfAttention : Cell {
  explicit SelfAttention(const BlockOptions& options)
      : q_proj(add_factory("q_proj", projection(options, options.attention.heads))),
        k_proj(add_factory("k_proj", projection(options, options.attention.key_value_heads))),
        v_proj(add_factory("v_proj", projection(options, options.attention.key_value_heads))),
        attend(add_factory("attend", attention(options.attention))),
        o_proj(add_factory("o_proj", linear({options.attention.heads * options.attention.head_size, options.width,
                                             options.family.output_bias},
                                            options.initial))) {
    if (!options.family.has_query_norms) return;
    q_norm = add_factory("q_norm", rms_norm(options.head_norm()));
    k_norm = add_factory("k_norm", rms_norm(options.head_norm()));
  }

  static LayerFactory projection(const BlockOptions& options, std::int64_t heads) {
    return linear({options.width, heads * options.attention.head_size, options.family.qkv_bias}, options.initial);
  }

  /// The states [n, T, width] and, optionally, documents.
  Values forward_many(Values inputs) override {
    Value queries = q_proj(inputs[0]);
    if (q_norm) queries = (*q_norm)(queries);
    Value keys = k_proj(inputs[0]);
    if (k_norm) keys = (*k_norm)(keys);
    const Value values = v_proj(inputs[0]);
    Values arguments{queries, keys, values};
    arguments.insert(arguments.end(), inputs.begin() + 1, inputs.end());
    return {o_proj(attend.call(arguments).front())};
  }

  Layer q_proj, k_proj, v_proj, attend, o_proj;
  std::optional<Layer> q_norm, k_norm;
};

struct FeedForward : Cell {
  explicit FeedForward(const BlockOptions& options)
      : gate_proj(
            add_factory("gate_proj", linear({options.width, options.inner, options.inner_bias}, options.initial))),
        up_proj(add_factory("up_proj", linear({options.width, options.inner, options.inner_bias}, options.initial))),
        down_proj(
            add_factory("down_proj", linear({options.inner, options.width, options.inner_bias}, options.initial))),
        activation(options.activation) {}

  Value forward(Value x) override {
    const Value gate = gate_proj(x);
    const Value up = up_proj(x);
    return down_proj(gated(gate, up, activation));
  }

  Layer gate_proj, up_proj, down_proj;
  Activation activation;
};

class Block : public Cell {
 public:
  explicit Block(const BlockOptions& options)
      : input_layernorm_(add_factory("input_layernorm", rms_norm(options.norm()))),
        self_attn_(options),
        post_attention_layernorm_(add_factory("post_attention_layernorm", rms_norm(options.norm()))),
        mlp_(options) {
    add("self_attn", self_attn_);
    add("mlp", mlp_);
    if (!options.family.is_gemma) return;
    pre_feedforward_layernorm_ = add_factory("pre_feedforward_layernorm", rms_norm(options.norm()));
    post_feedforward_layernorm_ = add_factory("post_feedforward_layernorm", rms_norm(options.norm()));
  }

  Values forward_many(Values inputs) override {
    const Value x = inputs[0];
    inputs[0] = input_layernorm_(x);
    const Value attended = self_attn_(inputs).front();
    if (!pre_feedforward_layernorm_) {
      const Value y = x + attended;
      return {y + mlp_(post_attention_layernorm_(y))};
    }
    const Value y = x + post_attention_layernorm_(attended);
    return {y + (*post_feedforward_layernorm_)(mlp_((*pre_feedforward_layernorm_)(y)))};
  }

 private:
  Layer input_layernorm_;
  SelfAttention self_attn_;
  Layer post_attention_layernorm_;
  FeedForward mlp_;
  std::optional<Layer> pre_feedforward_layernorm_, post_feedforward_layernorm_;
};

BlockOptions read_block(const ConfigFile& file, const Config& config, const Family& family) {
  BlockOptions options{.width = config.width, .family = family};
  options.inner = file.size("intermediate_size");
  options.inner_bias = file.flag("mlp_bias", false);
  options.epsilon = file.number("rms_norm_eps", options.epsilon);
  options.activation = activation_named(
      file.text({"hidden_act", "hidden_activation"}, family.is_gemma ? "gelu_pytorch_tanh" : "silu"), file.place());
  AttentionOptions& attention = options.attention;
  attention.heads = config.heads;
  attention.key_value_heads = file.size("num_key_value_heads", config.heads);
  require<ConfigError>(
      attention.heads % attention.key_value_heads == 0, file.place(), " has 'num_attention_heads' = ", attention.heads,
      " and 'num_key_value_heads' = ", attention.key_value_heads, ": the second must divide the first");
  require<ConfigError>(file.has("head_dim") || config.width % config.heads == 0, file.place(),
                       " has 'hidden_size' = ", config.width, " and 'num_attention_heads' = ", config.heads,
                       ": the second must divide the first, or 'head_dim' must be set");
  attention.head_size = file.size("head_dim", config.width / config.heads);
  attention.scale = 1 / std::sqrt(family.is_gemma ? file.number("query_pre_attn_scalar", 256)
                                                  : static_cast<double>(attention.head_size));
  attention.dropout = file.number("attention_dropout", 0);
  return options;
}

class Llama : public CausalLm {
 public:
  Llama(const ConfigFile& file, const Config& config, const Family& family, Init init)
      : CausalLm(config, "layers"),
        initial_{init == Init::random, config.deviation},
        embed_tokens_(base().add_factory("embed_tokens",
                                         embedding({config.vocabulary, config.width, config.padding_token}, initial_))),
        norm_(base().add_factory("norm", rms_norm(read_block(file, config, family).norm()))),
        lm_head_(add_factory("lm_head", linear({config.width, config.vocabulary, false}, initial_))),
        embedding_scale_(family.is_gemma ? std::sqrt(static_cast<double>(config.width)) : 1) {
    if (config.tied_head) lm_head_.tie("weight", embed_tokens_, "weight");
    BlockOptions options = read_block(file, config, family);
    options.initial = initial_;
    const std::int64_t size = options.attention.head_size;
    const auto rotary = [&](const RotaryReading& reading) {
      return std::make_shared<const Rotary>(read_rotary(file, reading));
    };
    const auto full = family.is_gemma ? rotary({.size = size, .default_theta = 1e6, .kind = "full_attention"})
                                      : rotary({.size = size});
    const auto sliding =
        family.is_gemma
            ? rotary(
                  {.size = size, .theta_key = "rope_local_base_freq", .is_scaled = false, .kind = "sliding_attention"})
            : full;
    std::vector<std::int64_t> windows = read_windows(file, config, family.windows);
    windows.resize(static_cast<std::size_t>(config.layers));
    for (const std::int64_t window : windows) {
      options.attention.window = window;
      options.attention.rotary = window > 0 ? sliding : full;
      add_block(std::make_unique<Block>(options));
    }
  }

 private:
  Value embed(const Values& inputs) override {
    const Value x = embed_tokens_(inputs[0]);
    return embedding_scale_ == 1 ? x : scale(x, embedding_scale_);
  }
  Value head(const Value& x) override { return lm_head_(norm_(x)); }

  Initial initial_;
  Layer embed_tokens_, norm_, lm_head_;
  double embedding_scale_;
};

Config common(const ConfigFile& file, bool tied_head = false) {
  return read_common(file, {.prefix = "model", .tied_head = tied_head});
}

/// The window of Qwen's blocks from number max_window_layers on.
std::vector<std::int64_t> upper_windows(const ConfigFile& file, const Config& config) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(config.layers));
  if (!file.flag("use_sliding_window", false) || !file.has("sliding_window")) return windows;
  for (std::int64_t i = file.integer("max_window_layers", 28); i < config.layers; ++i)
    windows[static_cast<std::size_t>(i)] = file.size("sliding_window");
  return windows;
}

}  // namespace

std::unique_ptr<CausalLm> make_llama(const ConfigFile& file, Init init) {
  const bool bias = file.flag("attention_bias", false);
  return std::make_unique<Llama>(file, common(file), Family{.qkv_bias = bias, .output_bias = bias}, init);
}

std::unique_ptr<CausalLm> make_mistral(const ConfigFile& file, Init init) {
  const Config config = common(file);
  Family family;
  if (file.has("sliding_window"))
    family.windows.assign(static_cast<std::size_t>(config.layers), file.size("sliding_window"));
  return std::make_unique<Llama>(file, config, family, init);
}

std::unique_ptr<CausalLm> make_qwen2(const ConfigFile& file, Init init) {
  const Config config = common(file);
  return std::make_unique<Llama>(file, config, Family{.qkv_bias = true, .windows = upper_windows(file, config)}, init);
}

std::unique_ptr<CausalLm> make_qwen3(const ConfigFile& file, Init init) {
  const Config config = common(file);
  const bool bias = file.flag("attention_bias", false);
  return std::make_unique<Llama>(
      file, config,
      Family{.qkv_bias = bias, .output_bias = bias, .has_query_norms = true, .windows = upper_windows(file, config)},
      init);
}

std::unique_ptr<CausalLm> make_gemma3(const ConfigFile& file, Init init) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"})
    file.refuse(key);
  const Config config = common(file, /*tied_head=*/true);
  const bool bias = file.flag("attention_bias", false);
  Family family{.qkv_bias = bias, .output_bias = bias, .has_query_norms = true, .is_gemma = true};
  const std::int64_t period = file.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  for (std::int64_t i = 1; i <= config.layers; ++i)
    family.windows.push_back(i % period == 0 ? 0 : file.size("sliding_window", 4096));
  return std::make_unique<Llama>(file, config, family, init);
}

}  // namespace penstock::hf
