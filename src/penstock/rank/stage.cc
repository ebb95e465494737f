#include "penstock/rank/stage.h"

#include <algorithm>

#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include "penstock/base/clock.h"
#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/layers/fast_layers.h"
#include "penstock/layers/split_layers.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/loss.h"
#include "penstock/trace/recorder.h"
#include "penstock/world/failures.h"

namespace penstock::rank {

namespace {

OwnerParameter owner_of(const Node& node, const std::string& parameter) {
  const auto tie = node.ties.find(parameter);
  return tie == node.ties.end() ? OwnerParameter{node.layer, node.layer_path, node.layer_number, parameter}
                                : tie->second;
}

/// What is wrong with the indices of an embedding, which torch does not say; empty for other layers.
std::string wrong_index(const BuiltLayer& layer, const torch::Tensor& indices) {
  const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(layer.module.get());
  if (!embedding || !indices.defined() || indices.is_floating_point()) return "";
  const std::int64_t rows = embedding->weight.size(0);
  const std::string wrong = number_outside(indices, rows);
  return wrong.empty() ? "" : say("the index ", wrong, " is not in its table of ", rows, " rows: pass 0 to ", rows - 1);
}

std::string advice_for(const c10::Error& error) {
  const bool is_one_sample = std::string(error.what()).find("more than 1 value per channel") != std::string::npos;
  return is_one_sample ? ": batch normalisation has nothing to average over in a micro-batch of one sample: take fewer "
                         "micro-batches or larger batches, and leave out a last batch that is too short"
                       : "";
}

}  // namespace

Stage::Stage(const StagedGraph& staged, const StagePart& part, const StageSetting& setting)
    : graph_(staged.graph), part_(part), setting_(setting) {
  build(staged);
  plain_call_ = [this](std::size_t call, layers::ExecutionState& run) { run_call(calls_[call], run); };
  find_segments();
}

void Stage::build(const StagedGraph& staged) {
  const auto add_slot = [&](const ValueRef& value) { return slots_.emplace(value, slots_.size()).first->second; };
  for (int input : part_.graph_inputs) arrivals_.push_back({add_slot({-1, input})});
  for (const Port& port : part_.receives)
    for (const ValueRef& value : port.values) arrivals_.push_back({add_slot(value)});
  for (int n : part_.nodes) {
    const Node& node = staged.graph.nodes[static_cast<std::size_t>(n)];
    Call call{&node, std::nullopt, std::nullopt, {}, 0};
    for (const ValueRef& input : node.inputs) call.inputs.push_back(slot_of(input));
    if (node.is_layer()) {
      call.layer = build_node(staged, node);
      attach(call);
    }
    for (int i = 0; i < node.outputs; ++i) {
      const std::size_t slot = add_slot({n, i});
      if (i == 0) call.first_output = slot;
    }
    calls_.push_back(std::move(call));
  }
}

void Stage::attach(Call& call) {
  for (auto& item : call.layer->module->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const std::string name = owner_of(*call.node, item.key()).full_name();
    gradients_.add_use({name, item.value(), std::ranges::find(state_, name, &Held::name)->all_uses});
  }
  call.split.reset();
  if (auto split = layers::split_layer({call.node->name, *call.layer, setting_.kernels}, gradients_)) {
    call.split = split_.size();
    split_.push_back(std::move(split));
  }
}

std::vector<std::pair<std::string, std::string>> Stage::parameter_names() const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Call& call : calls_) {
    if (!call.layer) continue;
    for (const auto& item : call.layer->module->named_parameters())
      names.emplace_back(full_name(*call.node->layer, call.node->layer_path, item.key()),
                         owner_of(*call.node, item.key()).full_name());
  }
  return names;
}

void Stage::set_trainable(const Trains& trains) {
  gradients_ = {};
  split_.clear();
  for (Call& call : calls_) {
    if (!call.layer) continue;
    for (auto& item : call.layer->module->named_parameters()) {
      const std::optional<bool> trained = trains(owner_of(*call.node, item.key()).full_name());
      if (!trained || item.value().requires_grad() == *trained) continue;
      item.value().set_requires_grad(*trained);
      // An optimiser skips parameters without a gradient.
      item.value().mutable_grad().reset();
    }
    attach(call);
  }
}

