#include "penstock/rank/held_bytes.h"

#include <set>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The address of a tensor's storage; null where it has none.
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
  void reportMemoryUsage(void* block, std::int64_t change, std::size_t, std::size_t, c10::Device) override {
    if (change > 0)
      bytes_.allocated(block, change);
    else
      bytes_.given_back(block);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  HeldBytes& bytes_;
};

HeldBytes::HeldBytes() : reporter_(std::make_shared<Reporter>(*this)) {}

HeldBytes::Watch::Watch(HeldBytes* bytes) : bytes_(bytes) {
  if (!bytes_) return;
  bytes_->fresh_.clear();
  guard_.emplace(c10::DebugInfoKind::PROFILER_STATE, bytes_->reporter_);
}

HeldBytes::Watch::~Watch() {
  guard_.reset();
  if (bytes_) bytes_->leaving_.clear();
}

// A block that is known already was freed by another thread, which this one does not observe.
void HeldBytes::allocated(const void* block, std::int64_t bytes) {
  forget(block);
  fresh_[block] = bytes;
}

void HeldBytes::given_back(const void* block) {
  if (fresh_.erase(block) == 0) forget(block);
}

void HeldBytes::forget(const void* block) {
  const auto known = blocks_.find(block);
  if (known == blocks_.end()) return;
  held_ -= known->second.bytes;
  blocks_.erase(known);
}

bool HeldBytes::owns(const Key& owner, const void* block) const {
  const auto known = blocks_.find(block);
  return known != blocks_.end() && known->second.owner == owner;
}

std::int64_t HeldBytes::bytes_of(const Key& owner, const Holding& holding) const {
  std::int64_t bytes = holding.received_bytes + holding.wanted_bytes;
  for (const void* block : holding.blocks)
    if (owns(owner, block)) bytes += blocks_.at(block).bytes;
  return bytes;
}

void HeldBytes::forward_done(const Context& context, const Activations& activations, const std::vector<Message>& sends,
                             const std::vector<bool>& from_others) {
  Holding& holding = live_[context.key()];
  std::set<const void*> handed_over, let_go;
  for (const torch::Tensor& tensor : activations.sent) handed_over.insert(block_of(tensor));
  for (const Message& message : sends)
    for (const Payload& payload : message.payloads)
      if (const void* block = block_of(payload.tensor); !handed_over.contains(block)) let_go.insert(block);
  for (const auto& [block, bytes] : fresh_) {
    if (let_go.contains(block)) continue;
    blocks_[block] = {bytes, context.key(), handed_over.contains(block)};
    holding.blocks.push_back(block);
    held_ += bytes;
  }
  for (std::size_t i = 0; i < activations.received.size(); ++i) {
    const torch::Tensor& leaf = activations.received[i];
    if (!leaf.defined()) continue;
    holding.received.push_back(leaf.detach());
    // On another device F has made a copy, which F's blocks contain.
    if (from_others[i] && !owns(context.key(), block_of(leaf))) holding.received_bytes += bytes_in(leaf);
  }
  held_ += holding.received_bytes;
  peak_ = std::max(peak_, held_);
  sizes_.try_emplace({context.stage, context.rows}, Sizes{bytes_of(context.key(), holding), std::nullopt});
}

std::map<const void*, std::int64_t> HeldBytes::wanted_blocks(const Activations& activations, const Key& owner,
                                                             const Holding& holding) const {
  std::map<const void*, std::int64_t> wanted;
  std::set<const void*> received;
  const auto want = [&](const torch::Tensor& tensor) {
    if (const void* block = block_of(tensor)) wanted.try_emplace(block, bytes_in(tensor));
  };
  for (const torch::Tensor& tensor : holding.received) received.insert(block_of(tensor));
  for (const Saved& saved : activations.saved) {
    want(saved->output_gradient);
    // Otherwise it belongs to the batch.
    const void* input = block_of(saved->input);
    if (owns(owner, input) || fresh_.contains(input) || received.contains(input)) want(saved->input);
  }
  return wanted;
}

void HeldBytes::release_received(Holding& holding) {
  held_ -= std::exchange(holding.received_bytes, 0);
  for (torch::Tensor& tensor : holding.received) leaving_.push_back(std::move(tensor));
  holding.received.clear();
}

