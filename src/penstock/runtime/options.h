// Settings of a pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/kernels/kernels.h"
#include "penstock/layers/precision.h"
#include "penstock/model/batch_tensors.h"
#include "penstock/model/loss.h"
#include "penstock/schedule/costs.h"
#include "penstock/schedule/order.h"

namespace penstock {

/// How the gradients of weights gather over the micro-batches of a step. The last bits depend on how many micro-batches
/// go into one product.
enum class WeightGradients {
  stream,     // one after the other
  automatic,  // as the schedule "auto" finds it the fastest; with other schedules as stream
  fused       // one product over all micro-batches, or over as many at a time as the memory limit allows
};

/// Precision::fp16 multiplies the loss with a scale before the backward pass, and divides the gradients by it before
/// they are clipped and applied. Where a gradient is not finite, on any rank, the update is left out everywhere and the
/// scale is halved; after `growth_steps` updates in a row it is doubled.
struct LossScaling {
  double initial = 65536;  // a power of two, so that scaling changes no digit
  int growth_steps = 2000;
};

struct PipelineOptions {
  int inputs = 1;  // tensors that the network takes
  /// Where the samples lie in the network's inputs, in the targets, and in what infer() gives back; dimension 0 where a
  /// list says nothing. {AlongDim{1}, Whole{}}: the first is [T, n, ...], all of the second goes to every micro-batch
  /// of every replica. Of an output that is Whole, one micro-batch's is given back.
  std::vector<TensorLayout> input_layout = {};
  std::vector<TensorLayout> target_layout = {};
  std::vector<TensorLayout> output_layout = {};
  int micro_batches = 1;      // m per step and replica; 0: the schedule "auto" chooses it too
  std::string schedule = "";  // a generator's name, or a .sched or CSV file; empty: default_schedule(chunks)
  std::optional<Schedule> custom = std::nullopt;  // compute instructions of one's own, in place of `schedule`
  int chunks = 0;                                 // v, stages per rank; 0: the schedule's own
  WeightGradients weight_gradients = WeightGradients::stream;
  /// Most live micro-batches of a rank, in units of 1F1B's min(m, p); none: what the schedule promises.
  std::optional<double> memory_limit = std::nullopt;
  /// Per stage, for schedules that are made to measure (zb-auto); none: all instructions cost the same.
  std::optional<Costs> costs = std::nullopt;
  Reduction reduction = Reduction::mean;
  /// How losses and gradients come together over the replicas that have samples. mean: replicas do not change the
  /// numbers (up to rounding, where shares are equal); sum: all of it times the number of replicas.
  Reduction replica_reduction = Reduction::mean;
  /// What StepResult::loss() tells, whatever the gradients are of: `mean`, over the batch; `sum`, of the micro-batches'
  /// means, averaged over the replicas. None: the loss whose gradients are applied.
  std::optional<Reduction> reported_loss = std::nullopt;
  /// Before the update, gradients are scaled down to this global 2-norm where theirs is larger; none: they are not
  /// looked at. Infinity measures the norm and leaves them as they are.
  std::optional<double> clip_norm = std::nullopt;
  /// What every value has that goes from one stage to another, with its micro-batch's rows as the first size; another
  /// shape is an error, and messages between processes do not carry it. None: shapes are not looked at, and may change
  /// from step to step and between micro-batches.
  std::optional<std::vector<std::int64_t>> boundary_shape = std::nullopt;
  /// Every layer's activations are computed again for the backward pass, unless its annotation says otherwise.
  bool recompute = false;
  /// Pipeline::Peak tells bytes too. Takes time: every allocation is looked at.
  bool count_bytes = false;
  /// Where stages compute. "auto": on a GPU where LibTorch sees one, rank r on cuda:(r mod count), else on the CPU;
  /// "cpu"; "cuda": rank r of a host on cuda:(r mod count); "cuda:1": all on that one. Pipeline::options() tells which
  /// of them "auto" became, and ranks compare it. First weights are made on the CPU: they are the same on every device.
  std::string device = "auto";
  Precision precision = Precision::fp32;
  LossScaling loss_scaling = {};  // of Precision::fp16
  Kernels kernels = Kernels::fixed;
  /// What Kernels::tuned chose, as options() of a pipeline tells it. Given, nothing is measured: another pipeline with
  /// the same text computes the same bits.
  std::string kernel_selection = "";
  /// For networks without annotations: what plan/partition.h knows, or "time": the slowest rank as fast as can be, by the
  /// time that each layer's forward and backward take on the first process, for one micro-batch of `sample`. Such a partition
  /// differs from run to run; numbers do not depend on the partition.
  std::string partition = "parameters";
  /// Inputs of some samples, a batch as a rule: what Kernels::tuned and the partition "time" measure with, in the
  /// first process alone; and the shapes and dtypes that a forward may ask its values for (Value::size), which every
  /// process must give.
  std::vector<torch::Tensor> sample = {};
  BatchTensors sample_targets = {};  // of the whole sample: what the schedule "auto" trains with
  /// What the layers cost, as the text of a cost file: traces carry it. The schedule "auto" fills it in.
  std::string layer_costs = "";
  /// Where ranks are processes, they compare what they were given in the first three training steps and in every step
  /// whose number this divides: a hash of the targets on all ranks, and of the inputs where two ranks of one replica
  /// read the same ones. ConfigError on all ranks where they differ: data drawn or shuffled without a common seed.
  /// 0: never.
  int compare_batches = 100;
  std::uint64_t seed = 0;  // of the initial weights
};

}  // namespace penstock
