// The batch of a step: the sample dimensions of its tensors, the rows and weights of each replica and micro-batch, and
// whether all ranks were given the same one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/base/split.h"
#include "penstock/model/batch_tensors.h"
#include "penstock/model/loss.h"
#include "penstock/model/value.h"
#include "penstock/rank/options.h"
#include "penstock/rank/result.h"
#include "penstock/transport/tag.h"
#include "penstock/world/rank_context.h"

namespace penstock::rank {

/// The sample dimensions of a pipeline's inputs, targets or outputs; splits and joins tensors along them.
class BatchAxes {
 public:
  BatchAxes() = default;
  /// `what` is "inputs", "targets" or "outputs". Throws ConfigError for a negative dimension.
  BatchAxes(std::string what, SampleDims dims);

  /// The number of samples of `tensors`; 0 if none of them has samples. Throws ConfigError if a tensor lacks its
  /// dimension or two tensors differ.
  std::int64_t samples(const Tensors& tensors) const;
  /// The given rows of each tensor, as views; tensors without samples are returned unchanged.
  Tensors rows(const Tensors& tensors, RowRange rows) const;
  /// The same for one tensor, with number `index` in the list.
  torch::Tensor rows(const torch::Tensor& tensor, std::size_t index, RowRange rows) const;
  /// Concatenates the parts of every tensor along its samples. The results share no memory with the parts; of a tensor
  /// without samples the first part is taken. Skips undefined tensors. Throws ScheduleError for a part that lacks the
  /// dimension.
  Tensors join(const std::vector<Tensors>& parts) const;

  /// The dimensions as text, such as "0 1 whole", for comparing ranks.
  std::string text() const;
  std::size_t count() const { return dims_.size(); }

 private:
  std::optional<int> dimension(std::size_t index) const { return index < dims_.size() ? dims_[index] : 0; }

  std::string what_ = "tensors";
  SampleDims dims_;
};

/// The axes of one pipeline.
struct BatchAxesOf {
  BatchAxes inputs, targets, outputs;

  /// The number of samples of a batch, from its targets or, where there are none, from its inputs. Throws ConfigError
  /// for 0 samples.
  std::int64_t samples(const BatchTensors& batch_inputs, const BatchTensors& batch_targets) const;
};

/// The rows of a batch that each replica and micro-batch computes.
class BatchLayout {
 public:
  struct Shape {
    std::int64_t samples = 0;  // of the whole batch
    int replicas = 1;          // d
    int micro_batches = 1;     // m; a share of fewer samples has fewer micro-batches
  };
  explicit BatchLayout(const Shape& shape) : shape_(shape) {}

  const Shape& shape() const { return shape_; }
  /// A replica's rows of the batch: contiguous, larger shares first.
  RowRange share(Replica replica) const;
  /// min(m, samples of the share).
  int micro_batches(Replica replica) const;
  /// A micro-batch's rows of the whole batch.
  RowRange rows(Replica replica, MicroBatch micro_batch) const;

 private:
  Shape shape_;
};

/// How rows of a batch are used.
struct RowsUse {
  c10::Device device = c10::kCPU;
  bool outlive_result = false;  // a backward pass reads them after the step's result is available
};

/// `rows` of the caller's batch on the device. Where they outlive the result they share no memory with the batch, which
/// the caller may overwrite as soon as the result is available.
torch::Tensor usable_rows(const torch::Tensor& rows, const RowsUse& use);

/// The factors that turn the micro-batches' loss sums into the step's loss and its gradients.
struct LossFactors {
  double total_weight = 0;       // over all replicas and micro-batches
  std::vector<double> gradient;  // by micro-batch of one replica: the factor of its loss sum before the backward pass
  std::vector<double> reported;  // by micro-batch of one replica: the reported loss is the sum of factor * loss sum
};

/// The whole batch's targets and their sample dimensions.
struct WholeTargets {
  const Tensors& tensors;
  const BatchAxes& axes;
};
/// The factors for one replica, computed from the targets alone. A micro-batch of weight 0 (all masked) has factor 0,
/// and averages do not count a replica of weight 0.
LossFactors loss_factors(const Loss& loss, const LossReduction& how, const WholeTargets& targets,
                         const BatchLayout& layout, Replica replica, int replicas);

/// The error of processes that were given different batches. Thrown on every rank with the same text, so that the world
/// need not be aborted.
class BatchesDiffer : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Type, sizes and a hash of about 64 KiB of the contents, evenly spread. Equal tensors have equal digests; those of
/// different batches differ with high probability.
std::string digest_of(const torch::Tensor& tensor);

/// Called on every rank's thread. `digests`: one text for all targets, then one for the rows of each input of the
/// network, which is empty if this rank does not read it. Compares targets over all ranks, and inputs over the ranks of
/// a replica. Throws BatchesDiffer on every rank, naming two ranks and their digests, if two ranks differ in training
/// step `training_step`.
void compare_digests(const RankContext& context, const Tag& tag, const std::vector<std::string>& digests,
                     std::uint64_t training_step);

/// Whether training step `training_step`, counted from 0, is compared: the first three, and the multiples of `every`;
/// none where `every` is 0.
bool is_compared(std::uint64_t training_step, int every);

}  // namespace penstock::rank
