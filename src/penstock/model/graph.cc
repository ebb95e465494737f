#include "penstock/model/graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

std::string Graph::name_of(const ValueRef& value) const {
  if (value.is_graph_input()) return say("input ", value.output);
  const Node& node = nodes[static_cast<std::size_t>(value.node)];
  return node.outputs == 1 ? node.name : say(node.name, ":", value.output);
}

namespace {

/// Restores the process's generator at the end.
class SavedGenerator {
 public:
  SavedGenerator() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~SavedGenerator() { generator_.set_state(state_); }
  SavedGenerator(const SavedGenerator&) = delete;
  SavedGenerator& operator=(const SavedGenerator&) = delete;

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

/// The message of the current exception, without LibTorch's backtrace.
std::string message_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return torch ? torch->what_without_backtrace() : error.what();
}

}  // namespace

TracedShapes::TracedShapes(const TraceSample& sample) {
  is_known_ = !sample.inputs.empty() && std::all_of(sample.inputs.begin(), sample.inputs.end(),
                                                    [](const auto& input) { return input.defined(); });
  if (!is_known_) return;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const torch::Tensor& input = sample.inputs[i];
    const std::optional<int> dimension = i < sample.samples_along.size() ? sample.samples_along[i] : 0;
    Pair& pair = inputs_.emplace_back();
    for (std::size_t k = 0; k < samples.size(); ++k) {
      std::vector<std::int64_t> sizes = input.sizes().vec();
      if (dimension && *dimension < input.dim()) sizes[static_cast<std::size_t>(*dimension)] = samples[k];
      pair[k] = torch::zeros(sizes, input.scalar_type());
    }
  }
}

const TracedShapes::Pair& TracedShapes::pair_of(const ValueRef& value) const {
  if (value.is_graph_input()) return inputs_[static_cast<std::size_t>(value.output)];
  return of_node_[static_cast<std::size_t>(value.node)].values[static_cast<std::size_t>(value.output)];
}

TracedShape TracedShapes::of(const Graph& graph, const ValueRef& value) {
  const std::string what =
      "forward reads the shape of '" + graph.name_of(value) + "', which is not known while the network is traced: ";
  constexpr const char* otherwise = "put the code that needs it into penstock::apply(name, function, {values})";
  require<ScheduleError>(is_known_ && static_cast<int>(inputs_.size()) == graph.inputs, what,
                         "set PipelineOptions::example_inputs, or ", otherwise);
  if (!value.is_graph_input()) {
    const auto node = static_cast<std::size_t>(value.node);
    while (of_node_.size() <= node) {
      Outputs outputs;
      run(graph.nodes[of_node_.size()], outputs);
      of_node_.push_back(std::move(outputs));
    }
    require<ScheduleError>(of_node_[node].failure.empty(), what, of_node_[node].failure, "; ", otherwise);
  }
  const Pair& pair = pair_of(value);
  require<ScheduleError>(pair[0].defined() && pair[1].defined(), what, "there is none; ", otherwise);
  TracedShape shape{{}, pair[0].scalar_type()};
  for (std::int64_t d = 0; d < pair[0].dim(); ++d) {
    const std::int64_t of_two = pair[0].size(d), of_three = pair[1].size(d);
    const std::int64_t factor = of_two / samples[0];
    const bool is_number = of_two == of_three;
    require<ScheduleError>(is_number || (of_two == factor * samples[0] && of_three == factor * samples[1]), what,
                           "dimension ", d, " is not a multiple of the number of samples; ", otherwise);
    shape.sizes.push_back(is_number ? Size(of_two) : Size::of_samples(factor));
  }
  return shape;
}

void TracedShapes::run(const Node& node, Outputs& outputs) {
  for (const ValueRef& input : node.inputs)
    if (!input.is_graph_input() && !of_node_[static_cast<std::size_t>(input.node)].failure.empty()) {
      outputs.failure = of_node_[static_cast<std::size_t>(input.node)].failure;
      return;
    }
  const torch::NoGradGuard no_grad;
  const SavedGenerator generator;
  try {
    TensorFunction call = node.function;
    std::shared_ptr<torch::nn::Module> module;
    if (node.is_layer()) {
      const BuiltLayer built = build_layer(node.layer->factory, {});
      module = built.module;
      module->eval();
      call = built.forward;
    }
    outputs.values.resize(static_cast<std::size_t>(node.outputs));
    for (std::size_t k = 0; k < samples.size(); ++k) {
      Tensors arguments;
      // Clones, because a layer may modify its inputs in place.
      for (const ValueRef& input : node.inputs) {
        const torch::Tensor& argument = pair_of(input)[k];
        arguments.push_back(argument.defined() ? argument.clone() : argument);
      }
      const Tensors results = call(arguments);
      if (static_cast<int>(results.size()) != node.outputs) {
        outputs.failure = say("'", node.name, "' returns another number of values than it declares");
        return;
      }
      for (std::size_t i = 0; i < results.size(); ++i) outputs.values[i][k] = results[i];
    }
  } catch (const std::exception& error) {
    outputs.failure = say("'", node.name, "' fails on samples of zeros (", message_of(error), ")");
  }
}

