#include "penstock/hf/model.h"

#include "penstock/hf/architectures.h"
#include "penstock/hf/weights.h"

namespace penstock::hf {

Config read_config(const std::string& directory) { return make_model(ConfigFile(directory), Init::random)->config(); }

std::unique_ptr<CausalLm> load(const std::string& directory, const LoadOptions& options) {
  auto model = make_model(ConfigFile(directory), options.init);
  if (options.init == Init::random) return model;
  // Files of a model without a head lack the first part of the names: "h.0.ln_1.weight".
  const auto network_name = [prefix = model->config().prefix + "."](const std::string& name) {
    const bool is_whole = name.starts_with(prefix) || name == "lm_head.weight" || name == "embed_out.weight";
    return is_whole ? name : prefix + name;
  };
  model->take_weights_from(std::make_shared<MappedWeights>(directory, network_name));
  return model;
}

}  // namespace penstock::hf
