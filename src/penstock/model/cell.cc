#include "penstock/model/cell.h"

#include <algorithm>
#include <functional>

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
  return layers_.back();
}

void Cell::add(const std::string& name, Cell& inner) {
  check_name(name);
  inner_.emplace_back(name, &inner);
  // A Cell that two networks share keeps its first name.
  if (inner.path_.empty()) inner.set_path(joined(path_, name));
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
  require<ScheduleError>(!taken, "two layers of one Cell are called '", name, "': give one of them another name");
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
    found.layers.emplace(layer.get(), std::move(inside));
  }
  for (const auto& [name, inner] : inner_) {
    Found inside = here;
    inside.path = joined(here.path, name);
    inner->find_inside(std::move(inside), found);
  }
}

}  // namespace penstock
