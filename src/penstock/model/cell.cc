#include "penstock/model/cell.h"

#include <algorithm>
#include <functional>
#include <set>

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

std::string joined(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

}  // namespace

Value Cell::forward(Value) {
  throw ScheduleError("a Cell overrides neither forward(Value) nor forward_many(Values): write one of them");
}

Values Cell::forward_many(Values inputs) {
  require<ScheduleError>(inputs.size() == 1, "a Cell with forward(Value) is called with ", inputs.size(),
                         " values: override forward_many(Values)");
  return {forward(inputs.front())};
}

Value Cell::operator()(const Value& input) {
  Values outputs = (*this)(Values{input});
  require<ScheduleError>(outputs.size() == 1, "a Cell that is called with one value returns ", outputs.size(),
                         ": call it with a list of values");
  return outputs.front();
}

Values Cell::operator()(const Values& inputs) {
  Tracer* tracer = Tracer::among(inputs);
  return tracer ? tracer->run_cell(*this, inputs) : forward_many(inputs);
}

Layer Cell::add_factory(const std::string& name, LayerFactory factory) {
  return Layer(add_record(name, std::move(factory)));
}

Parameter Cell::add_parameter(const std::string& name, std::function<torch::Tensor()> make) {
  auto record = add_record(name, parameter_factory(std::move(make)));
  record->is_parameter = true;
  return Parameter(std::move(record));
}

std::shared_ptr<LayerRecord> Cell::add_record(const std::string& name, LayerFactory factory) {
  check_name(name);
  layers_.push_back(std::make_shared<LayerRecord>(LayerRecord{name, joined(path_, name), std::move(factory), {}}));
  layers_.back()->is_training = is_training_;
  layers_.back()->weights = weights_;
  layers_.back()->name_in_weights = joined(name_in_weights_, name);
  return layers_.back();
}

void Cell::add(const std::string& name, Cell& inner) {
  check_name(name);
  inner_.emplace_back(name, &inner);
  // A Cell that two networks share keeps its first name.
  if (inner.path_.empty()) inner.set_path(joined(path_, name));
  if (weights_) inner.set_weights(weights_, joined(name_in_weights_, name));
}

void Cell::set_path(const std::string& path) {
  path_ = path;
  for (const auto& layer : layers_) layer->path = joined(path, layer->name);
  for (const auto& [name, inner] : inner_) inner->set_path(joined(path, name));
}

void Cell::check_name(const std::string& name) const {
  require<ScheduleError>(!name.empty() && name.find('.') == std::string::npos, "'", name,
                         "' cannot name a layer: a name is not empty and holds no '.'");
  // Names are written to lines of text files and to JSON.
  require<ScheduleError>(is_plain_text(name), "'", printable(name),
                         "' cannot name a layer: a name is UTF-8 text without newlines and other control characters");
  const bool taken = std::any_of(layers_.begin(), layers_.end(), [&](const auto& l) { return l->name == name; }) ||
                     std::any_of(inner_.begin(), inner_.end(), [&](const auto& c) { return c.first == name; });
  require<ScheduleError>(!taken, "two layers of one Cell are called '", name, "': rename one of them");
}

void Cell::find_inside(Found here, Contents& found) const {
  if (const auto& stage = pipeline_stage.value()) {
    if (here.from_cell)
      require<ScheduleError>(*here.from_cell->value() == *stage, "Cell '", here.path, "' has pipeline_stage ", *stage,
                             ", but ", here.cell_path, " around it has ", *here.from_cell->value(),
                             ": remove one of the two");
    here.from_cell = &pipeline_stage;
    here.cell_path = here.path.empty() ? "the network" : say("the Cell '", here.path, "'");
  }
  if (recompute.value()) here.recompute = recompute.value();
  const auto [known, is_new] = found.cells.try_emplace(this, here);
  require<ScheduleError>(is_new, "Cell '", here.path, "' was added before, as '", known->second.path,
                         "': add it once, and call it as often as needed");
  for (const auto& layer : layers_) {
    Found inside = here;
    inside.path = joined(here.path, layer->name);
    if (here.from_cell && layer->stage.value())
      require<ScheduleError>(*here.from_cell->value() == *layer->stage.value(), "layer '", inside.path,
                             "' has pipeline_stage ", *layer->stage.value(), ", but ", here.cell_path,
                             " around it has ", *here.from_cell->value(), ": remove one of the two");
    if (layer->recompute.value()) inside.recompute = layer->recompute.value();
    inside.number = found.layers.size();
    found.layers.emplace(layer.get(), std::move(inside));
  }
  for (const auto& [name, inner] : inner_) {
    Found inside = here;
    inside.path = joined(here.path, name);
    inner->find_inside(std::move(inside), found);
  }
}

void Cell::set_weights(const std::shared_ptr<const WeightSource>& source, const std::string& name) {
  weights_ = source;
  name_in_weights_ = name;
  for (const auto& layer : layers_) {
    layer->weights = source;
    layer->name_in_weights = joined(name, layer->name);
  }
  for (const auto& [inner_name, inner] : inner_) inner->set_weights(source, joined(name, inner_name));
}

void Cell::take_weights_from(std::shared_ptr<const WeightSource> source) {
  std::set<std::string> taken;
  visit([&](LayerRecord& layer, const std::string& path) {
    const BuiltLayer built = build_layer(layer.factory, {.seed = 0, .layer = path});
    for_each_value(layer, path, *built.module, [&](const std::string& name, const torch::Tensor& value) {
      if (takes_value(value, *source, name)) taken.insert(name);
    });
  });
  constexpr std::size_t most_listed = 3;
  std::string extra;
  std::size_t count = 0;
  for (const std::string& name : source->names()) {
    if (taken.contains(name) || source->may_be_unused(name)) continue;
    if (++count <= most_listed) extra += say(count > 1 ? ", '" : "'", name, "'");
  }
  require<ConfigError>(count == 0, source->place(), " has ", extra,
                       count > most_listed ? say(" and ", count - most_listed, " more") : "",
                       ", which the network does not have: pass the weights of this network");
  set_weights(source, "");
}