/// Collects the nodes while forward runs.
class GraphTracer final : public Tracer {
 public:
  GraphTracer(const Cell& root, int inputs, const TraceSample& sample = {});
  ~GraphTracer() override;

  Values inputs();
  Values add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments) override;
  Values add_function(const std::string& name, const TensorFunction& function, const Values& arguments,
                      int outputs) override;
  Values run_cell(Cell& cell, const Values& inputs) override;
  std::string name_of(const Value& value) const override { return graph_.name_of(ref_of(value)); }
  TracedShape shape_of(const Value& value) override { return shapes_.of(graph_, ref_of(value)); }
  Graph finish(const Values& outputs);

 private:
  Values add(Node node, const Values& arguments);
  std::string unique_name(const std::string& wanted);
  const Cell::Found& find(const LayerRecord& layer, const std::string& user) const;
  /// Lists layers that no node uses, not even as the owner of a tied parameter.
  void find_uncalled();
  /// Gives every use of a raw parameter a node of its own, directly before the user, so that it is on the user's stage.
  void spread_parameters();

  /// Numbers repeated calls by the order in which the results need them, arguments from the first to the last: in
  /// `f(x) * g(x)` the compiler decides which call runs first.
  void number_calls();
  void reserve_names();

  /// A call of a Cell whose forward is running.
  struct RunningCell {
    const Cell* cell = nullptr;
    int call = 0;            // number of the call, from 1
    std::string block = {};  // Node::in_block of what it calls
  };
  int running_block() const;
  std::string path_of(const Cell& cell) const;

  Graph graph_;
  TracedShapes shapes_;
  Cell::Contents contents_;
  std::vector<RunningCell> running_;  // outermost first
  int cell_calls_ = 0;
  std::map<const Cell*, int> block_calls_;
  std::map<std::string, std::string> functions_;  // for the names of functions' nodes, without numbers
  std::set<const LayerRecord*> called_;
  std::map<std::string, int> uses_;  // of each name; the first uses of the layers' names are reserved
};

Graph trace_graph(Cell& network, int inputs, const TraceSample& sample) {
  GraphTracer tracer(network, inputs, sample);
  return tracer.finish(network(tracer.inputs()));
}

GraphTracer::GraphTracer(const Cell& root, int inputs, const TraceSample& sample) : shapes_(sample) {
  require<ScheduleError>(inputs >= 1, "a network takes at least one input, not ", inputs);
  require<ScheduleError>(!running(), "a network is traced while another one is: forward cannot make a pipeline");
  graph_.inputs = inputs;
  root.find_inside({}, contents_);
  reserve_names();
  set_running(this);
}

GraphTracer::~GraphTracer() { set_running(nullptr); }

Values GraphTracer::inputs() {
  Values values;
  for (int i = 0; i < graph_.inputs; ++i) values.push_back(symbol({-1, i}));
  return values;
}

Values GraphTracer::add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments) {
  const Cell::Found& found = find(*layer, "the network");
  Node node;
  node.name = called_.insert(layer.get()).second || layer->is_parameter ? found.path : unique_name(found.path);
  node.layer = layer;
  node.layer_path = found.path;
  node.layer_number = found.number;
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
    const Cell::Found& owner_found = find(*owner.layer, say("'", found.path, ".", name, "'"));
    node.ties[name] = {owner.layer, owner_found.path, owner_found.number, owner.name};
  }
  return add(std::move(node), arguments);
}

const Cell::Found& GraphTracer::find(const LayerRecord& layer, const std::string& user) const {
  const auto found = contents_.layers.find(&layer);
  require<ScheduleError>(found != contents_.layers.end(), "layer '", layer.name, "' is used by ", user,
                         " but belongs to a Cell that was never added: call add(name, cell)");
  return found->second;
}

Values GraphTracer::add_function(const std::string& name, const TensorFunction& function, const Values& arguments,
                                 int outputs) {
  require<ScheduleError>(is_plain_text(name), "'", printable(name), "' cannot name a function: a name is UTF-8 text ",
                         "without newlines and other control characters");
  Node node;
  node.name = unique_name(name);
  functions_[node.name] = name;
  node.function = function;
  node.outputs = outputs;
  const auto around = contents_.cells.find(running_.empty() ? nullptr : running_.back().cell);
  if (around != contents_.cells.end()) {
    if (around->second.from_cell) node.stage = around->second.from_cell->value();
    node.recompute = around->second.recompute;
  }
  return add(std::move(node), arguments);
}

