#include "penstock/layers/recompute.h"

#include <algorithm>
#include <set>

#include <torch/autograd.h>
#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"

namespace penstock::layers {

struct Segment::Memory : torch::CustomClassHolder {
  const Segment* segment = nullptr;
  const RunCall* again = nullptr;
  std::size_t slots = 0;
  Tensors inputs;                      // before F; undefined ones too
  std::vector<bool> wants;             // by input: whether it requires a gradient
  std::vector<std::int64_t> versions;  // by input
  Tensors buffers;                     // before F
  Tensors parameters;                  // those that train
  std::vector<std::size_t> leaving;    // slots of the outputs that require gradients
  Tensors outputs;                     // these outputs, until F returns them
  std::vector<Saved> saved;
  RandomPlace place;
  Autocast autocast;

  void clear() {
    inputs.clear();
    buffers.clear();
    saved.clear();
  }
};

namespace {

struct SegmentNode : torch::autograd::Function<SegmentNode> {
  /// Returns the outputs, which F has computed; the arguments are the tensors that they depend on, once per gradient.
  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList,
                         const c10::intrusive_ptr<Segment::Memory>& memory) {
    context->saved_data["memory"] = c10::IValue::make_capsule(memory);
    context->set_materialize_grads(false);
    return std::move(memory->outputs);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& output_gradients) {
    auto memory = c10::static_intrusive_pointer_cast<Segment::Memory>(context->saved_data["memory"].toCapsule());
    Tensors gradients = memory->segment->backward(*memory, output_gradients);
    gradients.emplace_back();  // of `memory`
    return gradients;
  }
};

/// A differentiable copy, with the same strides if possible, because results depend on strides bitwise.
torch::Tensor copy_of(const torch::Tensor& value) {
  const bool repeats = std::ranges::count(value.strides(), 0) > 0;
  if (value.is_non_overlapping_and_dense() || repeats) return value.clone();
  return torch::empty_strided(value.sizes(), value.strides(), value.options().requires_grad(false)).copy_(value);
}

/// Replaces the values of buffers while it lives, without changing the versions that autograd checks.
class BufferValues {
 public:
  BufferValues(const Tensors& buffers, const Tensors& values) : buffers_(buffers) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      before_.push_back(buffers_[i].detach().clone());
      buffers_[i].data().copy_(values[i]);
    }
  }
  ~BufferValues() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].data().copy_(before_[i]);
  }
  BufferValues(const BufferValues&) = delete;
  BufferValues& operator=(const BufferValues&) = delete;

 private:
  const Tensors& buffers_;
  Tensors before_;
};

std::int64_t version_of(const torch::Tensor& value) {
  return value.defined() ? static_cast<std::int64_t>(value._version()) : -1;
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const torch::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

c10::DeviceType device_type_of(const Tensors& values, const Tensors& parameters) {
  for (const Tensors* tensors : {&values, &parameters})
    for (const torch::Tensor& tensor : *tensors)
      if (tensor.defined()) return tensor.device().type();
  return c10::DeviceType::CPU;
}

torch::Tensor leaf_over(const torch::Tensor& value, bool wants_gradient) {
  return value.defined() ? value.detach().requires_grad_(wants_gradient) : value;
}

}  // namespace

Segment::Segment(const std::vector<CallShape>& calls, std::size_t begin, std::size_t end,
                 const std::vector<std::size_t>& leaving)
    : name_(say("'", calls[begin].name, "'", end - begin > 1 ? say(" to '", calls[end - 1].name, "'") : "")),
      begin_(begin),
      end_(end) {
  std::set<std::size_t> made, needed(leaving.begin(), leaving.end());
  for (std::size_t c = begin; c < end; ++c)
    for (std::size_t i = 0; i < calls[c].outputs; ++i) made.insert(calls[c].first_output + i);
  for (std::size_t c = end; c < calls.size(); ++c) needed.insert(calls[c].inputs.begin(), calls[c].inputs.end());
  for (std::size_t slot : made) (needed.contains(slot) ? outputs_ : inner_).push_back(slot);

  for (std::size_t c = begin; c < end; ++c) {
    for (std::size_t slot : std::set<std::size_t>(calls[c].inputs.begin(), calls[c].inputs.end())) {
      if (made.contains(slot)) continue;
      auto input = std::ranges::find(inputs_, slot, &Input::slot);
      if (input == inputs_.end()) input = inputs_.insert(input, Input{slot, false, false, 0});
      uses_.push_back({c, static_cast<std::size_t>(input - inputs_.begin())});
    }
    if (!calls[c].module) continue;
    for (const torch::Tensor& parameter : calls[c].module->parameters()) parameters_.push_back(parameter);
    for (const torch::Tensor& buffer : calls[c].module->buffers())
      if (buffer.defined()) buffers_.push_back(buffer);
  }
  std::ranges::reverse(uses_);

  last_read_.resize(end - begin);
  for (std::size_t slot : inner_) {
    std::size_t last = begin;
    for (std::size_t c = begin; c < end; ++c) {
      const bool makes = slot >= calls[c].first_output && slot < calls[c].first_output + calls[c].outputs;
      if (makes || std::ranges::count(calls[c].inputs, slot) > 0) last = c;
    }
    last_read_[last - begin].push_back(slot);
  }
}

