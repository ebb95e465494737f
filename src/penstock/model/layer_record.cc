#include "penstock/model/layer_record.h"

#include <mutex>
#include <sstream>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

/// The same on every machine and compiler.
std::uint64_t seed_of(const WeightSeed& seed) {
  std::uint64_t h = text_hash(seed.layer, fnv_begin ^ (seed.seed * splitmix_increment));
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 33);
}

/// Holds the lock and restores the generator, also if a factory throws.
class SeededGenerator {
 public:
  explicit SeededGenerator(std::uint64_t seed)
      : lock_(mutex()), generator_(at::detail::getDefaultCPUGenerator()), saved_(generator_.get_state()) {
    generator_.set_current_seed(seed);
  }
  ~SeededGenerator() { generator_.set_state(saved_); }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  std::lock_guard<std::mutex> lock_;
  at::Generator generator_;
  at::Tensor saved_;
};

template <class Use>
void for_each_pair(torch::nn::Module& to, const torch::nn::Module& from, Use use) {
  constexpr const char* fix = ": it must make the same module each time";
  const auto pair_up = [&](auto&& mine, auto&& theirs) {
    require<ScheduleError>(mine.size() == theirs.size(), "a layer's factory made ", theirs.size(),
                           " tensors the first time and ", mine.size(), " later", fix);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      torch::Tensor& to_tensor = mine[i].value();
      const torch::Tensor& from_tensor = theirs[i].value();
      require<ScheduleError>(mine[i].key() == theirs[i].key(), "a layer's factory made '", theirs[i].key(),
                             "' the first time and '", mine[i].key(), "' later", fix);
      require<ScheduleError>(to_tensor.defined() == from_tensor.defined(), "a layer's factory left '", mine[i].key(),
                             "' empty once and not another time", fix);
      if (!to_tensor.defined()) continue;  // a buffer of a BatchNorm without running statistics
      require<ScheduleError>(to_tensor.sizes() == from_tensor.sizes(), "a layer's factory made '", mine[i].key(),
                             "' of shape ", from_tensor.sizes(), " the first time and ", to_tensor.sizes(), " later",
                             fix);
      use(to_tensor, from_tensor);
    }
  };
  pair_up(to.named_parameters(), from.named_parameters());
  pair_up(to.named_buffers(), from.named_buffers());
}

}  // namespace

BuiltLayer build_layer(const LayerFactory& factory, const WeightSeed& seed) {
  SeededGenerator generator(seed_of(seed));
  return factory.build();
}

StateDict state_dict_of(const torch::nn::Module& module) {
  StateDict state;
  module.apply([&](const std::string& path, const torch::nn::Module& part) {
    const auto add = [&](const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
      // BatchNorm without running statistics registers undefined buffers.
      for (const auto& item : tensors)
        if (item.value().defined()) state.insert(path.empty() ? item.key() : path + "." + item.key(), item.value());
    };
    add(part.named_parameters(/*recurse=*/false));
    add(part.named_buffers(/*recurse=*/false));
  });
  return state;
}

const LayerShapes& shapes_of(LayerRecord& layer) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (layer.shapes) return *layer.shapes;
  const BuiltLayer built = build_layer(layer.factory, {.seed = 0, .layer = layer.path});
  LayerShapes shapes;
  const auto add = [](LayerShapes::Tensors& shaped, const LayerShapes::Tensors& tensors) {
    for (const auto& item : tensors) {
      torch::Tensor shape;
      if (item.value().defined()) {
        shape = torch::empty_like(item.value(), item.value().options().device(torch::kMeta));
        shape.requires_grad_(item.value().requires_grad());
      }
      shaped.insert(item.key(), shape);
    }
  };
  add(shapes.parameters, built.module->named_parameters());
  add(shapes.buffers, built.module->named_buffers());
  std::ostringstream text;
  built.module->pretty_print(text);
  shapes.text = text.str();
  shapes.looks_up = dynamic_cast<const torch::nn::EmbeddingImpl*>(built.module.get()) != nullptr;
  layer.shapes = std::make_shared<const LayerShapes>(std::move(shapes));
  return *layer.shapes;
}

