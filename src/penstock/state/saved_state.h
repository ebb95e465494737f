// What a checkpoint takes from a pipeline and its ranks, and restores: settings, numbers, the tensors of each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/checkpoint/rank_files.h"
#include "penstock/rank/options.h"
#include "penstock/rank/parameter_updater.h"
#include "penstock/rank/rank_runner.h"
#include "penstock/world/collectives.h"
#include "penstock/world/world.h"

namespace penstock::state {

/// What a rank reports about its part of saving or loading a checkpoint, which succeeds on all ranks or on none.
struct RankReport {
  enum class Kind : std::int32_t {
    done,
    unusable,     // a state that must not be kept, a folder that cannot be used, or a checkpoint of another network
    failed,       // an error of the system
    damaged,      // a checkpoint that is not as it was written
    not_readable  // a checkpoint that may be whole
  };
  Kind kind = Kind::done;
  std::string text = {};  // if done, what was written or found; otherwise the error

  Message message() const { return transport::message_of(static_cast<std::int32_t>(kind), text); }
  static RankReport of(const Message& message) {
    return {static_cast<Kind>(transport::record_in<std::int32_t>(message)), transport::text_in(message, 1)};
  }
};

/// What a checkpoint records of the pipeline: the steps that were submitted, and the learning rate.
struct StepsDone {
  std::int64_t steps = 0;
  std::optional<double> learning_rate = std::nullopt;
};

struct SaverParts {
  std::shared_ptr<rank::LocalRunners> runners;
  std::function<StepsDone()> position;
  /// Throws ConfigError while gradients await their update, or averages replace the parameters.
  std::function<void()> require_savable;
  std::uint32_t pipeline = 0;
  std::uint64_t seed = 0;
  BitSettings bits = {};
  const std::set<std::string>& damaged;  // CheckpointFolder::damaged
};

/// The settings on which the bits of this pipeline's results depend. `schedule` is the one that it executes.
BitSettings bit_settings(const PipelineOptions& options, const World& world, const Schedule& schedule);

using States = std::map<std::string, StateValues>;

void add_loss_scaler(States& states, const rank::LossScaler& scaler);
/// None without fp16.
std::optional<rank::LossScaler::State> loss_scaler_in(const States& states);
void add_learning_rate(States& states, std::optional<double> rate);
/// None if the pipeline did not set it.
std::optional<double> learning_rate_in(const States& states);

/// Of the numbers, wherever they are.
Checksum checksum_of(const torch::Tensor& value);

/// The tensors whose owner a rank is: on replica 0, those of its stages, of a tie on the owner stage. Refers to the
/// pipeline's memory where that is contiguous and on the CPU, and to copies elsewhere: to be used on the rank's thread,
/// before the next step.
class OwnedTensors {
 public:
  /// Collects the optimiser's state from the other replicas; called on every rank. `round` differs for each call;
  /// `trained_only`: CheckpointContents::trained_only.
  OwnedTensors(rank::RankRunner& runner, std::uint64_t round, bool trained_only);
  const RankTensors& tensors() const { return tensors_; }

 private:
  void add(std::vector<TensorBytes>& list, const std::string& name, const torch::Tensor& tensor);

  RankTensors tensors_;
  std::vector<torch::Tensor> memory_;  // keeps the bytes alive
};

/// Compares the checksums of all tensors that restore() reads. Throws DataError if one does not match.
void require_undamaged(rank::RankRunner& runner, const Checkpoint& checkpoint);

/// Freezes the parameters that were frozen, and reads everything of `checkpoint` that the rank's stages use into them,
/// owned or not. Called on the rank's thread.
/// Throws DataError if a checksum does not match, and ConfigError if the checkpoint's optimiser does not fit.
/// Then some values have been replaced, and others not.
void restore(rank::RankRunner& runner, const Checkpoint& checkpoint);

}  // namespace penstock::state
