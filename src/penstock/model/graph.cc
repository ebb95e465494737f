#include "penstock/model/graph.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {

std::string Graph::name_of(const ValueRef& value) const {
  if (value.is_graph_input()) return say("input ", value.output);
  const Node& node = nodes[static_cast<std::size_t>(value.node)];
  return node.outputs == 1 ? node.name : say(node.name, ":", value.output);
}

Graph trace_graph(Cell& network, int inputs) {
  Tracer tracer(network, inputs);
  return tracer.finish(network(tracer.inputs()));
}

Tracer::Tracer(const Cell& root, int inputs) {
  require<PlanError>(inputs >= 1, "a network takes at least one input, not ", inputs);
  graph_.inputs = inputs;
  root.find_inside({}, contents_);
  for (const auto& [layer, found] : contents_.layers) uses_[found.path] = 1;
}

Values Tracer::inputs() {
  Values values;
  for (int i = 0; i < graph_.inputs; ++i) values.push_back(Value(*this, {-1, i}));
  return values;
}

Tracer* Tracer::among(const Values& values) {
  const auto symbolic = std::find_if(values.begin(), values.end(), [](const Value& v) { return v.is_symbolic(); });
  return symbolic == values.end() ? nullptr : symbolic->tracer_;
}

Tracer* Tracer::of(const std::string& user, const Values& values) {
  Tracer* tracer = among(values);
  if (!tracer) return nullptr;
  std::string traced;
  bool has_real = false;
  for (const Value& value : values) {
    if (!value.is_symbolic())
      has_real = true;
    else if (traced.empty())
      traced = tracer->name_of(value);
  }
  require<PlanError>(!has_real, "'", user, "' takes '", traced,
                     "', which is traced, together with a real tensor: make the tensor a parameter of a layer, or "
                     "make it inside penstock::apply");
  return tracer;
}

Values Tracer::add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments) {
  const auto found = contents_.layers.find(layer.get());
  require<PlanError>(found != contents_.layers.end(), "layer '", layer->name,
                     "' is used by the network but belongs to a Cell that was never added: call add(name, cell)");
  Node node;
  node.name = called_.insert(layer.get()).second ? found->second.path : unique_name(found->second.path);
  node.layer = layer;
  node.layer_path = found->second.path;
  node.outputs = layer->factory.outputs;
  node.stage = layer->stage.value();
  if (!node.stage && found->second.from_cell) node.stage = found->second.from_cell->value();
  node.recompute = found->second.recompute;
  return add(std::move(node), arguments);
}

Values Tracer::add_function(const std::string& name, const TensorFunction& function, const Values& arguments,
                            int outputs) {
  Node node;
  node.name = unique_name(name);
  node.function = function;
  node.outputs = outputs;
  const auto around = contents_.cells.find(running_);
  if (around != contents_.cells.end()) {
    if (around->second.from_cell) node.stage = around->second.from_cell->value();
    node.recompute = around->second.recompute;
  }
  return add(std::move(node), arguments);
}

Values Tracer::run_cell(Cell& cell, const Values& inputs) {
  const Cell* around = std::exchange(running_, &cell);
  Values outputs = cell.forward_many(inputs);
  running_ = around;
  return outputs;
}

Values Tracer::add(Node node, const Values& arguments) {
  for (const Value& argument : arguments) node.inputs.push_back(argument.ref_);
  const int index = static_cast<int>(graph_.nodes.size());
  Values results;
  for (int i = 0; i < node.outputs; ++i) results.push_back(Value(*this, {index, i}));
  graph_.nodes.push_back(std::move(node));
  return results;
}

Graph Tracer::finish(const Values& outputs) {
  require<PlanError>(!outputs.empty(), "the network returns nothing: return at least one value");
  for (const Value& output : outputs) {
    require<PlanError>(output.is_symbolic(), "the network returns a tensor that does not depend on its input");
    graph_.outputs.push_back(output.ref_);
  }
  return std::move(graph_);
}

std::string Tracer::unique_name(const std::string& wanted) {
  int& uses = uses_[wanted];
  std::string name = wanted;
  while (++uses > 1) {
    name = say(wanted, "_", uses);
    if (uses_.try_emplace(name, 1).second) break;
  }
  return name;
}

}  // namespace penstock
