// A world of ranks, and a network trained in it as a pipeline.
//
//   World world({.stages = 2});                          // threads; under mpirun one process per rank
//   Pipeline pipeline(world, net, cross_entropy, {.micro_batches = 4, .schedule = "1f1b"});
//   pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-2); });
//   StepResult result = pipeline.train_step(images, labels);   // the whole batch, on every process
//   std::cout << result.loss();                                // available on every rank; the call waits for it
//
// Loss and gradients equal those of the whole batch up to rounding. They are bitwise equal for all schedules,
// partitions and transports at equal micro-batches, replicas and threads per rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/pipeline/infer.h"
#include "penstock/pipeline/parameter_groups.h"
#include "penstock/rank/optimizer.h"
#include "penstock/rank/options.h"
#include "penstock/rank/result.h"
#include "penstock/state/checkpoint_saver.h"
#include "penstock/world/world.h"

namespace torch::nn {
class Module;
}

namespace penstock {

class Cell;
class PipelineImpl;
struct StagedGraph;

/// Which parameters and buffers Pipeline::state_dict() returns.
struct StateFilter {
  std::string pattern = "*";  // of full names, with '*' for any characters and '?' for one: "*.lora_*"
  bool trained_only = false;  // leave out frozen parameters
};

/// A network partitioned into stages over the ranks of a world. Of several processes every one makes the same calls in
/// the same order. A call marked "collective" communicates: it returns only after every process has made it. Not
/// thread-safe. A Misuse leaves the pipeline unchanged. A StepFailure ends one step on every rank before any update,
/// and leaves the state as it was; the pipeline remains usable. After any other RankFailure or a TransportError,
/// state_dict() is the only call that the pipeline and its world still support; the program may create a new world.
class Pipeline {
 public:
  /// Partitions `network`, builds every rank's layers, and compares the ranks' settings. `world` must outlive the
  /// pipeline; `network` is not used after the constructor. Collective. Throws ScheduleError or ConfigError
  /// (docs/errors.md).
  Pipeline(World& world, Cell& network, Loss loss, const PipelineOptions& options = {});
  /// Waits for all submitted steps. Failures that no call has thrown yet are logged; World::finish() throws them. Where
  /// an exception unwinds through the pipeline's scope under MPI, the other processes' waits for this process end.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Sets the optimiser. `optimizers` is a function that is called once for each stage with that stage's parameters and
  /// returns an optimiser of torch::optim, or an OptimizerFactory (train/optimizers.h has fast ones), or several of
  /// these for groups of parameters that are selected by name. Throws ConfigError for LBFGS, which needs a closure over
  /// the whole network, and for a pattern that matches no parameter.
  void optimize_with(const ParameterGroups& optimizers);

  /// Submits forward, backward and update for one batch, and returns before they are done. At most one step waits
  /// behind the one that runs: a third call first waits for the oldest step.
  /// `inputs` and `targets` are one or several tensors each, of shape [n, ...] or as PipelineOptions::batch_dims
  /// defines. They are the whole (global) batch. Under MPI, `inputs` may contain only the rows of this
  /// process's replica (BatchShare), or nothing if no rank of the process reads them. A loss of the outputs alone needs
  /// no targets: the number of samples n is then taken from the inputs, or from targets = BatchTensors::none(n).
  /// The caller must not write to the tensors before the result is available: until loss() or another getter of the
  /// StepResult has returned, wait() has returned, or ready() was true. The step copies what its backward pass needs
  /// after that. The same holds for an evaluation and for an inference (InferResult::outputs() or wait()).
  StepResult train_step(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& options = {});
  /// Counts a training step without running one: for a batch that is left out of a training. Later steps then draw the
  /// random numbers that they would draw behind a step with this batch. A step that failed is counted already.
  void skip_step();

  /// The same step in parts, so that the program can inspect gradients before the update: forward_backward,
  /// reduce_gradients, step, in this order; step() reduces first where reduce_gradients was not called. The result is
  /// bitwise that of train_step. Collective. Throws ConfigError for another order.
  ///
  /// Several calls of forward_backward accumulate gradients over several batches: up to rounding, the update is that
  /// of one step over the concatenated batches (Reduction::mean), or over all of their micro-batches (Reduction::sum).
  /// Each call returns the result of its own batch.
  StepResult forward_backward(const BatchTensors& inputs, const BatchTensors& targets);
  /// Sums gradients over ties and replicas and divides them by `scale`, the factor by which the loss was multiplied.
  /// Throws ConfigError for a scale of 0 or one that is not finite.
  void reduce_gradients(double scale = 1);
  /// Clips the gradients if the options ask for it, and steps the optimisers.
  void step();
  /// Whether gradients await their update, so that no checkpoint can be written.
  bool has_gradients() const;
  /// Adds a function that replaces gradients. It runs after gradients are summed over ties and replicas and divided by
  /// their scale, and before their norm is computed and they are clipped. Hooks run in the order of their addition. An
  /// exception in a hook fails the step.
  void add_gradient_hook(const GradientHook& hook);
  /// Gradients by parameter name, of this process's ranks (replica 0 first), between forward_backward and step. Before
  /// reduce_gradients these are the replica's own, without tied parameters. The tensors are the pipeline's own: do not
  /// modify them. Waits for all submitted steps.
  StateDict local_gradients();

  /// Submits a forward pass in evaluation mode; the result holds the loss and the sums of `metrics`.
  StepResult evaluate(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics = {},
                      const StepOptions& options = {});

