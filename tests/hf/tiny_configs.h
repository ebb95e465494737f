// config.json of a tiny model of each architecture; each exercises its architecture's options.
#pragma once

#include <map>
#include <string>

namespace penstock::test {

inline constexpr std::int64_t tiny_vocabulary = 61;

/// By the name of the configuration. All have three blocks, a context of 96 tokens and no dropout.
inline const std::map<std::string, std::string>& tiny_configs() {
  static const std::string sizes =
      R"("vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 48, "max_position_embeddings": 96, )";
  static const std::map<std::string, std::string> all{
      {"llama", "{" + sizes + R"("architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2,
         "pad_token_id": 2, "tie_word_embeddings": true, "rope_theta": 10000.0})"},
      {"llama3", "{" + sizes + R"("architectures": ["LlamaForCausalLM"], "num_key_value_heads": 1,
         "attention_bias": true, "mlp_bias": true, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0,
         "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}})"},
      {"mistral", "{" + sizes + R"("architectures": ["MistralForCausalLM"], "num_key_value_heads": 2,
         "head_dim": 16, "sliding_window": 5, "rope_theta": 10000.0})"},
      {"qwen2", "{" + sizes + R"("architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 2,
         "tie_word_embeddings": true, "use_sliding_window": true, "sliding_window": 6, "max_window_layers": 2,
         "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}})"},
      {"qwen3", "{" + sizes + R"("architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 2, "head_dim": 12,
         "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}})"},
      {"gemma3", "{" + sizes + R"("architectures": ["Gemma3ForCausalLM"], "num_key_value_heads": 2, "head_dim": 12,
         "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "query_pre_attn_scalar": 20, "pad_token_id": 0, "rope_parameters": {
         "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})"},
      {"gpt2", R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4,
         "n_positions": 96, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
         "scale_attn_by_inverse_layer_idx": true})"},
      {"gpt_neox", "{" + sizes + R"("architectures": ["GPTNeoXForCausalLM"], "rotary_pct": 0.5,
         "use_parallel_residual": true})"},
      {"gpt_neox_sequential", "{" + sizes + R"("architectures": ["GPTNeoXForCausalLM"], "rotary_pct": 0.25,
         "use_parallel_residual": false, "tie_word_embeddings": true, "hidden_act": "gelu_new"})"},
  };
  return all;
}

}  // namespace penstock::test