// The part of Cell that resembles torch::nn::Module: mode, parameters, buffers, modules and state.

void Cell::visit(const std::function<void(LayerRecord&, const std::string& path)>& see) const {
  Contents contents;
  find_inside({}, contents);
  const std::function<void(const Cell&)> walk = [&](const Cell& cell) {
    for (const auto& layer : cell.layers_) see(*layer, contents.layers.at(layer.get()).path);
    for (const auto& [name, inner] : cell.inner_) walk(*inner);
  };
  walk(*this);
}

void Cell::recompute_named(const std::vector<std::string>& names) {
  std::set<std::string> left(names.begin(), names.end());
  visit([&](LayerRecord& layer, const std::string& path) {
    if (left.erase(path) > 0) layer.recompute = true;
  });
  const std::function<void(Cell&, const std::string&)> walk = [&](Cell& cell, const std::string& path) {
    for (auto& [name, inner] : cell.inner_) {
      const std::string inner_path = joined(path, name);
      if (left.erase(inner_path) > 0) inner->recompute = true;
      walk(*inner, inner_path);
    }
  };
  walk(*this, "");
  require<ScheduleError>(left.empty(), "'", left.empty() ? "" : *left.begin(),
                         "' is to be recomputed, but no layer and no Cell of the network has this name");
}

void Cell::change_layers(const std::function<LayerFactory(const std::string& name, LayerFactory factory)>& change) {
  visit([&](LayerRecord& layer, const std::string& path) {
    require<ScheduleError>(!layer.standalone, "layer '", path,
                           "' is built already: change layers before the network runs or its parameters are asked for");
    layer.factory = change(path, std::move(layer.factory));
    layer.shapes.reset();
  });
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

StateDict Cell::state_dict(std::uint64_t seed) {
  StateDict state;
  visit([&](LayerRecord& layer, const std::string& path) {
    for (const auto& item : state_dict_of(*standalone(layer, seed).module))
      if (!layer.ties.contains(item.key())) state.insert(full_name(layer, path, item.key()), item.value());
  });
  return state;
}

void Cell::load_state_dict(const StateDict& state, Missing missing) { load_into(state_dict(0), state, missing); }

void load_into(const StateDict& own, const StateDict& state, Cell::Missing missing) {
  const std::vector<std::string> names = own.keys();
  for (const auto& item : state) {
    const std::string& name = item.key();
    const torch::Tensor& value = item.value();
    const torch::Tensor* const found = own.find(name);
    require<ConfigError>(found, "the state has '", name, "', which the network does not have",
                         names.empty() ? "" : say(": the nearest is '", nearest(name, names), "'"));
    require<ConfigError>(value.defined() && value.sizes() == found->sizes() && value.dtype() == found->dtype(), "'",
                         name, "' is ", found->dtype().name(), " of shape ", found->sizes(), " in the network and ",
                         value.defined() ? value.dtype().name() : "nothing", " of shape ",
                         value.defined() ? value.sizes() : at::IntArrayRef(), " in the state");
  }
  if (missing == Cell::Missing::refuse)
    for (const std::string& name : names)
      require<ConfigError>(state.contains(name), "the network has '", name, "', which the state does not have");
  const torch::NoGradGuard no_grad;
  for (const auto& item : state) torch::Tensor(own[item.key()]).copy_(item.value());
}

namespace {

class SequentialCell : public Cell {
 public:
  using Cell::forward;

  explicit SequentialCell(const torch::nn::Sequential& modules) {
    const std::vector<std::string> names = modules->named_children().keys();
    std::map<const torch::nn::Module*, std::size_t> first_seen;
    for (std::size_t i = 0; i < modules->size(); ++i) {
      torch::nn::AnyModule any = *(modules->begin() + static_cast<std::ptrdiff_t>(i));
      const auto [seen, is_new] = first_seen.try_emplace(any.ptr().get(), calls_.size());
      if (!is_new) {
        calls_.push_back(calls_[seen->second]);
        continue;
      }
      calls_.push_back(add_factory(names[i], {[any] { return copy_of(any); }, 1}));
    }
    require<ScheduleError>(!calls_.empty(), "the torch::nn::Sequential is empty: add a module to it");
  }

  Value forward(Value x) override {
    for (const Layer& layer : calls_) x = layer(x);
    return x;
  }

 private:
  static BuiltLayer copy_of(const torch::nn::AnyModule& original) {
    torch::nn::AnyModule copy = original.clone();
    // In a clone all parameters require gradients, even those that are frozen in the original.
    const auto originals = original.ptr()->parameters(), copies = copy.ptr()->parameters();
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i].requires_grad_(originals[i].requires_grad());
    return {copy.ptr(), [copy](const Tensors& x) mutable {
              require<ScheduleError>(x.size() == 1, "a module of a torch::nn::Sequential takes one tensor, not ",
                                     x.size());
              return Tensors{copy.forward(x[0])};
            }};
  }

  std::vector<Layer> calls_;
};

}  // namespace

std::unique_ptr<Cell> from_sequential(const torch::nn::Sequential& modules) {
  return std::make_unique<SequentialCell>(modules);
}

}  // namespace penstock