  /// Submits a forward pass in evaluation mode without an autograd graph; the result holds the network's outputs.
  /// `inputs` are the whole batch, of any size, on every process. Up to max(2 * world.stages(), open sessions)
  /// inferences may be in flight before this call waits for the oldest. Within a session each call continues from the
  /// layers' state (such as keys and values) that the calls before it left.
  InferResult infer(const BatchTensors& inputs, const InferOptions& options = {});
  const World& world() const;
  const PipelineOptions& options() const;
  const Loss& loss() const;
  const StagedGraph& stages() const;
  /// The lowered schedule that the ranks execute for a batch of at least m samples per replica.
  const Schedule& schedule() const;

  /// Parameters and buffers of this process's ranks (replica 0 first; a tied parameter at its lowest stage here), by
  /// full name, in the network's order. The tensors are the pipeline's own. A program that changes them between steps
  /// must call sync_ties() afterwards. Waits for all submitted steps, on devices too. What reads or changes them on a
  /// device must be complete, or followed by sync_ties(), before the next step.
  StateDict local_state_dict();
  /// Overwrites every copy of a parameter or buffer with that of its owner (the lowest stage that uses it, replica 0):
  /// to be called after the program changed values in local_state_dict(), on a device on its current stream.
  /// Collective; waits for all submitted steps.
  void sync_ties();
  /// Copies of the parameters and buffers of replica 0, all or those that `which` selects, by full name, on the main
  /// process; empty on the others. The order is the network's, for every partition, schedule and transport; a tied
  /// parameter appears once, by the name of its owner. Collective. After a failure that ended the world no state is
  /// left: throws RankFailure, which names the newest checkpoint of the pipeline's CheckpointSaver, if any.
  StateDict state_dict(const StateFilter& which = {});
  /// Copies the values of `state` into every parameter and buffer on all ranks; optimiser state does not change.
  /// Names, shapes and dtypes must be exactly those of state_dict(), in any order; otherwise nothing changes and a
  /// ConfigError names the difference. Collective: every process passes the same values.
  void load_state_dict(const StateDict& state);

  /// Training steps so far: those that were submitted, and those before the checkpoint that was loaded.
  std::int64_t training_steps() const;
  /// Writes a checkpoint of everything that the next training step depends on (docs/checkpoints.md) into a folder of
  /// checkpoints, which is made if it is missing, and waits until it survives a power failure. Collective. Throws
  /// ConfigError while gradients await their update and where checkpoints() does; on the main process, Failure if it
  /// cannot be written.
  void save(const std::string& folder, const CheckpointContents& contents = {});
  /// Writes checkpoints into a folder while training goes on. Locks the folder. Collective. Throws ConfigError, on
  /// every process, if another process writes there, or the folder has a complete checkpoint of a later step.
  std::unique_ptr<CheckpointSaver> checkpoints(const SaverOptions& options);
  /// Continues from the newest checkpoint of a folder that is complete and undamaged, or from the one whose directory
  /// `path` is: the next step is the one that followed it, whatever the partition, the schedule, the transport and the
  /// number of ranks were; frozen parameters are those that were frozen then. To be called after optimize_with(), and
  /// after making a WeightAverage. Damaged checkpoints are logged and skipped. Returns its manifest; none where there
  /// is no such checkpoint. Every process reads the tensors of its own ranks. Collective. Throws ConfigError for the
  /// checkpoint of another network (then nothing changes) or of another optimiser (then load another state before going
  /// on), and DataError if the folder cannot be read, or no checkpoint is usable and one that was skipped may be whole:
  /// one of a later version, or on a disk that fails.
  std::optional<Manifest> load(const std::string& path);
  /// Sets the learning rate of every optimiser for the steps that are submitted from now on. Throws ConfigError for a
  /// rate that is negative or not finite.
  void set_learning_rate(double rate);

  /// Freezes a parameter, or all parameters of a layer or Cell, by full name, in which '*' matches any characters and
  /// '?' one: freeze("*"), freeze("model.layers.1?"). Their values stay bitwise the same; their gradients are not
  /// computed, have no memory, and do not belong to W. The schedule is lowered again, without the messages that no
  /// longer carry a gradient. Returns the names of the parameters. A tied parameter is frozen in all of its uses, by
  /// the name of any; a warning names the others. Collective; waits for all submitted steps. Throws ConfigError for a
  /// name that fits no parameter, which names the nearest one, and between the parts of a step.
  std::vector<std::string> freeze(const std::string& pattern);
  /// Trains parameters again, from the state that the optimiser has kept, if any. As freeze() otherwise.
  std::vector<std::string> unfreeze(const std::string& pattern);

 private:
  friend class BatchShare;
  friend class InferenceSession;
  friend class Profiler;
  friend class WeightAverage;

  std::unique_ptr<PipelineImpl> impl_;
};

/// The part of each batch that this process of a pipeline needs. The pipeline must outlive it.
class BatchShare {
 public:
  explicit BatchShare(const Pipeline& pipeline) : impl_(*pipeline.impl_) {}

  /// The number of samples of a batch, as train_step() counts them.
  std::int64_t samples(const BatchTensors& inputs, const BatchTensors& targets) const;
  /// The rows of a batch of `samples` that this process's replica computes; all of them under threads.
  RowRange rows(std::int64_t samples) const;
  /// Whether any rank of this process reads the network's inputs.
  bool reads_inputs() const;

 private:
  const PipelineImpl& impl_;
};

/// One line per stage, "stage 0: flatten, embedding, block0-14", for display: Cells instead of their layers where they
/// are whole.
std::vector<std::string> describe_stages(const Pipeline& pipeline);

/// Copies the values of Pipeline::state_dict() into `network`, which is the network the pipeline was made from or one
/// of the same structure, for use without a pipeline. Changes `network` on the main process only. Collective. Throws
/// ConfigError, which names the tensor, if names or shapes differ.
void copy_state(Pipeline& pipeline, Cell& network);
void copy_state(Pipeline& pipeline, torch::nn::Module& network);

}  // namespace penstock