std::vector<bool> Segment::wanting(const Memory& memory) const {
  std::vector<bool> wants = memory.wants;
  for (const torch::Tensor& parameter : parameters_) wants.push_back(parameter.requires_grad());
  return wants;
}

std::vector<Segment::OutputKind> Segment::kinds_of_outputs(const ExecutionState& state) const {
  std::vector<OutputKind> kinds;
  for (std::size_t slot : outputs_) {
    const torch::Tensor& value = state.slots[slot];
    kinds.push_back(!value.defined()        ? OutputKind::absent
                    : value.requires_grad() ? OutputKind::wants_gradient
                                            : OutputKind::wants_none);
  }
  return kinds;
}

void Segment::run_without_graph(ExecutionState& state, const RunCall& run_call) const {
  const torch::NoGradGuard no_grad;
  for (std::size_t c = begin_; c < end_; ++c) {
    run_call(c, state);
    for (std::size_t slot : last_read_[c - begin_]) state.slots[slot].reset();
  }
}

bool Segment::needs_graph(const ExecutionState& done, const Memory& memory, const RunCall& again) const {
  const BufferValues buffers(buffers_, memory.buffers);
  ExecutionState other{done.slots, memory.saved, memory.place};
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const torch::Tensor& input = memory.inputs[i];
    other.slots[inputs_[i].slot] = input.defined() ? copy_of(input) : input;
  }
  run_without_graph(other, again);
  return std::ranges::any_of(outputs_, [&](std::size_t slot) {
    const torch::Tensor &with = done.slots[slot], &without = other.slots[slot];
    return with.defined() != without.defined() || (with.defined() && !torch::equal(with, without));
  });
}

torch::Tensor Segment::keep(const Input& input, const torch::Tensor& value) const {
  if (!value.defined()) return value;
  const torch::Tensor alias = value.detach();
  return !watched_ || input.changes_later ? copy_of(alias) : alias;
}

torch::Tensor Segment::to_work_on(const Input& input, const torch::Tensor& leaf) const {
  return leaf.defined() && (!watched_ || input.changes_inside) ? copy_of(leaf) : leaf;
}

void Segment::forward(ExecutionState& state, const RunCall& run_call, const RunCall& again) {
  auto memory = c10::make_intrusive<Memory>();
  memory->segment = this;
  memory->again = &again;
  memory->slots = state.slots.size();
  memory->buffers = copies_of(buffers_);
  memory->place = state.place;

  Tensors originals;
  std::vector<std::int64_t> versions_inside;
  for (Input& input : inputs_) {
    torch::Tensor& slot = state.slots[input.slot];
    originals.push_back(slot);
    if (!watched_) input.first_version = version_of(slot);
    memory->wants.push_back(slot.defined() && slot.requires_grad());
    memory->inputs.push_back(keep(input, slot));
    memory->versions.push_back(version_of(memory->inputs.back()));
    slot = to_work_on(input, leaf_over(slot, memory->wants.back()));
    versions_inside.push_back(version_of(slot));
  }
  memory->autocast = Autocast::current(device_type_of(originals, parameters_));
  memory->saved = state.saved;
  std::vector<OutputKind>& kinds = seen_[wanting(*memory)];
  if (watched_ && !needs_graph_ && std::ranges::count(kinds, OutputKind::wants_gradient) > 0) {
    run_without_graph(state, run_call);
  } else {
    // This run's graph is dropped, and so is what its layers saved for W.
    for (Saved& saved : state.saved) saved = c10::make_intrusive<SavedForWeights>();
    for (std::size_t c = begin_; c < end_; ++c) run_call(c, state);
    state.saved = memory->saved;
    kinds = kinds_of_outputs(state);
    if (!watched_) needs_graph_ = needs_graph(state, *memory, again);
  }

  if (!watched_) {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      inputs_[i].changes_inside = version_of(state.slots[inputs_[i].slot]) != versions_inside[i];
    Tensors moving, values;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (torch::equal(buffers_[i], memory->buffers[i])) continue;
      moving.push_back(buffers_[i]);
      values.push_back(memory->buffers[i]);
    }
    buffers_ = std::move(moving);
    memory->buffers = std::move(values);
  }
  leave(state, memory, originals, kinds);
}

