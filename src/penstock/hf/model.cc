#include "penstock/hf/model.h"

#include "penstock/hf/architectures.h"
#include "penstock/hf/lora.h"
#include "penstock/hf/weights.h"

namespace penstock::hf {

Config read_config(const std::string& directory) { return make_model(ConfigFile(directory), Init::random)->config(); }

std::shared_ptr<const MappedWeights> open_weights(const Config& config) {
  // Files of a model without a head lack the first part of the names: "h.0.ln_1.weight".
  const auto network_name = [prefix = config.prefix + "."](const std::string& name) {
    const bool is_whole = name.starts_with(prefix) || name == "lm_head.weight" || name == "embed_out.weight";
    return is_whole ? name : prefix + name;
  };
  return std::make_shared<const MappedWeights>(config.directory, network_name);
}

std::unique_ptr<CausalLm> load(const std::string& directory, const LoadOptions& options) {
  auto model = make_model(ConfigFile(directory), options.init);
  if (options.lora) {
    LoraOptions lora = *options.lora;
    add_lora(*model, lora);
  }
  std::shared_ptr<const WeightSource> source;
  if (options.init == Init::weights) source = open_weights(model->config());
  if (options.adapter || (source && options.lora)) source = with_adapter(source, options.adapter);
  if (source) model->take_weights_from(source);
  return model;
}

LoraOptions completed(const std::string& directory, LoraOptions options) {
  add_lora(*make_model(ConfigFile(directory), Init::weights), options);
  return options;
}

}  // namespace penstock::hf
