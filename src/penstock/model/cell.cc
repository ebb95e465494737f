#include "penstock/model/cell.h"

#include <algorithm>
#include <functional>

#include "penstock/base/error.h"

namespace penstock {

Value Cell::forward(Value) {
  throw PlanError("a Cell overrides neither forward(Value) nor forward_many(Values): write one of them");
}

Values Cell::forward_many(Values inputs) {
  require<PlanError>(inputs.size() == 1, "a Cell with forward(Value) is called with ", inputs.size(),
                     " values: override forward_many(Values)");
  return {forward(inputs.front())};
}

Value Cell::operator()(const Value& input) {
  Values outputs = forward_many({input});
  require<PlanError>(outputs.size() == 1, "a Cell that is called with one value returns ", outputs.size(),
                     ": call it with a list of values");
  return outputs.front();
}

std::vector<std::pair<std::string, torch::Tensor>> Cell::named_parameters(std::uint64_t seed) {
  Layers found;
  find_layers("", {}, found);
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  const std::function<void(const std::string&, const Cell&)> visit = [&](const std::string& prefix, const Cell& cell) {
    for (const auto& layer : cell.layers_) {
      const std::string& path = found.at(layer.get()).path;
      if (!layer->standalone) layer->standalone = build_layer(layer->factory, {.seed = seed, .layer = path});
      for (const auto& parameter : layer->standalone->module->named_parameters())
        parameters.emplace_back(path + "." + parameter.key(), parameter.value());
    }
    for (const auto& [name, inner] : cell.inner_) visit(prefix + name + ".", *inner);
  };
  visit("", *this);
  return parameters;
}

Layer Cell::add_factory(const std::string& name, LayerFactory factory) {
  check_name(name);
  layers_.push_back(std::make_shared<LayerRecord>(LayerRecord{name, std::move(factory), {}, {}}));
  return Layer(layers_.back());
}

void Cell::add(const std::string& name, Cell& inner) {
  check_name(name);
  inner_.emplace_back(name, &inner);
}

void Cell::check_name(const std::string& name) const {
  require<PlanError>(!name.empty() && name.find('.') == std::string::npos, "'", name,
                     "' cannot name a layer: a name is not empty and holds no '.'");
  const bool taken = std::any_of(layers_.begin(), layers_.end(), [&](const auto& l) { return l->name == name; }) ||
                     std::any_of(inner_.begin(), inner_.end(), [&](const auto& c) { return c.first == name; });
  require<PlanError>(!taken, "two layers of one Cell are called '", name, "': give one of them another name");
}

void Cell::find_layers(const std::string& prefix, const Found& around, Layers& found) const {
  Found here = around;
  if (const auto& stage = pipeline_stage.value()) {
    if (around.from_cell)
      require<PlanError>(*around.from_cell->value() == *stage, "Cell '", prefix, "' has pipeline_stage ", *stage,
                         ", but '", around.cell_path, "' around it has ", *around.from_cell->value(),
                         ": remove one of the two");
    here.from_cell = &pipeline_stage;
    here.cell_path = prefix.empty() ? "the network" : prefix;
  }
  const std::string dot = prefix.empty() ? "" : prefix + ".";
  for (const auto& layer : layers_) {
    here.path = dot + layer->name;
    if (here.from_cell && layer->stage.value())
      require<PlanError>(*here.from_cell->value() == *layer->stage.value(), "layer '", here.path,
                         "' has pipeline_stage ", *layer->stage.value(), ", but the Cell '", here.cell_path,
                         "' around it has ", *here.from_cell->value(), ": remove one of the two");
    found[layer.get()] = here;
  }
  for (const auto& [name, inner] : inner_) inner->find_layers(dot + name, here, found);
}

}  // namespace penstock