Values GraphTracer::run_cell(Cell& cell, const Values& inputs) {
  std::string block = running_.empty() ? "" : running_.back().block;
  if (block.empty() && cell.is_block && !running_.empty()) {
    const int call = ++block_calls_[&cell];
    block = call == 1 ? path_of(cell) : say(path_of(cell), "_", call);
  }
  running_.push_back({&cell, ++cell_calls_, std::move(block)});
  Values outputs = cell.forward_many(inputs);
  running_.pop_back();
  return outputs;
}

std::string GraphTracer::path_of(const Cell& cell) const {
  const auto found = contents_.cells.find(&cell);
  return found == contents_.cells.end() ? "" : found->second.path;
}

int GraphTracer::running_block() const {
  if (running_.size() < 2) return 0;
  for (auto running = running_.rbegin(); running != running_.rend() - 1; ++running)
    if (running->cell->recompute.value()) return running->call;
  return running_[1].call;
}

Values GraphTracer::add(Node node, const Values& arguments) {
  for (const Value& argument : arguments) node.inputs.push_back(ref_of(argument));
  node.block = running_block();
  if (!running_.empty()) {
    node.cell = path_of(*running_.back().cell);
    node.in_block = running_.back().block;
  }
  const int index = static_cast<int>(graph_.nodes.size());
  Values results;
  for (int i = 0; i < node.outputs; ++i) results.push_back(symbol({index, i}));
  graph_.nodes.push_back(std::move(node));
  return results;
}

Graph GraphTracer::finish(const Values& outputs) {
  require<ScheduleError>(!outputs.empty(), "the network returns nothing: return at least one value");
  for (const Value& output : outputs) {
    require<ScheduleError>(output.is_symbolic(), "the network returns a tensor that does not depend on its input");
    graph_.outputs.push_back(ref_of(output));
  }
  find_uncalled();
  spread_parameters();
  number_calls();
  return std::move(graph_);
}

void GraphTracer::find_uncalled() {
  std::set<const LayerRecord*> used = called_;
  for (const Node& node : graph_.nodes)
    for (const auto& [name, owner] : node.ties) used.insert(owner.layer.get());
  for (const auto& [layer, found] : contents_.layers)
    if (!used.contains(layer)) graph_.uncalled.push_back(found.path);
  std::sort(graph_.uncalled.begin(),
            graph_.uncalled.end());  // the map is ordered by address
}

void GraphTracer::spread_parameters() {
  std::vector<Node> nodes;
  std::vector<int> new_index(graph_.nodes.size(), -1);
  std::set<const LayerRecord*> used;
  const auto moved = [&](const ValueRef& value, const Node* user) -> ValueRef {
    if (value.is_graph_input()) return value;
    const auto index = static_cast<std::size_t>(value.node);
    if (!graph_.nodes[index].is_parameter()) return {new_index[index], value.output};
    Node use = graph_.nodes[index];
    if (!used.insert(use.layer.get()).second) use.name = unique_name(use.layer_path);
    // The parameter's node must not separate calls that are recomputed together.
    if (user) {
      use.recompute = user->recompute;
      use.block = user->block;
      use.cell = user->cell;
      use.in_block = user->in_block;
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

void GraphTracer::reserve_names() {
  uses_.clear();
  for (const auto& [layer, found] : contents_.layers) uses_[found.path] = 1;
}

void GraphTracer::number_calls() {
  std::vector<std::size_t> order;
  std::vector<bool> known(graph_.nodes.size(), false);
  const auto visit = [&](std::size_t result) {
    std::vector<std::pair<std::size_t, std::size_t>> path{{result, 0}};  // each with its next input
    for (known[result] = true; !path.empty();) {
      auto& [node, next] = path.back();
      const std::vector<ValueRef>& inputs = graph_.nodes[node].inputs;
      if (next == inputs.size()) {
        order.push_back(node);
        path.pop_back();
        continue;
      }
      const ValueRef& input = inputs[next++];
      if (input.is_graph_input() || known[static_cast<std::size_t>(input.node)]) continue;
      known[static_cast<std::size_t>(input.node)] = true;
      path.emplace_back(static_cast<std::size_t>(input.node), 0);
    }
  };
  for (const ValueRef& output : graph_.outputs)
    if (!output.is_graph_input() && !known[static_cast<std::size_t>(output.node)])
      visit(static_cast<std::size_t>(output.node));
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n)  // what no result needs
    if (!known[n]) visit(n);
  reserve_names();
  std::set<const LayerRecord*> called;
  for (const std::size_t n : order) {
    Node& node = graph_.nodes[n];
    const bool is_first = node.is_layer() && called.insert(node.layer.get()).second;
    const std::string& name = node.is_layer() ? node.layer_path : functions_.at(node.name);
    node.name = is_first ? name : unique_name(name);
  }
}

std::string GraphTracer::unique_name(const std::string& wanted) {
  int& uses = uses_[wanted];
  std::string name = wanted;
  while (++uses > 1) {
    name = say(wanted, "_", uses);
    if (uses_.try_emplace(name, 1).second) break;
  }
  return name;
}

}  // namespace penstock