void HeldBytes::input_grad_done(const Context& context, const Activations& activations) {
  Holding& holding = live_.at(context.key());
  const auto wanted = wanted_blocks(activations, context.key(), holding);
  for (const auto& [block, bytes] : wanted) holding.wanted_bytes += bytes;
  held_ += holding.wanted_bytes;
  // A block that W does not need and that I has not freed still counts.
  for (const void* block : holding.blocks)
    if (owns(context.key(), block) && (blocks_.at(block).is_shared || wanted.contains(block))) forget(block);
  release_received(holding);
  peak_ = std::max(peak_, held_);
  Sizes& sizes = sizes_.at({context.stage, context.rows});
  if (!sizes.after_input_grad) sizes.after_input_grad = bytes_of(context.key(), holding);
}

void HeldBytes::released(const Context& context) {
  auto node = live_.extract(context.key());
  require<InternalError>(!node.empty(), "the bytes of stage ", context.stage.value(), ", micro-batch ",
                         context.micro_batch.value(), ", were not counted");
  Holding& holding = node.mapped();
  for (const void* block : holding.blocks)
    if (owns(context.key(), block) && blocks_.at(block).is_shared) forget(block);
  held_ -= holding.wanted_bytes;
  release_received(holding);
}

void HeldBytes::gradients_wait(const Context& context, std::int64_t bytes) {
  std::int64_t& waiting = waiting_[context.stage];
  if (bytes > waiting) sizes_.at({context.stage, context.rows}).gradients = bytes - waiting;
  held_ += bytes - std::exchange(waiting, bytes);
  peak_ = std::max(peak_, held_);
}

void HeldBytes::clear() {
  live_.clear();
  waiting_.clear();
  blocks_.clear();
  leaving_.clear();
  held_ = 0;
}

std::vector<StageBytes> HeldBytes::stage_bytes() const {
  std::map<StageId, StageBytes> of_stage;
  for (const auto& [place, sizes] : sizes_) {
    StageBytes& most = of_stage[place.first];
    most.stage = place.first;
    most.after_forward = std::max(most.after_forward, sizes.after_forward);
    most.after_input_grad = std::max(most.after_input_grad, sizes.after_input_grad.value_or(0));
  }
  std::vector<StageBytes> all;
  for (const auto& [stage, bytes] : of_stage) all.push_back(bytes);
  return all;
}

void HeldBytes::predict(const Order& instructions, const RowsOf& rows_of) {
  std::int64_t held = 0;
  std::map<StageId, std::set<MicroBatch>> waiting;  // micro-batches whose gradients wait for those of earlier ones
  std::map<StageId, std::int32_t> next;             // the micro-batch whose gradients are added at once
  const auto gradients_of = [&](StageId stage, MicroBatch i) { return sizes_.at({stage, rows_of(i)}).gradients; };
  for (const Instruction& instruction : instructions) {
    if (!is_compute(instruction.op())) continue;
    for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next()) {
      const Sizes& sizes = sizes_.at({instruction.stage(), rows_of(i)});
      if (instruction.op() == Op::forward) held += sizes.after_forward;
      if (instruction.op() == Op::backward) held -= sizes.after_forward;
      if (instruction.op() == Op::input_grad) held += *sizes.after_input_grad - sizes.after_forward;
      if (instruction.op() == Op::weight_grad) held -= *sizes.after_input_grad;
      if (instruction.op() != Op::backward && instruction.op() != Op::input_grad) continue;
      auto& early = waiting[instruction.stage()];
      if (i.value() == next[instruction.stage()]) {
        ++next[instruction.stage()];
      } else {
        early.insert(i);
        held += gradients_of(instruction.stage(), i);
      }
      for (; early.contains(MicroBatch(next[instruction.stage()])); ++next[instruction.stage()]) {
        held -= gradients_of(instruction.stage(), MicroBatch(next[instruction.stage()]));
        early.erase(MicroBatch(next[instruction.stage()]));
      }
    }
    predicted_peak_ = std::max(predicted_peak_, held);
  }
}

}  // namespace penstock