BuiltLayer initial_layer(const LayerRecord& layer, const WeightSeed& seed) {
  BuiltLayer built = build_layer(layer.factory, seed);
  if (layer.weights)
    for_each_value(layer, layer.name_in_weights, *built.module,
                   [&](const std::string& name, torch::Tensor& value) { take_value(value, *layer.weights, name); });
  return built;
}

BuiltLayer initial_owner(const LayerRecord& layer, const WeightSeed& seed, const std::string& parameter) {
  if (layer.standalone) return *layer.standalone;
  BuiltLayer built = build_layer(layer.factory, seed);
  torch::Tensor value = find_parameter(*built.module, parameter, seed.layer);
  if (layer.weights) take_value(value, *layer.weights, full_name(layer, layer.name_in_weights, parameter));
  return built;
}

void for_each_value(const LayerRecord& layer, const std::string& path, torch::nn::Module& module, const SeeValue& see) {
  StateDict tensors = state_dict_of(module);
  for (auto& item : tensors)
    if (!layer.ties.contains(item.key())) see(full_name(layer, path, item.key()), item.value());
}

torch::Tensor find_parameter(const torch::nn::Module& module, const std::string& name, const std::string& layer) {
  const auto parameters = module.named_parameters();
  const std::string known = listed(parameters.keys());
  const torch::Tensor* found = parameters.find(name);
  require<ScheduleError>(found, "layer '", layer, "' has no parameter '", name, "' to tie; it has ",
                         known.empty() ? "none" : known);
  return *found;
}

void tie_values(torch::Tensor& parameter, const torch::Tensor& owner) {
  require<ScheduleError>(parameter.sizes() == owner.sizes(), "a parameter of shape ", parameter.sizes(),
                         " cannot be tied to one of shape ", owner.sizes(), ": tie parameters of one shape");
  parameter.set_data(owner.detach());
  parameter.requires_grad_(owner.requires_grad());
}

BuiltLayer& standalone(LayerRecord& layer, std::uint64_t seed) {
  if (layer.standalone) return *layer.standalone;
  layer.standalone = initial_layer(layer, {.seed = seed, .layer = layer.path});
  if (!layer.is_training) layer.standalone->module->eval();
  for (const auto& [name, to] : layer.ties) {
    const ParameterOfLayer owner = owner_of(to.layer, to.name);
    torch::Tensor mine = find_parameter(*layer.standalone->module, name, layer.path);
    torch::Tensor theirs = find_parameter(*standalone(*owner.layer, seed).module, owner.name, owner.layer->path);
    tie_values(mine, theirs);
    // A plain training loop passes only the owner to the optimiser, so gradients of this use must be added there.
    if (mine.requires_grad())
      mine.register_hook([theirs](const torch::Tensor& gradient) {
        theirs.mutable_grad() = theirs.grad().defined() ? theirs.grad() + gradient : gradient.clone();
      });
  }
  return *layer.standalone;
}

ParameterOfLayer owner_of(const std::shared_ptr<LayerRecord>& layer, const std::string& parameter) {
  const auto tie = layer->ties.find(parameter);
  return tie == layer->ties.end() ? ParameterOfLayer{layer, parameter} : owner_of(tie->second.layer, tie->second.name);
}

std::string full_name(const LayerRecord& layer, const std::string& path, const std::string& parameter) {
  return layer.is_parameter ? path : path + "." + parameter;
}

void share_values(torch::nn::Module& other, const torch::nn::Module& owner) {
  for_each_pair(other, owner, [](torch::Tensor& mine, const torch::Tensor& theirs) { mine.set_data(theirs.detach()); });
}

void copy_values(torch::nn::Module& to, const torch::nn::Module& from) {
  torch::NoGradGuard no_grad;
  for_each_pair(to, from, [](torch::Tensor& mine, const torch::Tensor& theirs) {
    mine.copy_(theirs);
    mine.requires_grad_(theirs.requires_grad());
  });
}

}  // namespace penstock
