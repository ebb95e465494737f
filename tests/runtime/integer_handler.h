// A handler for the executor with integers: every stage computes a hash that depends on order, so that the final
// numbers are right only if every instruction ran on the right value at the right time. For tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/rank/executor.h"
#include "penstock/transport/tag.h"

namespace penstock {

using Value = std::uint64_t;

/// mix(a, b) is not mix(b, a), and mix(mix(a, b), c) is no other order of a, b and c.
constexpr Value mix(Value a, Value b) {
  const Value mixed = (a * 0x9e3779b97f4a7c15ULL ^ (b + 0x7f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
  return mixed ^ (mixed >> 29);
}

/// The results of a step.
struct StepValues {
  std::map<MicroBatch, Value> outputs;          // of the last stage
  std::map<MicroBatch, Value> input_gradients;  // of stage 0
  std::map<StageId, Value> weights;             // the gradients of a stage's parameters, accumulated
  std::map<StageId, int> updates;               // number of updates of a stage

  friend bool operator==(const StepValues&, const StepValues&) = default;
  void add(const StepValues& other) {
    outputs.insert(other.outputs.begin(), other.outputs.end());
    input_gradients.insert(other.input_gradients.begin(), other.input_gradients.end());
    weights.insert(other.weights.begin(), other.weights.end());
    updates.insert(other.updates.begin(), other.updates.end());
  }
};

// The network: stage s turns x into mix(x, s); the gradient of its input depends on x and on the gradient of its
// output, and so does what it adds to the gradient of its parameters.
inline Value graph_input(MicroBatch i) { return mix(1000, static_cast<Value>(i.value())); }
inline Value stage_output(StageId stage, Value input) { return mix(input, static_cast<Value>(stage.value())); }
inline Value loss_gradient(Value output) { return mix(output, 77); }
inline Value input_gradient(Value input, Value gradient) { return mix(gradient, input); }
inline Value accumulated(Value sum, Value input, Value gradient) { return mix(sum, mix(input, gradient)); }

/// The loop without a pipeline: one micro-batch after the other through all stages and back.
inline StepValues plain_loop(const Schedule& schedule) {
  StepValues values;
  const auto last = static_cast<std::size_t>(schedule.stage_count()) - 1;
  for (MicroBatch i(0); i.value() < schedule.micro_batches; i = i.next()) {
    std::vector<Value> inputs{graph_input(i)};
    for (std::size_t s = 0; s <= last; ++s)
      inputs.push_back(stage_output(StageId(static_cast<std::int32_t>(s)), inputs[s]));
    values.outputs[i] = inputs[last + 1];
    if (schedule.is_forward_only()) continue;
    Value gradient = loss_gradient(inputs[last + 1]);
    for (std::size_t s = last + 1; s-- > 0;) {
      Value& sum = values.weights[StageId(static_cast<std::int32_t>(s))];
      sum = accumulated(sum, inputs[s], gradient);
      gradient = input_gradient(inputs[s], gradient);
    }
    values.input_gradients[i] = gradient;
  }
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      if (instruction.op() == Op::step) ++values.updates[instruction.stage()];
  return values;
}

/// One rank's handler. `Post` carries the messages:
///   void put(Rank to, const Tag&, Value)
///   Value take(Rank from, const Tag&, const Instruction&)
///   void begin(const Instruction&)   called before every action
template <class Post>
class IntegerHandler {
 public:
  IntegerHandler(Post post, const Schedule& schedule, int bound)
      : post_(std::move(post)), schedule_(schedule), forward_only_(schedule.is_forward_only()) {
    activations_.set_bound(bound);
  }

  static Tag tag_of(const Instruction& instruction) {
    const bool is_forward = instruction.op() == Op::send_forward || instruction.op() == Op::recv_forward;
    const StageId from = is_send(instruction.op()) ? instruction.stage() : instruction.peer();
    const StageId to = is_send(instruction.op()) ? instruction.peer() : instruction.stage();
    return {0,          is_forward ? Traffic::forward : Traffic::backward,
            0,          from.value(),
            to.value(), instruction.micro_batch().value()};
  }

  void begin(const Instruction& instruction) { post_.begin(instruction); }

  rank::Arrival receive(const Instruction& instruction) {
    give({instruction.stage(), instruction.micro_batch(), instruction.op() == Op::recv_forward},
         post_.take(schedule_.rank_of(instruction.peer()), tag_of(instruction), instruction));
    return {};
  }

  void perform(const Instruction& instruction) {
    const StageId stage = instruction.stage();
    const MicroBatch i = instruction.micro_batch();
    switch (instruction.op()) {
      case Op::forward: forward(stage, i); return;
      case Op::backward:
        input_grad(stage, i);
        weight_grad(stage, i);
        return;
      case Op::input_grad: input_grad(stage, i); return;
      case Op::weight_grad:
        for (MicroBatch k = instruction.first(); k <= instruction.last(); k = k.next()) weight_grad(stage, k);
        return;
      case Op::send_forward:
      case Op::send_backward:
        post_.put(schedule_.rank_of(instruction.peer()), tag_of(instruction),
                  take({instruction.peer(), i, instruction.op() == Op::send_forward}));
        return;
      case Op::step: ++values_.updates[stage]; return;
      default: return;
    }
  }

  const StepValues& values() const { return values_; }
  int peak() const { return activations_.peak(); }
  /// The number of values and contexts that no instruction has taken.
  std::size_t left_over() const { return waiting_.size() + static_cast<std::size_t>(activations_.size()); }

 private:
  struct Context {
    Value input = 0;
    std::optional<Value> gradient;  // set by I, for W
  };
  struct Place {  // identifies a value that is sent to a stage
    StageId consumer;
    MicroBatch micro_batch;
    bool forward;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  void forward(StageId stage, MicroBatch i) {
    const Value input = stage.value() == 0 ? graph_input(i) : take({stage, i, true});
    activations_.put(stage, i, {input, {}});
    if (forward_only_) activations_.take(stage, i);
    const Value output = stage_output(stage, input);
    if (is_last(stage))
      values_.outputs[i] = output;
    else
      give({stage.next(), i, true}, output);
  }

  void input_grad(StageId stage, MicroBatch i) {
    Context context = activations_.take(stage, i);
    const Value gradient = is_last(stage) ? loss_gradient(stage_output(stage, context.input)) : take({stage, i, false});
    context.gradient = gradient;
    const Value out = input_gradient(context.input, gradient);
    activations_.put(stage, i, context);
    if (stage.value() == 0)
      values_.input_gradients[i] = out;
    else
      give({stage.previous(), i, false}, out);
  }

  void weight_grad(StageId stage, MicroBatch i) {
    const Context context = activations_.take(stage, i);
    require<InternalError>(context.gradient.has_value(), "W before I on stage ", stage.value());
    Value& sum = values_.weights[stage];
    sum = accumulated(sum, context.input, *context.gradient);
  }

  bool is_last(StageId stage) const { return stage.value() + 1 == schedule_.stage_count(); }
  void give(const Place& place, Value value) {
    require<InternalError>(waiting_.emplace(place, value).second, "a value for stage ", place.consumer.value(),
                           " came twice");
  }
  Value take(const Place& place) {
    auto node = waiting_.extract(place);
    require<InternalError>(!node.empty(), "stage ", place.consumer.value(), " ran without its value of micro-batch ",
                           place.micro_batch.value());
    return node.mapped();
  }

  Post post_;
  const Schedule& schedule_;
  bool forward_only_;
  rank::ActivationStore<Context> activations_;
  std::map<Place, Value> waiting_;
  StepValues values_;
};

}  // namespace penstock
