// The part of Cell that resembles torch::nn::Module: mode, parameters, buffers, modules and state.
#include <functional>

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/model/cell.h"

namespace penstock {

void Cell::visit(const std::function<void(LayerRecord&, const std::string& path)>& see) const {
  Contents contents;
  find_inside({}, contents);
  const std::function<void(const Cell&)> walk = [&](const Cell& cell) {
    for (const auto& layer : cell.layers_) see(*layer, contents.layers.at(layer.get()).path);
    for (const auto& [name, inner] : cell.inner_) walk(*inner);
  };
  walk(*this);
}

void Cell::train(bool on) {
  is_training_ = on;
  for (const auto& layer : layers_) {
    layer->is_training = on;
    if (layer->standalone) layer->standalone->module->train(on);
  }
  for (const auto& [name, inner] : inner_) inner->train(on);
}

std::vector<std::pair<std::string, torch::Tensor>> Cell::named_parameters(std::uint64_t seed) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  visit([&](LayerRecord& layer, const std::string& path) {
    for (const auto& parameter : standalone(layer, seed).module->named_parameters())
      if (!layer.ties.contains(parameter.key()))
        parameters.emplace_back(full_name(layer, path, parameter.key()), parameter.value());
  });
  return parameters;
}

std::vector<std::pair<std::string, torch::Tensor>> Cell::named_buffers(std::uint64_t seed) {
  std::vector<std::pair<std::string, torch::Tensor>> buffers;
  visit([&](LayerRecord& layer, const std::string& path) {
    for (const auto& buffer : standalone(layer, seed).module->named_buffers())
      // BatchNorm without running statistics registers undefined buffers.
      if (buffer.value().defined()) buffers.emplace_back(path + "." + buffer.key(), buffer.value());
  });
  return buffers;
}

std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> Cell::named_modules(std::uint64_t seed) {
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> modules;
  visit([&](LayerRecord& layer, const std::string& path) {
    if (!layer.is_parameter) modules.emplace_back(path, standalone(layer, seed).module);
  });
  return modules;
}

std::vector<torch::Tensor> Cell::parameters(std::uint64_t seed) {
  std::vector<torch::Tensor> values;
  for (auto& [name, value] : named_parameters(seed)) values.push_back(value);
  return values;
}

std::vector<torch::Tensor> Cell::buffers(std::uint64_t seed) {
  std::vector<torch::Tensor> values;
  for (auto& [name, value] : named_buffers(seed)) values.push_back(value);
  return values;
}

std::map<std::string, torch::Tensor> Cell::named_state(std::uint64_t seed) {
  std::map<std::string, torch::Tensor> state;
  for (auto& [name, value] : named_parameters(seed)) state.emplace(name, value);
  for (auto& [name, value] : named_buffers(seed)) state.emplace(name, value);
  return state;
}

void Cell::load_state(const std::map<std::string, torch::Tensor>& state, Missing missing) {
  load_into(named_state(0), state, missing);
}

void load_into(const std::map<std::string, torch::Tensor>& own, const std::map<std::string, torch::Tensor>& state,
               Cell::Missing missing) {
  std::vector<std::string> names;
  for (const auto& [name, value] : own) names.push_back(name);
  for (const auto& [name, value] : state) {
    const auto found = own.find(name);
    require<ConfigError>(found != own.end(), "the state has '", name, "', which the network does not have",
                         names.empty() ? "" : say(": the nearest is '", nearest(name, names), "'"));
    require<ConfigError>(
        value.defined() && value.sizes() == found->second.sizes() && value.dtype() == found->second.dtype(), "'", name,
        "' is ", found->second.dtype().name(), " of shape ", found->second.sizes(), " in the network and ",
        value.defined() ? value.dtype().name() : "nothing", " of shape ",
        value.defined() ? value.sizes() : at::IntArrayRef(), " in the state");
  }
  if (missing == Cell::Missing::refuse)
    for (const std::string& name : names)
      require<ConfigError>(state.contains(name), "the network has '", name, "', which the state does not have");
  const torch::NoGradGuard no_grad;
  for (const auto& [name, value] : state) torch::Tensor(own.at(name)).copy_(value);
}

}  // namespace penstock
