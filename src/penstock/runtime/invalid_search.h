// Finds the value that made a loss infinite or not a number.
//
// After a step that failed for such a loss, every rank joins a search before it goes on with its next job, so that
// parameters are those of the failed step whatever was submitted behind it:
//
//   1. The ranks agree that an invalid loss is the only cause of the failure.
//   2. They run the forward pass of the batch again, in training mode, with the same random numbers and buffers, and
//      look at every value. Then they restore their buffers.
//   3. They agree on the first micro-batch whose loss is invalid, of the first replica that has one, and on the first
//      of its values that are not finite. So the answer does not depend on which rank failed first.
#pragma once

#include <compare>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/runtime/batch_rows.h"
#include "penstock/runtime/boundary_messages.h"
#include "penstock/runtime/executor.h"
#include "penstock/runtime/invalid_loss.h"
#include "penstock/runtime/rank_setting.h"
#include "penstock/runtime/stage.h"
#include "penstock/runtime/stage_placement.h"
#include "penstock/runtime/state_copies.h"
#include "penstock/runtime/step_job.h"

namespace penstock {

/// The objects of a rank that the search uses; all of them outlive it.
struct InvalidSearchParts {
  const Graph& graph;
  const RankSetting& setting;
  const StagePlacement& placement;
  const RankStages& stages;
  StateCopies& copies;
};

/// How a step failed on one rank.
struct StepTrouble {
  static constexpr std::string_view record_name = "StepTrouble";
  enum Kind : std::int32_t { cancelled, invalid_loss, other };

  std::int32_t kind = cancelled;
  std::int32_t replica = 0;      // of an invalid loss; used where the second forward pass finds none
  std::int32_t micro_batch = 0;  // the same
  double loss = 0;               // the same
};

/// The trouble of the rank that threw `error` in a step.
StepTrouble trouble_of(const std::exception_ptr& error, Replica replica);

/// A handler for execute() (executor.h). Used on its rank's thread.
class InvalidSearch {
 public:
  explicit InvalidSearch(const InvalidSearchParts& parts);

  /// Returns an InvalidLoss, the same on every rank; null where the step failed for another reason. Called on every
  /// rank after `job` was cancelled and its buffers were restored. `last_update`: InvalidStep::last_update. Throws the
  /// errors of the transport.
  std::exception_ptr find(const StepJob& job, const StepTrouble& own, std::optional<std::uint64_t> last_update);

  /// The handler of execute().
  void begin(const Instruction& instruction);
  Arrival receive(const Instruction& instruction) { return messages_.receive(instruction); }
  void perform(const Instruction& instruction);

 private:
  /// A value that is not finite.
  struct Found {
    /// Ordered by micro-batch, and then as the network computes the values.
    struct Where {
      static constexpr std::string_view record_name = "Where";

      std::int32_t replica = 0;
      std::int32_t micro_batch = 0;  // of a parameter: all_micro_batches
      std::int32_t node = 0;         // of the graph; -1 for inputs, and the number of nodes for targets and the loss
      std::int32_t kind = 0;         // InvalidValue::Kind
      std::int32_t index = 0;
      std::int32_t stage = 0;
      std::int32_t has_nan = 0;
      double loss = 0;

      friend auto operator<=>(const Where&, const Where&) = default;
    };
    static constexpr std::int32_t all_micro_batches = -1;
    Where where;
    std::string name;
  };

  Tag tag_of(const StepJob& job, int operation) const;
  StepTrouble agree_on_trouble(const StepJob& job, const StepTrouble& own) const;
  /// Sets the micro-batch, its loss and its first invalid values, from what all ranks have found.
  void agree_on_first(const StepJob& job, InvalidStep& invalid) const;
  static Message first_of(std::vector<Found> all);
  /// Fills found_, or failure_ where a layer throws.
  void run(const StepJob& job);
  void forward_pass(const StepJob& search);
  void forward(Stage& stage, MicroBatch micro_batch);
  void look_at_parameters(const Stage& stage);
  void look_at_loss(const Tensors& outputs, MicroBatch micro_batch);
  struct Place {
    int node = 0;
    InvalidValue::Kind kind = InvalidValue::Kind::none;
    int index = 0;
    StageId stage;
    std::int32_t micro_batch = 0;
  };
  /// Adds `value` to found_ where it is not finite.
  void look_at(const torch::Tensor& value, const Place& place, const std::string& name);

  InvalidSearchParts parts_;
  BatchRows rows_;
  BoundaryMessages messages_;
  const StepJob* job_ = nullptr;
  LossFactors factors_;
  std::vector<Found> found_;
  std::string failure_;  // why the forward pass did not end; empty if it did
};

}  // namespace penstock
