// The bytes of a rank's live activations: counted by observing LibTorch's allocators, and predicted.
//
// A context is the memory that one micro-batch occupies on one stage between its F and its B, or its W if B is split:
//   from F to B or I   blocks that F allocated and did not free, and received values that require a gradient
//   from I to W        the part of these that W needs, and the output gradients that W needs: inputs and output
//                      gradients of layers that split
// Parameter gradients that wait in Gradients count as well: those of layers that do not split, if I runs before the I
// of an earlier micro-batch. No generator's schedule has such an order; files and custom schedules may.
// A storage counts once per context, in full. Not counted are parameters, their gradients and their casts; the batch;
// values sent without a gradient; memory that an instruction allocates and frees before its end. A value that one stage
// passes to another of the same rank counts for its producer, and from I to W also for its consumer if a layer of it
// saves the value.
//
// Counted: a block of F counts until the rank's thread frees it. Blocks that another thread may free last count until
// the end of their context: values sent to another rank, and values that W needs, which may have come in a message or
// become a gradient buffer.
// Predicted: the bytes after F and after I of the first context of each stage and each number of rows, added and
// removed in the order of the schedule's instructions. Equal to the counted bytes if every context frees its memory in
// time and micro-batches of equal size occupy the same.
//
// Both are evaluated between instructions. The first training step does not count, because its layers are checked for
// in-place changes and work on copies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/util/ThreadLocalDebugInfo.h>

#include "penstock/rank/result.h"
#include "penstock/rank/stage.h"
#include "penstock/schedule/instruction.h"

namespace penstock::rank {

/// The bytes of one rank; used on its thread.
class HeldBytes {
 public:
  struct Context {
    StageId stage;
    MicroBatch micro_batch;
    std::int64_t rows = 0;
    auto key() const { return std::pair{stage, micro_batch}; }
  };

  /// Observes this thread's allocations while it lives. One at a time, around an instruction; null: none. Received
  /// values are to be freed after it, because LibTorch warns of a free whose allocation it has not seen.
  class Watch {
   public:
    explicit Watch(HeldBytes* bytes);

   private:
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
  /// To be called after B or I of `context`, after the function above: the parameter gradients of all micro-batches
  /// that wait on its stage have `bytes`.
  void gradients_wait(const Context& context, std::int64_t bytes);
  /// To be called after a failure, when all contexts have been destroyed.
  void clear();

  /// Predicts the peak of the step of `instructions` that has just been counted.
  void predict(const Order& instructions, const std::function<std::int64_t(MicroBatch)>& rows_of);

  /// The bytes of one context of each stage and each number of rows that have run.
  std::vector<StageBytes> stage_bytes() const;
  std::int64_t peak() const { return peak_; }
  std::int64_t predicted_peak() const { return predicted_peak_; }

 private:
  class Reporter;
  using Key = std::pair<StageId, MicroBatch>;
  using Blocks = std::map<const void*, std::int64_t>;  // bytes by address of the storage
  struct Sizes {
    StageBytes bytes;
    std::int64_t gradients = 0;  // that had to wait
  };

  std::int64_t bytes_of(const Key& context) const;
  void update_peak();

  Blocks fresh_;  // allocated in the running instruction and not freed
  std::unordered_map<const void*, std::pair<Key, std::int64_t>> loose_;  // of contexts, until this thread frees them
  // Of each live context, until its next instruction, whichever thread frees them; 0 bytes: counted elsewhere.
  std::map<Key, Blocks> kept_;
  std::map<std::pair<StageId, std::int64_t>, Sizes> sizes_;  // by rows
  std::map<StageId, std::int64_t> waiting_;                  // bytes of gradients that wait
  std::int64_t peak_ = 0;
  std::int64_t predicted_peak_ = 0;
};

}  // namespace penstock::rank
