#include "penstock/runtime/held_bytes.h"

#include <set>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Null for a tensor without memory.
const void* block_of(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

std::int64_t bytes_in(const torch::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

void add_block(std::map<const void*, torch::Tensor>& blocks, const torch::Tensor& tensor) {
  if (const void* block = block_of(tensor)) blocks.try_emplace(block, tensor);
}

struct Unseen : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

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

HeldBytes::Apart::Apart() : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Unseen>()) {}

// A block that is known already was given back by another thread: this one did not see it.
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

void HeldBytes::adopt(Holding& holding, const Key& owner, const void* block, bool is_shared) {
  const std::int64_t bytes = fresh_.at(block);
  blocks_[block] = {bytes, owner, is_shared};
  holding.blocks.push_back(block);
  held_ += bytes;
}

void HeldBytes::take_from_outside(Holding& holding, const torch::Tensor& tensor) {
  holding.from_outside.push_back(tensor.detach());
  held_ += bytes_in(tensor);
}

void HeldBytes::leave_what_is_outside(Holding& holding) {
  for (torch::Tensor& tensor : holding.from_outside) {
    held_ -= bytes_in(tensor);
    leaving_.push_back(std::move(tensor));
  }
  holding.from_outside.clear();
}

std::int64_t HeldBytes::bytes_of(const Key& owner, const Holding& holding) const {
  std::int64_t bytes = 0;
  for (const void* block : holding.blocks)
    if (owns(owner, block)) bytes += blocks_.at(block).bytes;
  for (const torch::Tensor& tensor : holding.from_outside) bytes += bytes_in(tensor);
  return bytes;
}

void HeldBytes::forward_done(const Context& context, const Activations& activations,
                             const std::vector<Message>& sends, const std::vector<bool>& from_others) {
  Holding& holding = live_[context.key()];
  std::set<const void*> handed_over, let_go;
  for (const torch::Tensor& tensor : activations.sent) handed_over.insert(block_of(tensor));
  for (const Message& message : sends)
    for (const Parcel& parcel : message.parcels)
      if (const void* block = block_of(parcel.tensor); !handed_over.contains(block)) let_go.insert(block);
  for (const auto& [block, bytes] : fresh_)
    if (!let_go.contains(block)) adopt(holding, context.key(), block, handed_over.contains(block));

  holding.from_others = from_others;
  for (std::size_t i = 0; i < activations.received.size(); ++i) {
    const torch::Tensor& leaf = activations.received[i];
    holding.received.push_back(leaf.defined() ? leaf.detach() : leaf);
    // On another device it is a copy that F made.
    if (leaf.defined() && from_others[i] && !owns(context.key(), block_of(leaf))) take_from_outside(holding, leaf);
  }
  peak_ = std::max(peak_, held_);
  sizes_.try_emplace({context.stage, context.rows}, Sizes{bytes_of(context.key(), holding), std::nullopt});
}

void HeldBytes::input_grad_done(const Context& context, const Activations& activations,
                                const std::vector<Message>& gradients) {
  Holding& holding = live_.at(context.key());
  std::map<const void*, torch::Tensor> wanted, known_outside;
  for (const Kept& kept : activations.kept) {
    add_block(wanted, kept->input);
    add_block(wanted, kept->output_gradient);
  }
  for (const torch::Tensor& gradient : activations.parked) add_block(wanted, gradient);
  for (const torch::Tensor& tensor : holding.received) add_block(known_outside, tensor);
  for (const Message& message : gradients)
    for (const Parcel& parcel : message.parcels) add_block(known_outside, parcel.tensor);

  // What W does not need and is still there after I did not let go: it goes on counting.
  for (const void* block : holding.blocks)
    if (owns(context.key(), block) && blocks_.at(block).is_shared && !wanted.contains(block)) forget(block);
  for (const auto& [block, tensor] : wanted)
    if (fresh_.contains(block)) adopt(holding, context.key(), block, /*is_shared=*/true);
  leave_what_is_outside(holding);
  for (const auto& [block, tensor] : wanted)
    if (!owns(context.key(), block) && known_outside.contains(block))
      take_from_outside(holding, known_outside.at(block));
  for (torch::Tensor& tensor : holding.received) leaving_.push_back(std::move(tensor));
  holding.received.clear();
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
  leave_what_is_outside(holding);
  for (torch::Tensor& tensor : holding.received) leaving_.push_back(std::move(tensor));
}

void HeldBytes::clear() {
  live_.clear();
  blocks_.clear();
  leaving_.clear();
  held_ = 0;
}

void HeldBytes::foretell(const Order& words, const RowsOf& rows_of) {
  std::int64_t held = 0;
  for (const Instruction& word : words) {
    if (!is_compute(word.op())) continue;
    for (MicroBatch i = word.first(); i <= word.last(); i = i.next()) {
      const Sizes& sizes = sizes_.at({word.stage(), rows_of(i)});
      if (word.op() == Op::forward) held += sizes.after_forward;
      if (word.op() == Op::backward) held -= sizes.after_forward;
      if (word.op() == Op::input_grad) held += *sizes.after_input_grad - sizes.after_forward;
      if (word.op() == Op::weight_grad) held -= *sizes.after_input_grad;
    }
    foretold_peak_ = std::max(foretold_peak_, held);
  }
}

}  // namespace penstock
