// A schedule: one list of instructions per rank. The text form of an instruction: `2F0` (stage 2, forward, micro-batch
// 0), `2B0`, `2I0`, `2W0`, `0W0-7`, `0SEND_F1`, `1RECV_F1`, `0SEND_F1>3`, `3RECV_F1<0`, `1SEND_B1`, `0RECV_B1`,
// `0REDUCE`, `0NORM`, `0STEP`. The notation is torch.distributed.pipelining's, extended by fused W, named skip links,
// NORM and STEP (docs/schedule_format.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/ids.h"

namespace penstock {

enum class Op : std::uint8_t {
  forward,        // F       the forward pass of a stage for one micro-batch
  backward,       // B       the full backward pass: I and W together
  input_grad,     // I       the gradient of the stage's inputs
  weight_grad,    // W       the gradient of the stage's parameters, for one micro-batch or a range of them
  send_forward,   // SEND_F  sends the boundary values of one micro-batch to a later stage
  recv_forward,   // RECV_F  receives them from an earlier stage
  send_backward,  // SEND_B  sends the gradients of boundary values to an earlier stage
  recv_backward,  // RECV_B  receives them from a later stage
  reduce,         // REDUCE  sums the gradients of a stage over replicas and ties
  norm,           // NORM    computes the global gradient norm
  step            // STEP    the optimiser's step
};

constexpr int op_count = 11;

/// Stages are numbered 0..max_stages-1: an instruction stores them in 16 bits.
constexpr int max_stages = 65536;

constexpr bool is_compute(Op op) { return op <= Op::weight_grad; }
constexpr bool is_send(Op op) { return op == Op::send_forward || op == Op::send_backward; }
constexpr bool is_receive(Op op) { return op == Op::recv_forward || op == Op::recv_backward; }
constexpr bool is_message(Op op) { return is_send(op) || is_receive(op); }
/// REDUCE, NORM and STEP belong to the whole step, not to a micro-batch.
constexpr bool is_step_wide(Op op) { return op >= Op::reduce; }

/// A plain value of 16 bytes. The factory functions check nothing; validate() and the readers of schedule files do.
class Instruction {
 public:
  constexpr Instruction() = default;

  static constexpr Instruction compute(Op op, StageId stage, MicroBatch micro_batch) {
    return Instruction(op, stage, stage, micro_batch, micro_batch);
  }
  /// One W over the micro-batches first..last, in that order.
  static constexpr Instruction fused_weight_grad(StageId stage, MicroBatch first, MicroBatch last) {
    return Instruction(Op::weight_grad, stage, stage, first, last);
  }
  /// A send or receive of `stage`; `peer` is the stage at the other end.
  static constexpr Instruction message(Op op, StageId stage, StageId peer, MicroBatch micro_batch) {
    return Instruction(op, stage, peer, micro_batch, micro_batch);
  }
  static constexpr Instruction step_wide(Op op, StageId stage) {
    return Instruction(op, stage, stage, MicroBatch(0), MicroBatch(0));
  }

  constexpr Op op() const { return op_; }
  constexpr StageId stage() const { return StageId(stage_); }
  /// The stage at the other end of a message; stage() for all other instructions.
  constexpr StageId peer() const { return StageId(peer_); }
  constexpr MicroBatch micro_batch() const { return MicroBatch(first_); }
  /// The range of a fused W; both ends are micro_batch() for every other instruction.
  constexpr MicroBatch first() const { return MicroBatch(first_); }
  constexpr MicroBatch last() const { return MicroBatch(last_); }
  constexpr bool is_fused() const { return first_ != last_; }
  /// The number of micro-batches in the range; 1 for every instruction but a fused W.
  constexpr int micro_batch_count() const { return last_ - first_ + 1; }

  /// True for the first half of an `(0F7;7B3)OVERLAP_F_B` pair; the rank's next compute instruction is the other half.
  /// Lowering puts messages between the halves, never another compute instruction.
  constexpr bool overlaps_next() const { return overlaps_next_; }
  constexpr Instruction overlapping_next() const {
    Instruction marked = *this;
    marked.overlaps_next_ = true;
    return marked;
  }

  friend constexpr bool operator==(const Instruction&, const Instruction&) = default;

 private:
  constexpr Instruction(Op op, StageId stage, StageId peer, MicroBatch first, MicroBatch last)
      : first_(first.value()),
        last_(last.value()),
        stage_(static_cast<std::uint16_t>(stage.value())),
        peer_(static_cast<std::uint16_t>(peer.value())),
        op_(op) {}

