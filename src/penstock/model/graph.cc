#include "penstock/model/graph.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/utf8.h"
#include "penstock/model/traced_shapes.h"

namespace penstock {
namespace {

thread_local Tracer* tracer_of_thread = nullptr;

}  // namespace

std::string Graph::name_of(const ValueRef& value) const {
  if (value.is_graph_input()) return say("input ", value.output);
  const Node& node = nodes[static_cast<std::size_t>(value.node)];
  return node.outputs == 1 ? node.name : say(node.name, ":", value.output);
}

Graph trace_graph(Cell& network, int inputs, const TraceSample& sample) {
  Tracer tracer(network, inputs, sample);
  return tracer.finish(network(tracer.inputs()));
}

Tracer::Tracer(const Cell& root, int inputs, const TraceSample& sample)
    : shapes_(std::make_unique<TracedShapes>(sample)) {
  require<ScheduleError>(inputs >= 1, "a network takes at least one input, not ", inputs);
  require<ScheduleError>(!tracer_of_thread, "a network is traced while another one is: forward cannot make a pipeline");
  graph_.inputs = inputs;
  root.find_inside({}, contents_);
  for (const auto& [layer, found] : contents_.layers) uses_[found.path] = 1;
  tracer_of_thread = this;
}

Tracer::~Tracer() { tracer_of_thread = nullptr; }

TracedShape Tracer::shape_of(const Value& value) { return shapes_->of(graph_, value.ref_); }

Tracer* Tracer::running() { return tracer_of_thread; }

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
  require<ScheduleError>(!has_real, "'", user, "' takes '", traced,
                         "', which is traced, together with a real tensor: make the tensor a parameter of a layer, or "
                         "make it inside penstock::apply");
  return tracer;
}

Values Tracer::add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments) {
  const Cell::Found& found = find(*layer, "the network");
  Node node;
  node.name = called_.insert(layer.get()).second || layer->is_parameter ? found.path : unique_name(found.path);
  node.layer = layer;
  node.layer_path = found.path;
  node.outputs = layer->factory.outputs;
  node.stage = layer->stage.value();
  if (!node.stage && found.from_cell && !layer->is_parameter) node.stage = found.from_cell->value();
  node.recompute = found.recompute;
  for (const auto& [name, to] : layer->ties) {
    const ParameterOfLayer owner = owner_of(to.layer, to.name);
    const bool taken = owner.layer == layer || std::any_of(node.ties.begin(), node.ties.end(), [&](const auto& tie) {
                         return tie.second.layer == owner.layer && tie.second.name == owner.name;
                       });
    require<ScheduleError>(!taken, "layer '", found.path, "' would have '", owner.layer->path, ".", owner.name,
                           "' twice: two parameters of one layer cannot be tied");
    node.ties[name] = {owner.layer, find(*owner.layer, say("'", found.path, ".", name, "'")).path, owner.name};
  }
  return add(std::move(node), arguments);
}

const Cell::Found& Tracer::find(const LayerRecord& layer, const std::string& user) const {
  const auto found = contents_.layers.find(&layer);
  require<ScheduleError>(found != contents_.layers.end(), "layer '", layer.name, "' is used by ", user,
                         " but belongs to a Cell that was never added: call add(name, cell)");
  return found->second;
}

Values Tracer::add_function(const std::string& name, const TensorFunction& function, const Values& arguments,
                            int outputs) {
  require<ScheduleError>(is_plain_text(name), "'", printable(name), "' cannot name a function: a name is UTF-8 text ",
                         "without newlines and other control characters");
  Node node;
  node.name = unique_name(name);
  node.function = function;
  node.outputs = outputs;
  const auto around = contents_.cells.find(running_.empty() ? nullptr : running_.back().cell);
  if (around != contents_.cells.end()) {
    if (around->second.from_cell) node.stage = around->second.from_cell->value();
    node.recompute = around->second.recompute;
  }
  return add(std::move(node), arguments);
}

Values Tracer::run_cell(Cell& cell, const Values& inputs) {
  running_.push_back({&cell, ++cell_calls_});
  Values outputs = cell.forward_many(inputs);
  running_.pop_back();
  return outputs;
}

int Tracer::running_block() const {
  if (running_.size() < 2) return 0;
  for (auto running = running_.rbegin(); running != running_.rend() - 1; ++running)
    if (running->cell->recompute.value()) return running->call;
  return running_[1].call;
}

Values Tracer::add(Node node, const Values& arguments) {
  for (const Value& argument : arguments) node.inputs.push_back(argument.ref_);
  node.block = running_block();
  const int index = static_cast<int>(graph_.nodes.size());
  Values results;
  for (int i = 0; i < node.outputs; ++i) results.push_back(Value(*this, {index, i}));
  graph_.nodes.push_back(std::move(node));
  return results;
}

Graph Tracer::finish(const Values& outputs) {
  require<ScheduleError>(!outputs.empty(), "the network returns nothing: return at least one value");
  for (const Value& output : outputs) {
    require<ScheduleError>(output.is_symbolic(), "the network returns a tensor that does not depend on its input");
    graph_.outputs.push_back(output.ref_);
  }
  find_uncalled();
  spread_parameters();
  return std::move(graph_);
}

void Tracer::find_uncalled() {
  std::set<const LayerRecord*> used = called_;
  for (const Node& node : graph_.nodes)
    for (const auto& [name, owner] : node.ties) used.insert(owner.layer.get());
  for (const auto& [layer, found] : contents_.layers)
    if (!used.contains(layer)) graph_.uncalled.push_back(found.path);
  std::sort(graph_.uncalled.begin(), graph_.uncalled.end());  // the map is ordered by address
}

void Tracer::spread_parameters() {
  std::vector<Node> nodes;
  std::vector<int> new_index(graph_.nodes.size(), -1);
  std::set<const LayerRecord*> used;
  const auto moved = [&](const ValueRef& value, const Node* user) -> ValueRef {
    if (value.is_graph_input()) return value;
    const auto index = static_cast<std::size_t>(value.node);
    if (!graph_.nodes[index].is_parameter()) return {new_index[index], value.output};
    Node use = graph_.nodes[index];
    if (!used.insert(use.layer.get()).second) use.name = unique_name(use.layer_path);
    // It does not stand between the calls of a block that is recomputed as one.
    if (user) {
      use.recompute = user->recompute;
      use.block = user->block;
    }
    nodes.push_back(std::move(use));
    return {static_cast<int>(nodes.size()) - 1, 0};
  };
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (graph_.nodes[n].is_parameter()) continue;
    Node node = graph_.nodes[n];
    for (ValueRef& input : node.inputs) input = moved(input, &node);
    new_index[n] = static_cast<int>(nodes.size());
    nodes.push_back(std::move(node));
  }
  for (ValueRef& output : graph_.outputs) output = moved(output, nullptr);
  graph_.nodes = std::move(nodes);
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
