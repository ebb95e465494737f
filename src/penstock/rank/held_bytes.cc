#include "penstock/rank/held_bytes.h"

#include <algorithm>
#include <memory>
#include <set>

#include <c10/core/Allocator.h>

namespace penstock::rank {
namespace {

/// The address of a tensor's storage; null if it has none.
const void* block_of(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

/// The bytes of a dense copy. Independent of whether the tensor is part of a larger buffer or an expanded scalar.
std::int64_t bytes_in(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(std::min(tensor.nbytes(), tensor.storage().nbytes()));
}

}  // namespace

class HeldBytes::Reporter : public c10::MemoryReportingInfoBase {
 public:
  explicit Reporter(HeldBytes& bytes) : bytes_(bytes) {}
  // A new block whose address is known was freed by another thread, which this one does not observe.
  void reportMemoryUsage(void* block, std::int64_t change, std::size_t, std::size_t, c10::Device) override {
    if (bytes_.fresh_.erase(block) == 0) bytes_.loose_.erase(block);
    if (change > 0) bytes_.fresh_[block] = change;
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  HeldBytes& bytes_;
};

HeldBytes::Watch::Watch(HeldBytes* bytes) {
  if (!bytes) return;
  bytes->fresh_.clear();
  guard_.emplace(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(*bytes));
}

std::int64_t HeldBytes::bytes_of(const Key& context) const {
  std::int64_t sum = 0;
  for (const auto& [block, bytes] : kept_.at(context)) sum += bytes;
  for (const auto& [block, loose] : loose_) sum += loose.first == context ? loose.second : 0;
  return sum;
}

void HeldBytes::update_peak() {
  std::int64_t held = 0;
  for (const auto& [stage, bytes] : waiting_) held += bytes;
  for (const auto& [block, loose] : loose_) held += loose.second;
  for (const auto& [context, blocks] : kept_)
    for (const auto& [block, bytes] : blocks) held += bytes;
  peak_ = std::max(peak_, held);
}

void HeldBytes::forward_done(const Context& context, const Activations& activations, const std::vector<Message>& sends,
                             const std::vector<bool>& from_others) {
  Blocks& kept = kept_[context.key()];
  for (std::size_t i = 0; i < activations.received.size(); ++i) {
    const torch::Tensor& leaf = activations.received[i];
    if (!leaf.defined()) continue;
    // On another device F has made a copy, which is among its blocks.
    kept[block_of(leaf)] += from_others[i] && !fresh_.contains(block_of(leaf)) ? bytes_in(leaf) : 0;
  }
  for (const torch::Tensor& tensor : activations.sent)
    if (const auto sent = fresh_.extract(block_of(tensor))) kept[sent.key()] = sent.mapped();
  for (const Message& message : sends)
    for (const Payload& payload : message.payloads) fresh_.erase(block_of(payload.tensor));
  for (const auto& [block, bytes] : std::exchange(fresh_, {})) loose_[block] = {context.key(), bytes};
  update_peak();
  const auto [sizes, is_new] = sizes_.try_emplace({context.stage, context.rows});
  if (is_new) sizes->second.bytes = {.stage = context.stage, .after_forward = bytes_of(context.key())};
}

void HeldBytes::input_grad_done(const Context& context, const Activations& activations) {
  Blocks& kept = kept_.at(context.key());
  Blocks wanted;
  const auto want = [&](const torch::Tensor& tensor) {
    if (const void* block = block_of(tensor)) wanted.try_emplace(block, bytes_in(tensor));
  };
  for (const layers::Saved& saved : activations.saved) {
    want(saved->output_gradient);
    // Otherwise it belongs to the batch.
    const void* input = block_of(saved->input);
    if (kept.contains(input) || loose_.contains(input) || fresh_.contains(input)) want(saved->input);
  }
  for (const auto& [block, bytes] : wanted) loose_.erase(block);
  kept = std::move(wanted);
  StageBytes& sizes = sizes_.at({context.stage, context.rows}).bytes;
  if (sizes.after_input_grad == 0) sizes.after_input_grad = bytes_of(context.key());
}

void HeldBytes::released(const Context& context) { kept_.erase(context.key()); }

void HeldBytes::gradients_wait(const Context& context, std::int64_t bytes) {
  std::int64_t& waiting = waiting_[context.stage];
  if (bytes > waiting) sizes_.at({context.stage, context.rows}).gradients = bytes - waiting;
  waiting = bytes;
  update_peak();
}

void HeldBytes::clear() {
  kept_.clear();
  waiting_.clear();
  loose_.clear();
}

std::vector<StageBytes> HeldBytes::stage_bytes() const {
  std::vector<StageBytes> all;
  for (const auto& [place, sizes] : sizes_) all.push_back(sizes.bytes);
  return all;
}

void HeldBytes::predict(const Order& instructions, const std::function<std::int64_t(MicroBatch)>& rows_of) {
  std::int64_t held = 0;                         // by contexts
  std::map<StageId, std::set<MicroBatch>> done;  // by B or I
  for (const Instruction& instruction : instructions) {
    if (!is_compute(instruction.op())) continue;
    for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next()) {
      const StageBytes& bytes = sizes_.at({instruction.stage(), rows_of(i)}).bytes;
      if (instruction.op() == Op::forward) held += bytes.after_forward;
      if (instruction.op() == Op::backward) held -= bytes.after_forward;
      if (instruction.op() == Op::input_grad) held += bytes.after_input_grad - bytes.after_forward;
      if (instruction.op() == Op::weight_grad) held -= bytes.after_input_grad;
      if (instruction.op() == Op::backward || instruction.op() == Op::input_grad) done[instruction.stage()].insert(i);
    }
    std::int64_t waiting = 0;  // gradients of micro-batches after one that is not done
    for (const auto& [stage, micro_batches] : done)
      for (MicroBatch next(0); const MicroBatch i : micro_batches)
        if (i == next)
          next = next.next();
        else
          waiting += sizes_.at({stage, rows_of(i)}).gradients;
    predicted_peak_ = std::max(predicted_peak_, held + waiting);
  }
}

}  // namespace penstock::rank