  std::int32_t first_ = 0;
  std::int32_t last_ = 0;
  std::uint16_t stage_ = 0;
  std::uint16_t peer_ = 0;
  Op op_ = Op::forward;
  bool overlaps_next_ = false;
};

static_assert(sizeof(Instruction) == 16);

/// The default peer of a message instruction, which its text leaves out: 0SEND_F1 sends to stage 1, and 0SEND_F1>3
/// to stage 3.
constexpr StageId neighbour(Op op, StageId stage) {
  return op == Op::send_forward || op == Op::recv_backward ? stage.next() : stage.previous();
}
/// True if the peer of a message is a later stage (SEND_F, RECV_B) or an earlier stage (RECV_F, SEND_B), as it must be.
constexpr bool faces_peer(const Instruction& instruction) {
  const bool later = instruction.op() == Op::send_forward || instruction.op() == Op::recv_backward;
  return later ? instruction.peer() > instruction.stage() : instruction.peer() < instruction.stage();
}

/// The text of the instruction, e.g. "1RECV_F3", without the mark of an overlap pair.
std::string to_string(const Instruction& instruction);
/// The text of the operation: "F", "RECV_F", "STEP".
const char* to_string(Op op);

/// The text of one instruction without memory allocation, ended by zeros.
struct InstructionText {
  std::array<char, 32> letters{};  // the longest, 65534SEND_F2147483647>65535, has 27
  std::size_t length = 0;

  std::string_view view() const { return {letters.data(), length}; }
};

/// The same text as to_string(instruction).
InstructionText instruction_text(const Instruction& instruction) noexcept;

/// One rank's list, in the order of execution.
using Order = std::vector<Instruction>;

/// The schedule of one step. In most schedules, each stage is on one rank. In a bidirectional one (Chimera), several
/// pipelines share the ranks: every pipeline has a copy of every stage, and computes some of the micro-batches with it.
struct Schedule {
  std::string name;                 // free text; from generate(): the name of the generator
  int micro_batches = 0;            // m
  std::vector<Rank> rank_of_stage;  // size S; with several pipelines: of pipeline 0
  std::vector<Order> orders;        // size p, by rank
  /// The ranks of the stages of the pipelines 1, 2, ..., each of size S. Empty: there is only pipeline 0.
  std::vector<std::vector<Rank>> more_pipelines = {};
  /// Per micro-batch: the pipeline that computes it. Empty if there is only pipeline 0.
  std::vector<int> pipeline_of = {};

  int rank_count() const { return static_cast<int>(orders.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  int pipeline_count() const { return static_cast<int>(1 + more_pipelines.size()); }
  /// The rank of a stage of which there is one copy.
  Rank rank_of(StageId stage) const { return rank_of_stage[stage.index()]; }
  /// The rank that computes a micro-batch on a stage.
  Rank rank_of(StageId stage, MicroBatch i) const {
    return more_pipelines.empty() ? rank_of(stage) : placement(pipeline_of[i.index()])[stage.index()];
  }
  /// The ranks of the stages of a pipeline.
  const std::vector<Rank>& placement(int pipeline) const {
    return pipeline == 0 ? rank_of_stage : more_pipelines[static_cast<std::size_t>(pipeline - 1)];
  }
  /// The first pipeline with a copy of the stage on the rank; none if there is none.
  std::optional<int> copy_on(StageId stage, Rank rank) const;
  std::vector<int> chunks() const;  // the number of stages on each rank; with several pipelines: of pipeline 0
  std::size_t instruction_count() const;
  bool has(Op op) const;
  /// True if there is any instruction besides F, B, I and W, that is, if the schedule is the result of lower().
  bool is_lowered() const;
  /// True if there is no B, I or W: an inference or evaluation pass.
  bool is_forward_only() const;

  /// True for the instruction that completes the gradients of a stage, or of its copy in one of several pipelines: the B
  /// or W of the last micro-batch. Weight gradients accumulate in ascending order, which validate() checks.
  bool completes_gradients(const Instruction& instruction) const;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Throws ScheduleError if the schedule has several copies of each stage. `what` needs one: "the executor".
void require_single_owner(const Schedule& schedule, std::string_view what);

/// The position of an instruction in a schedule.
struct GridCell {
  Rank rank;
  int position = 0;  // in the rank's order; the size of the order means "missing at the end"
};

}  // namespace penstock