void Stage::find_segments() {
  std::vector<layers::CallShape> shapes;
  for (const Call& call : calls_)
    shapes.push_back({call.node->name, call.node->recompute.value_or(false), call.inputs, call.first_output,
                      static_cast<std::size_t>(call.node->outputs), call.layer ? call.layer->module : nullptr,
                      call.node->block});
  std::vector<std::size_t> leaving;
  for (const Port& port : part_.sends)
    for (const ValueRef& value : port.values) leaving.push_back(slot_of(value));
  for (const ValueRef& value : part_.outputs) leaving.push_back(slot_of(value));
  segments_ = layers::find_segments(shapes, leaving);
}

std::size_t Stage::slot_of(const ValueRef& value) const {
  const auto found = slots_.find(value);
  require<InternalError>(found != slots_.end(), "stage ", part_.id.value(), " needs '", graph_.name_of(value),
                         "', which no stage sends and no input provides");
  return found->second;
}

// Values depend on the seed and the layer's name alone, so that every stage that uses the layer builds the same ones.
BuiltLayer Stage::build_node(const StagedGraph& staged, const Node& node) {
  const WeightSeed seed{.seed = setting_.seed, .layer = node.layer_path};
  const Call* first = nullptr;
  for (const Call& call : calls_)
    if (!first && call.layer && call.node->layer_path == node.layer_path) first = &call;
  const bool is_copy = first || node.layer->standalone;
  BuiltLayer built = is_copy ? build_layer(node.layer->factory, seed) : initial_layer(*node.layer, seed);
  if (first)
    share_values(*built.module, *first->layer->module);
  else if (node.layer->standalone)
    copy_values(*built.module, *node.layer->standalone->module);
  built.module->to(setting_.device);
  layers::make_few_rows_fast(built);
  if (setting_.kernels->is_tuned()) layers::make_fast(built);
  hold(staged, node, *built.module);
  return built;
}

void Stage::hold(const StagedGraph& staged, const Node& node, torch::nn::Module& module) {
  const auto held = [&](const std::string& name) {
    return std::find_if(state_.begin(), state_.end(), [&](const Held& one) { return one.name == name; });
  };
  for (const auto& tie : node.ties) find_parameter(module, tie.first, node.layer_path);
  const StateDict tensors = state_dict_of(module), parameters = module.named_parameters();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    torch::Tensor leaf = tensors[i].value();
    const OwnerParameter owner = owner_of(node, tensors[i].key());
    const std::string name = owner.full_name();
    if (!parameters.contains(tensors[i].key())) {
      if (held(name) == state_.end()) state_.push_back({name, leaf, {node.layer_number, i}, {}});
      continue;
    }
    if (const auto known = held(name); known != state_.end()) {
      tie_values(leaf, known->value);
      continue;
    }
    StatePlace place{owner.layer_number, i};
    if (node.ties.contains(tensors[i].key())) {
      const BuiltLayer owned_here =
          initial_owner(*owner.layer, {.seed = setting_.seed, .layer = owner.layer_path}, owner.name);
      const torch::Tensor there = find_parameter(*owned_here.module, owner.name, owner.layer_path);
      const bool is_shared = owner.layer->standalone.has_value();
      torch::Tensor value = there.detach().to(setting_.device, /*non_blocking=*/false, /*copy=*/is_shared);
      tie_values(leaf, value.requires_grad_(there.requires_grad()));
      const std::vector<std::string> names = state_dict_of(*owned_here.module).keys();
      place.tensor = static_cast<std::size_t>(std::ranges::find(names, owner.name) - names.begin());
    }
    state_.push_back({name, leaf, place, uses_of(staged, *owner.layer, owner.name)});
  }
}

