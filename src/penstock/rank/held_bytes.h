// The bytes of a rank's live activations: counted by observing LibTorch's allocators, and predicted.
//
// A context is the memory that one micro-batch occupies on one stage between its F and its B, or its W where B is
// split:
//   from F to B or I   blocks that F allocated and did not free, and received values that require a gradient
//   from I to W        the part of these that W needs, and the output gradients that W needs: inputs and output
//                      gradients of layers that split
// Parameter gradients that wait in Gradients count as well: those of layers that do not split, where I runs before that
// of an earlier micro-batch. No generator's schedule has such an order; files and custom schedules may.
// A storage counts once per context, in full. Not counted are parameters, their gradients and their casts; the batch;
// values sent without a gradient; memory that an instruction allocates and frees before its end. A value that one stage
// passes to another of the same rank counts for its producer, and from I to W also for its consumer where a layer of it
// saves the value.
//
// Counted: a block of F counts until the rank's thread frees it. Blocks that another thread may free last count until
// the end of their context: values sent to another rank, and values that W needs, which may have come in a message or
// become a gradient buffer.
// Predicted: the bytes after F and after I of the first context of each stage and each number of rows, added and
// removed in the order of the schedule's instructions. Equal to the counted bytes where every context frees its memory
// in time and micro-batches of equal size occupy the same.
//
// Both are evaluated between instructions. The first training step does not count, because its layers are checked for
// in-place changes and work on copies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "penstock/rank/stage.h"
#include "penstock/rank/stage_bytes.h"
#include "penstock/schedule/order.h"

namespace penstock {

/// The bytes of one rank; used on its thread.
class HeldBytes {
 public:
  HeldBytes();

  struct Context {
    StageId stage;
    MicroBatch micro_batch;
    std::int64_t rows = 0;
    auto key() const { return std::pair{stage, micro_batch}; }
  };

  /// Observes this thread's allocations while it lives. One at a time, around an instruction. With null it does
  /// nothing.
  class Watch {
   public:
    explicit Watch(HeldBytes* bytes);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    HeldBytes* bytes_;
    std::optional<c10::DebugInfoGuard> guard_;
  };

  /// To be called at the end of F, within its Watch. `from_others[i]`: whether activations.received[i] came from
  /// another rank.
  void forward_done(const Context& context, const Activations& activations, const std::vector<Message>& sends,
                    const std::vector<bool>& from_others);
  /// To be called at the end of I, within its Watch.
  void input_grad_done(const Context& context, const Activations& activations);
  /// To be called at the end of B or W, within its Watch.
  void released(const Context& context);
  /// To be called after B or I of `context`: the parameter gradients of all micro-batches that wait on its stage have
  /// `bytes`.
  void gradients_wait(const Context& context, std::int64_t bytes);
  /// To be called after a failure, when all contexts have been destroyed.
  void clear();

  using RowsOf = std::function<std::int64_t(MicroBatch)>;
  /// Predicts the peak of the step of `instructions` that has just been counted.
  void predict(const Order& instructions, const RowsOf& rows_of);

  /// The bytes of one context of each stage that has run, those of its largest one.
  std::vector<StageBytes> stage_bytes() const;

  std::int64_t peak() const { return peak_; }
  std::int64_t predicted_peak() const { return predicted_peak_; }

 private:
  using Key = std::pair<StageId, MicroBatch>;
  /// A block that F allocated for a context and did not free.
  struct Block {
    std::int64_t bytes = 0;
    Key owner;
    bool is_shared = false;  // sent to another rank
  };
  /// The memory of a live context.
  struct Holding {
    std::vector<const void*> blocks;  // allocated by F; those that this context owns in blocks_ still count
    Tensors received;                 // by activations.received, where a gradient goes back
    std::int64_t received_bytes = 0;  // of those from other ranks; 0 after I
    std::int64_t wanted_bytes = 0;    // needed by W; 0 before I
  };
  struct Sizes {
    std::int64_t after_forward = 0;
    std::optional<std::int64_t> after_input_grad;
    std::int64_t gradients = 0;  // of those that had to wait
  };
  class Reporter;

  void allocated(const void* block, std::int64_t bytes);
  void given_back(const void* block);
  /// The blocks that W needs after I, with the bytes of each.
  std::map<const void*, std::int64_t> wanted_blocks(const Activations& activations, const Key& owner,
                                                    const Holding& holding) const;
  void release_received(Holding& holding);
  bool owns(const Key& owner, const void* block) const;
  void forget(const void* block);
  std::int64_t bytes_of(const Key& owner, const Holding& holding) const;

  std::shared_ptr<Reporter> reporter_;
  std::unordered_map<const void*, std::int64_t> fresh_;  // allocated in the running instruction and not freed
  std::unordered_map<const void*, Block> blocks_;        // of contexts
  std::map<Key, Holding> live_;
  Tensors leaving_;  // freed after the Watch: LibTorch warns of a free whose allocation was not observed
  std::map<std::pair<StageId, std::int64_t>, Sizes> sizes_;  // by rows
  std::map<StageId, std::int64_t> waiting_;                  // bytes of gradients that wait
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t predicted_peak_ = 0;
};

}  // namespace penstock
