#include "penstock/hf/lora.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors.h"
#include "penstock/hf/weights.h"

namespace penstock::hf {
namespace {

/// A linear layer and its adapter.
class AdaptedLinear : public torch::nn::Module {
 public:
  AdaptedLinear(torch::nn::LinearImpl& base, const LoraOptions& options) : scale_(options.scale()) {
    weight_ = register_parameter("weight", base.weight, /*requires_grad=*/false);
    if (base.bias.defined()) bias_ = register_parameter("bias", base.bias, /*requires_grad=*/false);
    const std::int64_t out = weight_.size(0), in = weight_.size(1);
    a_ = register_module(lora_a, torch::nn::Linear(torch::nn::LinearOptions(in, options.rank).bias(false)));
    b_ = register_module(lora_b, torch::nn::Linear(torch::nn::LinearOptions(options.rank, out).bias(false)));
    torch::nn::init::zeros_(b_->weight);
  }

  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight_, bias_).add(b_(a_(x)), scale_); }

 private:
  torch::Tensor weight_, bias_;
  torch::nn::Linear a_{nullptr}, b_{nullptr};
  double scale_;
};

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

LayerFactory adapted(LayerFactory factory, const std::string& name, const LoraOptions& options) {
  return {[build = std::move(factory.build), name, options] {
    const BuiltLayer base = build();
    auto* const linear = dynamic_cast<torch::nn::LinearImpl*>(base.module.get());
    require<ConfigError>(linear != nullptr, "an adapter for '", name, "', which is a ", base.module->name(),
                         ": adapters are for torch::nn::Linear layers, name others");
    auto module = std::make_shared<AdaptedLinear>(*linear, options);
    return BuiltLayer{module, [module](const Tensors& x) { return Tensors{module->forward(x.at(0))}; }};
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
  WithAdapter(std::shared_ptr<const WeightSource> base, const std::string& directory) : base_(std::move(base)) {
    const auto path = std::filesystem::path(directory) / adapter_file;
    const auto network_name = [](const std::string& name) {
      return name.starts_with(adapter_prefix) ? name.substr(std::string(adapter_prefix).size()) : name;
    };
    if (!directory.empty()) adapter_ = std::make_shared<const MappedWeights>(path.string(), network_name);
  }

  torch::Tensor read(const std::string& name) const override {
    if (!is_lora(name)) return base_->read(name);
    return adapter_ ? adapter_->read(name) : torch::Tensor();
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names = base_->names();
    if (adapter_)
      for (std::string& name : adapter_->names()) names.push_back(std::move(name));
    return names;
  }
  std::string place() const override { return adapter_ ? adapter_->place() : base_->place(); }
  bool may_be_unused(const std::string& name) const override { return base_->may_be_unused(name); }
  bool may_lack(const std::string& name) const override {
    return (is_lora(name) && !adapter_) || base_->may_lack(name);
  }

 private:
  std::shared_ptr<const WeightSource> base_;
  std::shared_ptr<const MappedWeights> adapter_;  // null: none yet
};

}  // namespace

void add_lora(Cell& network, LoraOptions& options) {
  check(options);
  std::set<std::string> layers, found;
  network.change_layers([&](const std::string& name, LayerFactory factory) {
    layers.insert(last_part(name));
    return factory;
  });
  for (const std::string& target : options.targets) {
    const std::string& name = layers.contains(target) ? target : target + "_proj";
    require<ConfigError>(layers.contains(name), "adapters for the layers '", target,
                         "', but the network has none: name ", "some of ", listed(layers));
    found.insert(name);
  }
  options.targets.assign(found.begin(), found.end());
  network.change_layers([&](const std::string& name, LayerFactory factory) {
    return found.contains(last_part(name)) ? adapted(std::move(factory), name, options) : frozen(std::move(factory));
  });
}

std::shared_ptr<const WeightSource> with_adapter(std::shared_ptr<const WeightSource> base,
                                                 const std::string& directory) {
  return std::make_shared<const WithAdapter>(std::move(base), directory);
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