void Segment::leave(ExecutionState& state, const c10::intrusive_ptr<Memory>& memory, const Tensors& originals,
                    const std::vector<OutputKind>& kinds) const {
  for (std::size_t slot : inner_) state.slots[slot].reset();
  for (std::size_t i = 0; i < inputs_.size(); ++i) state.slots[inputs_[i].slot] = originals[i];
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    torch::Tensor& value = state.slots[outputs_[i]];
    if (!value.defined()) continue;
    value = value.detach();
    // An output that was absent then may require a gradient now. Expecting one that does not come is harmless.
    if (kinds[i] == OutputKind::wants_none || !(value.is_floating_point() || value.is_complex())) continue;
    memory->leaving.push_back(outputs_[i]);
    memory->outputs.push_back(value);
  }
  if (memory->leaving.empty()) return;

  Tensors origins;
  for (const Use& use : uses_)
    if (memory->wants[use.input]) origins.push_back(originals[use.input]);
  for (const torch::Tensor& parameter : parameters_)
    if (parameter.requires_grad()) memory->parameters.push_back(parameter);
  origins.insert(origins.end(), memory->parameters.begin(), memory->parameters.end());
  const Tensors leaving = SegmentNode::apply(at::TensorList(origins), memory);
  for (std::size_t i = 0; i < leaving.size(); ++i) state.slots[memory->leaving[i]] = leaving[i];
}

void Segment::finish(const ExecutionState& state) {
  if (watched_) return;
  for (Input& input : inputs_) input.changes_later = version_of(state.slots[input.slot]) != input.first_version;
  watched_ = true;
}

Tensors Segment::backward(Memory& memory, const Tensors& output_gradients) const {
  require_unchanged(memory);
  const torch::NoGradGuard no_grad;
  // Until the gradients are computed, which may depend on the buffers.
  const BufferValues buffers(buffers_, memory.buffers);
  ExecutionState state{Tensors(memory.slots), std::move(memory.saved), memory.place};
  Tensors leaves;  // by use, in the order of the calls
  {
    const torch::AutoGradMode with_graph(true);
    const RandomPlaceGuard place(state.place);
    const AutocastGuard autocast(memory.autocast);
    auto use = uses_.rbegin();
    for (std::size_t c = begin_; c < end_; ++c) {
      for (; use != uses_.rend() && use->call == c; ++use) {
        const Input& input = inputs_[use->input];
        leaves.push_back(leaf_over(memory.inputs[use->input], memory.wants[use->input]));
        state.slots[input.slot] = to_work_on(input, leaves.back());
      }
      (*memory.again)(c, state);
    }
  }

  require_known_outputs(memory, state);
  Tensors roots, root_gradients, wanted;
  for (std::size_t i = 0; i < memory.leaving.size(); ++i) {
    if (!output_gradients[i].defined() || !state.slots[memory.leaving[i]].requires_grad()) continue;
    roots.push_back(state.slots[memory.leaving[i]]);
    root_gradients.push_back(output_gradients[i]);
  }
  for (auto leaf = leaves.rbegin(); leaf != leaves.rend(); ++leaf)
    if (leaf->defined() && leaf->requires_grad()) wanted.push_back(*leaf);
  wanted.insert(wanted.end(), memory.parameters.begin(), memory.parameters.end());
  memory.clear();
  state.slots.clear();
  if (roots.empty()) return Tensors(wanted.size());
  return torch::autograd::grad(roots, wanted, root_gradients, /*retain_graph=*/false, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

void Segment::require_unchanged(const Memory& memory) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    require<ScheduleError>(version_of(memory.inputs[i]) == memory.versions[i], "an input of ", name_,
                           ", which are recomputed in the backward pass, was changed in place after their first run ",
                           "(version ", memory.versions[i], ", then ", version_of(memory.inputs[i]),
                           "): use a layer that does not work in place");
}

// A gradient that F did not expect would be missing without an error.
void Segment::require_known_outputs(const Memory& memory, const ExecutionState& state) const {
  for (std::size_t slot : outputs_) {
    const torch::Tensor& value = state.slots[slot];
    const bool wants = value.defined() && value.requires_grad();
    require<ScheduleError>(
        !wants || std::ranges::count(memory.leaving, slot) > 0, "an output of ", name_,
        ", which are recomputed in the backward pass, requires a gradient in this micro-batch and required "
        "none in an earlier one with inputs of the same kind: set recompute = false for layers whose data "
        "decide whether there is a gradient");
  }
}

std::vector<std::unique_ptr<Segment>> find_segments(const std::vector<CallShape>& calls,
                                                    const std::vector<std::size_t>& leaving) {
  std::vector<std::unique_ptr<Segment>> segments;
  for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = std::max(end, begin + 1)) {
    end = begin;
    const auto is_alone = [](const CallShape& call) {
      return call.block == 0 && call.module && !call.module->children().empty();
    };
    while (end < calls.size() && calls[end].recompute && calls[end].block == calls[begin].block) {
      if (is_alone(calls[end]) && end > begin) break;
      if (is_alone(calls[end++])) break;
    }
    if (end > begin) segments.push_back(std::make_unique<Segment>(calls, begin, end, leaving));
  }
  return segments;
}

}  // namespace penstock::layers
