#include "penstock/hf/architectures.h"

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::hf {

MakeModel make_llama, make_mistral, make_qwen2, make_qwen3, make_gemma3, make_gpt2, make_gpt_neox;

const std::map<std::string, MakeModel*>& architectures() {
  static const std::map<std::string, MakeModel*> all{
      {"LlamaForCausalLM", make_llama},      {"MistralForCausalLM", make_mistral}, {"Qwen2ForCausalLM", make_qwen2},
      {"Qwen3ForCausalLM", make_qwen3},      {"Gemma3ForCausalLM", make_gemma3},   {"GPT2LMHeadModel", make_gpt2},
      {"GPTNeoXForCausalLM", make_gpt_neox},
  };
  return all;
}

namespace {

std::string architecture_of(const ConfigFile& file) {
  const std::vector<std::string> names = file.texts("architectures");
  require<ConfigError>(names.size() == 1, file.place(), " lists ", names.size(),
                       " architectures in 'architectures': a language model has one");
  return names.front();
}

}  // namespace

std::unique_ptr<CausalLm> make_model(const ConfigFile& file, Init init) {
  const std::string name = architecture_of(file);
  const auto found = architectures().find(name);
  require<ConfigError>(found != architectures().end(), file.place(), " names the architecture '", name,
                       "', which is not supported: use one of ",
                       listed(architectures(), ", ", [](const auto& one) { return one.first; }));
  return found->second(file, init);
}

Config read_common(const ConfigFile& file, const CommonDefaults& defaults) {
  Config config;
  config.directory = file.directory();
  config.architecture = architecture_of(file);
  config.prefix = defaults.prefix;
  config.vocabulary = file.size("vocab_size");
  config.context = file.size({"max_position_embeddings", "n_positions"});
  config.width = file.size({"hidden_size", "n_embd"});
  config.layers = file.size({"num_hidden_layers", "n_layer"});
  config.heads = file.size({"num_attention_heads", "n_head"});
  config.tied_head = file.flag("tie_word_embeddings", defaults.tied_head);
  config.deviation = file.number("initializer_range", config.deviation);
  if (file.has("bos_token_id")) config.begin_token = file.integer("bos_token_id");
  if (file.has("pad_token_id")) config.padding_token = file.integer("pad_token_id");
  config.end_tokens = file.integers("eos_token_id");
  return config;
}

std::vector<std::int64_t> read_windows(const ConfigFile& file, const Config& config,
                                       const std::vector<std::int64_t>& otherwise) {
  const std::vector<std::string> types = file.texts("layer_types");
  if (types.empty()) return otherwise;
  require<ConfigError>(static_cast<std::int64_t>(types.size()) == config.layers, file.place(), " has ", types.size(),
                       " 'layer_types' for ", config.layers, " layers: there must be one for each");
  std::vector<std::int64_t> windows;
  for (const std::string& type : types) {
    require<ConfigError>(type == "full_attention" || type == "sliding_attention", file.place(), " has the layer type '",
                         type, "', which is not supported: use full_attention or sliding_attention");
    windows.push_back(type == "sliding_attention" ? file.size("sliding_window") : 0);
  }
  return windows;
}

}  // namespace penstock::hf
