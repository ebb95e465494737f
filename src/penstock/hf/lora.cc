#include "penstock/hf/lora.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors.h"
#include "penstock/layers/fast_layers.h"
#include "penstock/layers/split_layers.h"

namespace penstock::hf {
namespace {

/// A linear layer and its adapter. Its parameters are its own, so that they keep their names.
class AdaptedLinear : public torch::nn::Module {
 public:
  AdaptedLinear(BuiltLayer base, const LoraOptions& options) : base_(std::move(base)), scale_(options.scale()) {
    for (auto& item : base_.module->named_parameters())
      register_parameter(item.key(), item.value(), /*requires_grad=*/false);
    const torch::Tensor& weight = parameters_["weight"];
    const std::int64_t in = weight.size(options.fan_in_fan_out ? 0 : 1), out = weight.numel() / in;
    a_ = register_module(lora_a, torch::nn::Linear(torch::nn::LinearOptions(in, options.rank).bias(false)));
    b_ = register_module(lora_b, torch::nn::Linear(torch::nn::LinearOptions(options.rank, out).bias(false)));
    torch::nn::init::zeros_(b_->weight);
  }

  torch::Tensor forward(const Tensors& x) { return base_.forward(x).front().add(b_(a_(x.front())), scale_); }

 private:
  BuiltLayer base_;
  torch::nn::Linear a_{nullptr}, b_{nullptr};
  double scale_;
};

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// Whether the layer's weight is [in, out]. Throws ConfigError for a layer that is not linear.
bool is_fan_in_fan_out(const torch::nn::Module& layer, const std::string& name) {
  const bool is_conv1d = dynamic_cast<const layers::TransposedLinear*>(&layer) != nullptr;
  require<ConfigError>(is_conv1d || dynamic_cast<const torch::nn::LinearImpl*>(&layer), "an adapter for '", name,
                       "', which is a ", layer.name(), ": adapters are for torch::nn::Linear layers, name others");
  return is_conv1d;
}

LayerFactory adapted(LayerFactory factory, const std::string& name, const LoraOptions& options) {
  return {[build = std::move(factory.build), name, options] {
    BuiltLayer base = build();
    LoraOptions of_layer = options;
    of_layer.fan_in_fan_out = is_fan_in_fan_out(*base.module, name);
    layers::make_few_rows_fast(base);
    const auto module = std::make_shared<AdaptedLinear>(std::move(base), of_layer);
    return BuiltLayer{module, [module](const Tensors& x) { return Tensors{module->forward(x)}; }};
  }};
}

LayerFactory frozen(LayerFactory factory) {
  factory.build = [build = std::move(factory.build)] {
    BuiltLayer built = build();
    for (torch::Tensor& parameter : built.module->parameters()) parameter.requires_grad_(false);
    return built;
  };
  return factory;
}

class WithAdapter : public WeightSource {
 public:
  WithAdapter(std::shared_ptr<const WeightSource> base, std::shared_ptr<const WeightSource> adapter)
      : base_(std::move(base)), adapter_(std::move(adapter)) {}

  torch::Tensor read(const std::string& name) const override {
    torch::Tensor value = adapter_ ? adapter_->read(name) : torch::Tensor();
    return value.defined() || !base_ ? value : base_->read(name);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& source : {base_, adapter_})
      if (source) std::ranges::copy(source->names(), std::back_inserter(names));
    return names;
  }
  std::string place() const override {
    return say(base_ ? base_->place() : "", base_ && adapter_ ? " with " : "", adapter_ ? adapter_->place() : "");
  }
  bool may_be_unused(const std::string& name) const override { return base_ && base_->may_be_unused(name); }
  bool may_lack(const std::string& name) const override {
    return is_lora(name) ? !adapter_ : !base_ || base_->may_lack(name);
  }

 private:
  std::shared_ptr<const WeightSource> base_, adapter_;  // null: none
};

}  // namespace

void add_lora(Cell& network, LoraOptions& options) {
  check(options);
  std::map<std::string, LayerFactory> layers;  // by the last parts of their names
  network.change_layers([&](const std::string& name, LayerFactory factory) {
    layers.emplace(last_part(name), factory);
    return factory;
  });
  std::set<std::string> found;
  options.fan_in_fan_out = false;
  for (const std::string& target : options.targets) {
    const std::string& name = layers.contains(target) ? target : target + "_proj";
    require<ConfigError>(layers.contains(name), "adapters for the layers '", target,
                         "', but the network has none: name some of ",
                         listed(layers, ", ", [](const auto& one) { return one.first; }));
    options.fan_in_fan_out |= is_fan_in_fan_out(*build_layer(layers[name], {.seed = 0, .layer = name}).module, name);
    found.insert(name);
  }
  options.targets.assign(found.begin(), found.end());
  network.change_layers([&](const std::string& name, LayerFactory factory) {
    return found.contains(last_part(name)) ? adapted(std::move(factory), name, options) : frozen(std::move(factory));
  });
}

std::shared_ptr<const MappedWeights> read_adapter(const std::string& directory) {
  return std::make_shared<const MappedWeights>(
      (std::filesystem::path(directory) / adapter_file).string(), [](const std::string& name) {
        return name.starts_with(adapter_prefix) ? name.substr(std::string(adapter_prefix).size()) : name;
      });
}

std::shared_ptr<const WeightSource> with_adapter(std::shared_ptr<const WeightSource> base,
                                                 std::shared_ptr<const WeightSource> adapter) {
  return std::make_shared<const WithAdapter>(std::move(base), std::move(adapter));
}

void save_adapter(const std::string& directory, const StateDict& state, const LoraOptions& options,
                  const std::string& base_model) {
  WeightFile file;
  for (const auto& item : state)
    if (is_lora(item.key())) file.tensors.insert(adapter_prefix + item.key(), item.value());
  require<ConfigError>(!file.tensors.is_empty(), "an adapter of a state without adapters: call add_lora() before the ",
                       "pipeline is made");
  file.metadata = {{"format", "pt"}};
  make_directories(SystemCalls::real(), directory);
  const std::filesystem::path place = directory;
  const std::string config = adapter_config_text(options, base_model);
  replace_file(SystemCalls::real(), (place / "adapter_config.json").string(), config.size(),
               [&](NewFile& out) { out.write(bytes_in(config)); });
  write_safetensors((place / adapter_file).string(), file);
}

}  // namespace penstock::hf
