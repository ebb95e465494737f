// Settings of a pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "penstock/kernels/kernels.h"
#include "penstock/layers/precision.h"
#include "penstock/model/batch_tensors.h"
#include "penstock/model/loss.h"
#include "penstock/schedule/instruction.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/stage_costs.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock {

/// Loss scaling of Precision::fp16. The loss is multiplied by a scale before the backward pass; the gradients are
/// divided by it before they are clipped and applied. Where a gradient on any rank is not finite, all ranks skip the
/// update and halve the scale; after `growth_steps` updates in a row they double it.
struct LossScaling {
  double initial = 65536;  // a power of two, so that scaling changes no digit
  int growth_steps = 2000;
};

struct PipelineOptions {
  int inputs = 1;             // tensors that the network takes
  BatchDims batch_dims = {};  // where the samples lie in inputs, targets and outputs: along dimension 0
  int micro_batches = 1;      // m per step and replica; 0: chosen by the schedule "auto"
  /// Gradient accumulation: every update_every-th train_step updates, with the gradients that were accumulated since
  /// the last update; Pipeline::step() updates earlier.
  int update_every = 1;
  std::string schedule = "";  // a generator's name, or a .sched or CSV file; empty: default_schedule(chunks)
  std::optional<Schedule> custom = std::nullopt;  // the program's own compute instructions, instead of `schedule`
  int chunks = 0;                                 // v, stages per rank; 0: the schedule's default
  /// stream, fused or, for the schedule "auto", automatic; with other schedules automatic is stream. With a memory
  /// limit fused is one product over as many micro-batches at a time as the limit permits.
  WeightGradients weight_gradients = WeightGradients::stream;
  /// The largest activations of a rank: a multiple of 1F1B's live micro-batches (TimesOf1F1B), or bytes
  /// (BytesPerRank), which need the `costs`' activation_bytes: autotune() measures them. A schedule that needs more
  /// is refused. None: the bound of the schedule.
  std::optional<MemoryLimit> memory_limit = std::nullopt;
  /// Costs per stage, for schedules that are generated from costs (zb-auto) and for a memory limit in bytes; none: all
  /// instructions cost the same.
  std::optional<StageCosts> costs = std::nullopt;
  LossReduction loss_reduction = {};
  /// Largest global 2-norm of the gradients: before the update, larger gradients are scaled down to it. None: the norm
  /// is not computed. Infinity: the norm is computed, the gradients do not change.
  std::optional<double> clip_norm = std::nullopt;
  /// 1 (ZeRO-1, arXiv 1910.02054): each replica keeps the optimiser's state of its rows of the parameters, updates these
  /// and sends them to the other replicas. Results and checkpoints are the same as with 0. Needs several replicas and an
  /// optimiser with Optimizer::is_elementwise(); a ParameterFilter sees a parameter's rows of one replica.
  int zero = 0;
  /// The shape of every value that one stage sends to another, with the micro-batch's rows as the first size. Another
  /// shape is an error; messages between processes do not carry the shape. None: shapes are not checked and may change
  /// from step to step and between micro-batches.
  std::optional<std::vector<std::int64_t>> boundary_shape = std::nullopt;
  /// Recomputes every layer's activations in the backward pass, unless the layer's annotation overrides it.
  bool recompute = false;
  /// RankPeak also reports bytes. Costs time: every allocation is observed.
  bool count_bytes = false;
  /// The device of the stages. A device with an index, cuda:1, is that of all ranks; without one, cuda, rank r of a
  /// host has cuda:(r mod count). None: cuda if LibTorch finds a GPU, else the CPU. Pipeline::options() holds the
  /// choice, and the ranks compare it. Initial weights are computed on the CPU: they are the same on every device.
  std::optional<c10::Device> device = std::nullopt;
  Precision precision = Precision::fp32;
  LossScaling loss_scaling = {};  // of Precision::fp16
  Kernels kernels = Kernels::fixed;
  /// The kernel selection of Kernels::tuned, as options() of an earlier pipeline contains it. Where it is given,
  /// nothing is measured: pipelines with the same text compute the same bits. Empty: autotune() measures.
  std::string kernel_selection = "";
  /// How networks without annotations are partitioned: a method of plan/partition.h, or the first layers (or Cells) of
  /// the stages, as partition_layers() reads them; or "time", which minimises the time of the slowest rank from the
  /// forward and backward times of each layer: autotune() measures them. A partition by "time" may differ from run to
  /// run; results do not depend on the partition.
  std::string partition = "parameters";
  /// For networks whose forward reads shapes or dtypes (Value::size): inputs with any number of samples, from which
  /// tracing takes shapes and dtypes only. Every process passes the same ones. Empty: no shape is known.
  std::vector<torch::Tensor> example_inputs = {};
  /// Where ranks are processes, they compare their batches in the first three training steps and in every step whose
  /// number is a multiple of this: a hash of the targets on all ranks, and of the inputs where two ranks of one replica
  /// read the same ones. Different hashes throw ConfigError on all ranks: the data were drawn or shuffled without a
  /// common seed. 0: never.
  int compare_batches = 100;
  std::uint64_t seed = 0;  // of the initial weights and of random numbers such as dropout masks

  bool clips() const { return clip_norm.has_value(); }
};

/// One entry of the list below.
struct Setting {
  const char* name;  // in messages, traces and, as a flag of the same name, on command lines
  /// Whether numbers depend on it beside those settings that a checkpoint records itself (BitSettings): a training that
  /// is resumed with another value warns.
  bool changes_numbers = false;
  bool changes_times = false;  // measurements depend on it: it is part of the key of the tuning cache
};

/// Calls visit(Setting, member) for the settings of a pipeline: the only list of them. Ranks compare all of them
/// (pipeline/fingerprint.h). What becomes part of the instructions, the network or the kernels is compared as such.
template <class Visit>
void for_each_setting(const PipelineOptions& options, Visit&& visit) {
  visit(Setting{"micro-batches", false, true}, options.micro_batches);
  visit(Setting{"update-every", true}, options.update_every);
  visit(Setting{"schedule"}, options.schedule);
  visit(Setting{"weight-gradients"}, options.weight_gradients);
  visit(Setting{"memory-limit"}, options.memory_limit);
  visit(Setting{"partition", false, true}, options.partition);
  visit(Setting{"reduction", true}, options.loss_reduction.reduction);
  visit(Setting{"replica-reduction", true}, options.loss_reduction.replica_reduction);
  visit(Setting{"reported-loss"}, options.loss_reduction.reported_loss);
  visit(Setting{"clip-norm", true, true}, options.clip_norm);
  visit(Setting{"zero", false, true}, options.zero);
  visit(Setting{"boundary-shape", false, true}, options.boundary_shape);
  visit(Setting{"recompute", false, true}, options.recompute);
  visit(Setting{"count-bytes", false, true}, options.count_bytes);
  visit(Setting{"device", false, true}, options.device);
  visit(Setting{"precision", false, true}, options.precision);
  visit(Setting{"loss-scale", true}, options.loss_scaling.initial);
  visit(Setting{"loss-scale-growth", true}, options.loss_scaling.growth_steps);
  visit(Setting{"compare-batches"}, options.compare_batches);
  visit(Setting{"seed"}, options.seed);
}

}  // namespace penstock