std::int64_t Stage::parameter_bytes(int node) const {
  std::int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (call.node != &graph_.nodes[static_cast<std::size_t>(node)] || !call.layer) continue;
    for (const torch::Tensor& parameter : call.layer->module->parameters())
      if (parameter.requires_grad()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return bytes;
}

void Stage::set_training(bool training) {
  if (training_ == training) return;
  training_ = training;
  for (const Call& call : calls_)
    if (call.layer) call.layer->module->train(training);
}

Stage::Forwarded Stage::forward(const Arrivals& arrivals, const Finish& finish) {
  Tensors leaves;
  layers::ExecutionState run{take_arrivals(arrivals, leaves), {}, arrivals.place};
  if (torch::GradMode::is_enabled())
    for (std::size_t i = 0; i < split_.size(); ++i) run.saved.push_back(c10::make_intrusive<layers::SavedForWeights>());
  const RandomPlaceGuard guard(run.place);
  if (is_watched())
    run_calls(run, plain_call_);
  else
    run_watching_for_changes(run);

  Forwarded result = leave(run.slots);
  result.activations.saved = std::move(run.saved);
  result.activations.received = std::move(leaves);
  if (!part_.outputs.empty() && finish) {
    run.place.begin_call("loss");
    const DeviceRandomGuard draws(run.place, setting_.device);
    Tensors outputs;
    for (const ValueRef& value : part_.outputs) outputs.push_back(run.slots[slot_of(value)]);
    result.activations.loss = finish(outputs);
  }
  if (!torch::GradMode::is_enabled()) result.activations = {};
  result.activations.micro_batch = arrivals.micro_batch.index();
  result.activations.place = arrivals.place;
  return result;
}

Tensors Stage::take_arrivals(const Arrivals& from, Tensors& leaves) {
  Tensors slots(slots_.size());
  auto arrival = arrivals_.begin();
  const auto place = [&](torch::Tensor value) {
    value = to_device(value, setting_.device);
    // The sender shares the memory. Until the first F has shown that no layer changes the value, work on a copy.
    if (value.defined() && (arrival->copy || !is_watched())) value = value.clone();
    slots[arrival->slot] = std::move(value);
    ++arrival;
  };
  for (const torch::Tensor& input : from.inputs) place(input);
  for (const Message& message : from.received)
    for (const Payload& payload : message.payloads) {
      torch::Tensor leaf;
      if (torch::GradMode::is_enabled() && payload.requires_grad && payload.tensor.defined())
        leaf = to_device(payload.tensor, setting_.device).detach().requires_grad_(true);
      place(leaf.defined() ? leaf : payload.tensor);
      leaves.push_back(std::move(leaf));
    }
  return slots;
}

void Stage::run_calls(layers::ExecutionState& run, const layers::RunCall& run_call) {
  auto segment = segments_.begin();
  const auto no_segment = segments_.end();
  if (!torch::GradMode::is_enabled()) segment = no_segment;
  for (std::size_t c = 0; c < calls_.size();) {
    if (segment == no_segment || (*segment)->begin() != c) {
      run_call(c++, run);
      continue;
    }
    (*segment)->forward(run, run_call, plain_call_);
    c = (*segment++)->end();
  }
  if (torch::GradMode::is_enabled())
    for (const auto& each : segments_) each->finish(run);
}

// Adds the layer's name to torch's errors.
void Stage::run_call(const Call& call, layers::ExecutionState& run) const {
  Tensors arguments;
  arguments.reserve(call.inputs.size());
  for (const std::size_t slot : call.inputs) arguments.push_back(run.slots[slot]);
  run.place.begin_call(call.node->name);
  const auto first = run.slots.begin() + static_cast<std::ptrdiff_t>(call.first_output);
  const layers::SplitLayer* const split = call.split ? split_[*call.split].get() : nullptr;
  const bool has_graph = torch::GradMode::is_enabled();
  try {
    const std::int64_t begin = clock_ ? clock_->now() : 0;
    const DeviceRandomGuard draws(run.place, setting_.device);
    if (split && !run.saved.empty()) {
      // The first run of a recomputed segment has no graph: it computes the same numbers, and saves nothing.
      *first = has_graph ? split->forward(arguments.front(), run.saved[*call.split])
                         : split->run(split->as_computed(arguments.front()));
    } else if (split && !has_graph && setting_.kernels->is_tuned()) {
      *first = split->run_without_graph(arguments.front());
    } else {
      Tensors results = call.layer ? call.layer->forward(arguments) : call.node->function(arguments);
      require<ScheduleError>(results.size() == static_cast<std::size_t>(call.node->outputs), "'", call.node->name,
                             "' returned ", results.size(), " values, but is declared to return ", call.node->outputs);
      std::move(results.begin(), results.end(), first);
    }
    if (!check_ && !clock_) return;
    const Tensors outputs(first, first + call.node->outputs);
    if (check_) check_(static_cast<int>(call.node - graph_.nodes.data()), outputs);
    if (clock_) clock_->ran(static_cast<std::size_t>(&call - calls_.data()), begin, outputs, arguments);
  } catch (const c10::Error& error) {
    const std::string index = call.layer && !arguments.empty() ? wrong_index(*call.layer, arguments.front()) : "";
    throw Failure(say("'", call.node->name, "': ", index.empty() ? reason_of(error) + advice_for(error) : index));
  }
}

// A layer that changes its input in place (ReLU(inplace) and the like) is harmless where the input is not read
// afterwards. From now on it gets a copy of a value from outside the stage. A later reader of the value is an error.
void Stage::run_watching_for_changes(layers::ExecutionState& run) {
  std::vector<std::pair<std::string, std::size_t>> sent;  // reader, slot
  for (const Port& port : part_.sends)
    for (const ValueRef& value : port.values) sent.emplace_back(say("stage ", port.peer.value()), slot_of(value));

  const auto versions = [&] {
    std::vector<std::int64_t> all;
    for (const torch::Tensor& tensor : run.slots) all.push_back(tensor.defined() ? tensor._version() : -1);
    return all;
  };
  const auto outside = versions();
  run_calls(run, [&](std::size_t c, layers::ExecutionState&) {
    const auto before = versions();
    run_call(calls_[c], run);
    const auto after = versions();
    std::vector<std::pair<std::string, std::size_t>> later = sent;
    for (std::size_t l = c + 1; l < calls_.size(); ++l)
      for (std::size_t slot : calls_[l].inputs) later.emplace_back("'" + calls_[l].node->name + "'", slot);
    for (const auto& [reader, slot] : later)
      require<ScheduleError>(before[slot] < 0 || before[slot] == after[slot], "layer '", calls_[c].node->name,
                             "' changes a value in place that ", reader,
                             " reads afterwards: use a layer that does not work in place");
  });
  const auto at_end = versions();
  for (Arrival& arrival : arrivals_) arrival.copy |= outside[arrival.slot] != at_end[arrival.slot];
  watched_[training_.value_or(false)] = true;
}

Stage::Forwarded Stage::leave(const Tensors& slots) const {
  Forwarded result;
  for (const Port& port : part_.sends) {
    Message& message = result.sends.emplace_back();
    for (const ValueRef& value : port.values) {
      const torch::Tensor& tensor = slots[slot_of(value)];
      const bool needs_grad = tensor.defined() && tensor.requires_grad();
      message.payloads.push_back({tensor.defined() ? tensor.detach() : tensor, needs_grad});
      result.activations.sent.push_back(needs_grad ? tensor : torch::Tensor());
    }
  }
  return result;
}

std::vector<Message> Stage::backward(Activations activations, const OutputGradients& from) {
  for (const layers::Saved& saved : activations.saved) saved->weights_now = true;
  return input_grad(activations, from);
}

std::vector<Message> Stage::input_grad(Activations& activations, const OutputGradients& from) {
  // Roots: the sent values with their gradients. The gradients of a value that was sent to several stages are added
  // from the last stage to the first, which is the engine's order where all readers are on one stage.
  Tensors roots, root_gradients;
  std::map<const torch::TensorImpl*, std::size_t> root_of;
  std::size_t sent = activations.sent.size();
  for (auto message = from.messages.rbegin(); message != from.messages.rend(); ++message) {
    sent -= message->payloads.size();
    for (std::size_t i = 0; i < message->payloads.size(); ++i) {
      const Payload& payload = message->payloads[i];
      const torch::Tensor& root = activations.sent[sent + i];
      if (!root.defined() || !payload.tensor.defined()) continue;
      const auto [known, is_new] = root_of.try_emplace(root.unsafeGetTensorImpl(), roots.size());
      if (is_new) {
        roots.push_back(root);
        root_gradients.push_back(to_device(payload.tensor, root.device()));
      } else {
        root_gradients[known->second] = root_gradients[known->second] + to_device(payload.tensor, root.device());
      }
    }
  }
  if (activations.loss.defined() && activations.loss.requires_grad()) {
    roots.push_back(activations.loss);
    root_gradients.push_back(from.loss);
  }

  // The weights of layers that split are included, or the engine would skip those layers; their gradients are
  // undefined.
  Tensors wanted = gradients_.leaves();
  for (const torch::Tensor& leaf : activations.received)
    if (leaf.defined()) wanted.push_back(leaf);
  Tensors found(wanted.size());
  if (clock_) clock_->begin_backward();
  activations.place.begin_call("backward");
  const RandomPlaceGuard guard(activations.place);
  const layers::BackwardOnThisThread on_this_thread;
  if (!roots.empty() && !wanted.empty())
    found = torch::autograd::grad(roots, wanted, root_gradients, /*retain_graph=*/false, /*create_graph=*/false,
                                  /*allow_unused=*/true);
  if (clock_) clock_->end_backward();

  std::vector<Message> messages;
  std::size_t next_leaf = 0, next_found = gradients_.leaves().size();
  for (const Port& port : part_.receives) {
    Message& message = messages.emplace_back();
    for (std::size_t i = 0; i < port.values.size(); ++i) {
      const bool wants = activations.received[next_leaf++].defined();
      message.payloads.push_back({wants ? found[next_found++] : torch::Tensor(), false});
    }
  }
  found.resize(gradients_.leaves().size());
  gradients_.add_in_order(activations.micro_batch, std::move(found));
  activations.received.clear();
  activations.sent.clear();
  activations.loss.reset();
  // Layers that the backward pass skipped have no W.
  for (const layers::Saved& saved : activations.saved)
    if (!saved->output_gradient.defined()) saved->clear();
  return messages;
}

// From the last call to the first, as B: other replicas wait for the gradients in this order.
void Stage::weight_grad(std::vector<Activations> group) {
  for (std::size_t c = calls_.size(); c-- > 0;) {
    if (!calls_[c].split) continue;
    const std::size_t i = *calls_[c].split;
    const std::int64_t begin = clock_ ? clock_->now() : 0;
    std::vector<layers::Saved> saved;
    for (const Activations& activations : group) saved.push_back(activations.saved[i]);
    split_[i]->weight_gradients(saved);
    if (clock_) clock_->weights(c, begin, group.size());
  }
}

void StageClocks::set_running(bool on) {
  clocks_.clear();
  for (const auto& stage : stages_) {
    if (on) clocks_.push_back(std::make_unique<layers::LayerClock>(stage->part().nodes.size(), stream_));
    stage->set_clock(on ? clocks_.back().get() : nullptr);
  }
}

void StageClocks::read_marks() {
  for (const auto& clock : clocks_) clock->read_marks();
}

std::vector<NodeTimes> StageClocks::times(std::size_t steps) const {
  std::vector<NodeTimes> times;
  for (std::size_t s = 0; s < clocks_.size(); ++s) {
    const std::vector<int>& nodes = stages_[s]->part().nodes;
    for (std::size_t call = 0; call < nodes.size(); ++call) {
      const layers::LayerClock::Samples& samples = clocks_[s]->samples()[call];
      times.push_back({nodes[call], median_of_steps(samples.forward, steps), median_of_steps(samples.backward, steps),
                       median_of_steps(samples.weight_grad, steps), samples.output_bytes,
                       stages_[s]->parameter_bytes(nodes[call])});
    }
  }
  return times;
}

}  // namespace penstock::rank
