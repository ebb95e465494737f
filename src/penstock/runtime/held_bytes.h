// The bytes that a rank's live activations hold: counted as LibTorch's allocators give and take them, and predicted.
//
// A context is what one micro-batch leaves on one stage between its F and its B, or its W where B comes in halves. It
// holds
//   from F to B or I   what F allocated and still had at its end, and what other ranks sent that wants a gradient
//   from I to W        what W needs of this, and what came of I for it, whoever allocated that: inputs and output
//                      gradients of layers that split
// Beside the contexts counts what waits in Gradients: parameter gradients of layers that do not split, where I runs
// before that of an earlier micro-batch. No generator's schedule does that; files and custom schedules may.
// A storage counts once in a context, whole. Not counted: parameters, their gradients and their casts; the batch;
// values sent without a gradient; what an instruction allocates and gives back before its end. A value that goes from one stage
// to another of the same rank counts for the one that made it, and from I to W also for the other where a layer keeps
// it.
//
// Counted: a block that F left in a context counts until the rank's thread gives it back, at whatever time. What other
// threads may have too and let go last counts until its context's end: what was handed to another rank, and what W
// needs, which may have come in a message or become the buffer that a gradient gathers in.
// Predicted: what the first context of each stage held after F and after I, one for each number of rows, put in and
// taken out as the instructions of the schedule come. Equal to what is counted, to the byte, where every context lets go in
// time and micro-batches of equal size hold the same.
//
// Both are looked at between instructions. The first training step is left out: its layers are watched, and work on copies.
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

#include "penstock/runtime/stage.h"
#include "penstock/schedule/order.h"

namespace penstock {

/// Of one rank; lives on its thread.
class HeldBytes {
 public:
  HeldBytes();

  struct Context {
    StageId stage;
    MicroBatch micro_batch;
    std::int64_t rows = 0;
    auto key() const { return std::pair{stage, micro_batch}; }
  };

  /// While it lives, what this thread allocates and gives back is seen. One at a time, around an
  /// instruction. With null it does nothing.
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

  /// At the end of F, within its Watch. `from_others` says of each of activations.received whether it came from another
  /// rank.
  void forward_done(const Context& context, const Activations& activations, const std::vector<Message>& sends,
                    const std::vector<bool>& from_others);
  /// At the end of I, within its Watch.
  void input_grad_done(const Context& context, const Activations& activations);
  /// At the end of B or W, within its Watch.
  void released(const Context& context);
  /// After B or I of `context`: the parameter gradients that wait on its stage, of all micro-batches, have `bytes`.
  void gradients_wait(const Context& context, std::int64_t bytes);
  /// After a failure: nothing is held any more.
  void clear();

  using RowsOf = std::function<std::int64_t(MicroBatch)>;
  /// Predicts the step of `words` that has just been counted.
  void predict(const Order& instructions, const RowsOf& rows_of);

  std::int64_t peak() const { return peak_; }
  std::int64_t predicted_peak() const { return predicted_peak_; }

 private:
  using Key = std::pair<StageId, MicroBatch>;
  /// That F left in a context.
  struct Block {
    std::int64_t bytes = 0;
    Key owner;
    bool is_shared = false;  // handed to another rank
  };
  /// What a live context holds.
  struct Holding {
    std::vector<const void*> blocks;  // of F; those of them that blocks_ knows as its own still count
    Tensors received;                 // by activations.received, where a gradient goes back
    std::int64_t received_bytes = 0;  // of those that came from other ranks; 0 after I
    std::int64_t wanted_bytes = 0;    // for W; 0 before I
  };
  struct Sizes {
    std::int64_t after_forward = 0;
    std::optional<std::int64_t> after_input_grad;
    std::int64_t gradients = 0;  // that wait, where they had to
  };
  class Reporter;

  void allocated(const void* block, std::int64_t bytes);
  void given_back(const void* block);
  /// What I leaves for W: each block, and how much of it.
  std::map<const void*, std::int64_t> wanted_blocks(const Activations& activations, const Key& owner,
                                                    const Holding& holding) const;
  void leave_what_came(Holding& holding);
  bool owns(const Key& owner, const void* block) const;
  void forget(const void* block);
  std::int64_t bytes_of(const Key& owner, const Holding& holding) const;

  std::shared_ptr<Reporter> reporter_;
  std::unordered_map<const void*, std::int64_t> fresh_;  // allocated in the running instruction and not given back
  std::unordered_map<const void*, Block> blocks_;        // of contexts
  std::map<Key, Holding> live_;
  Tensors leaving_;  // given back behind the Watch: the allocator complains of blocks that it was not seen to give
  std::map<std::pair<StageId, std::int64_t>, Sizes> sizes_;  // by rows
  std::map<StageId, std::int64_t> waiting_;                  // bytes of gradients
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t predicted_peak_ = 0;
};

}  // namespace penstock
