// The public header of the module `runtime`: a world of ranks, and a network trained in it as a pipeline.
//
//   World world({.stages = 2});                          // threads; under mpirun one process per rank
//   Pipeline pipeline(world, net, cross_entropy, {.micro_batches = 4, .schedule = "1f1b"});
//   pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-2); });
//   StepResult result = pipeline.train_step(images, labels);   // the whole batch, on every process
//   std::cout << result.loss();                                // known on every rank; asking waits
//
// Loss and gradients equal those of the whole batch up to rounding, and are bitwise equal for all schedules, partitions and
// transports at equal micro-batches, replicas and threads per rank.
#pragma once

#include <concepts>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/model/model.h"
#include "penstock/runtime/gradient_hook.h"
#include "penstock/runtime/infer.h"
#include "penstock/runtime/layer_times.h"
#include "penstock/runtime/optimizer.h"
#include "penstock/runtime/options.h"
#include "penstock/runtime/parameter_groups.h"
#include "penstock/runtime/rank_peak.h"
#include "penstock/runtime/result.h"
#include "penstock/trace/recorder.h"
#include "penstock/world/world.h"

namespace penstock {

class RankRunner;
struct GatherTag;

/// A network partitioned into stages over the ranks of a world. Under MPI every process makes the same calls in the same order.
/// Not thread-safe. A Misuse leaves everything as it was. After a StepFailure, which ended one step on every rank
/// before any update, the pipeline goes on. After any other RankFailure or a TransportError the pipeline and its world are
/// spent, but for state(); a new world can be made.
class Pipeline {
 public:
  /// Partitions `network`, builds every rank's layers, and compares the ranks' settings. `network` is not needed afterwards.
  /// Throws ScheduleError or ConfigError (docs/errors.md).
  Pipeline(World& world, Cell& network, Loss loss, const PipelineOptions& options = {});
  Pipeline(World& world, const torch::nn::Sequential& network, Loss loss, const PipelineOptions& options = {});
  /// Waits for what was submitted. Failures that nobody has been told are logged; World::finish() throws them. While an
  /// exception leaves the pipeline's block under MPI, the other processes' waits for this one end.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The optimiser, made once for each stage from that stage's parameters: a function that makes one of torch::optim,
  /// or an OptimizerFactory (train/optimizers.h has fast ones). LBFGS is refused: it needs a closure over the whole
  /// network.
  template <class Make>
  void optimize_with(Make make) {
    set_optimizer(as_optimizer_factory(std::move(make)));
  }
  /// Several, for groups of parameters by name. Throws ConfigError for a pattern that fits no parameter.
  void optimize_with(const ParameterGroups& groups);

  /// Forward, backward and update for one batch, submitted: at most one step is under way beyond the one that runs.
  /// `inputs` and `targets`, a tensor or several each ([n, ...], or as PipelineOptions::input_layout and target_layout
  /// have it), are the whole (global) batch; under MPI, `inputs` may hold just the rows of this process's replica
  /// (share_rows), or nothing where reads_inputs() is false. There may be no targets, for a loss that looks at outputs
  /// alone: then the inputs tell the number of samples, or BatchTensors::none(samples) as targets does. Inputs and
  /// targets are read until the result is known: once loss(), another question to the StepResult, or wait() has
  /// returned, or ready() was true, this process may write to their memory, for the step keeps copies of what its
  /// backward pass still needs. An evaluation's batch and an inference's are free from the same moment on
  /// (InferResult::outputs() or wait()).
  StepResult train_step(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& options = {});

  /// The same step in parts, to look at the gradients before the update: forward_backward, reduce_gradients, step, in
  /// this order; step() reduces where that was left out. The result is train_step's to the last bit. Collective. Throws
  /// ConfigError for another order.
  ///
  /// forward_backward called several times gathers gradients over several batches: up to rounding, the update is that
  /// of one step over these batches joined (Reduction::mean), or over all of their micro-batches (Reduction::sum). Each
  /// result is that of its own batch.
  StepResult forward_backward(const BatchTensors& inputs, const BatchTensors& targets);
  /// Sums gradients over ties and replicas and divides them by `scale`: what a loss was multiplied with beforehand.
  void reduce_gradients(double scale = 1);
  /// Clips, where PipelineOptions says so, and takes the optimisers' step.
  void step();
  /// From now on every `calls`-th train_step updates, with the gradients of all since the last update; step() updates
  /// earlier. Throws ConfigError for less than 1, and while gradients wait for their update.
  void update_every(int calls);
  /// Changes gradients after they were summed over ties and replicas and divided by their scale, and before they are
  /// measured and clipped. Hooks run in the order in which they were added. What one throws fails the step.
  void add_gradient_hook(const GradientHook& hook);
  /// Gradients by parameter name, of this process's ranks (replica 0 first), between forward_backward and step; before
  /// reduce_gradients the replica's own, without tied parameters. To look at. Waits for what was submitted.
  std::map<std::string, torch::Tensor> local_gradients();

  /// Forward only, in evaluation mode: the loss, and the sums of `metrics`.
  StepResult evaluate(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics = {},
                      const StepOptions& options = {});

  /// Forward only, in evaluation mode, without a graph: the network's outputs for a batch of any size. `inputs` are the
  /// whole batch on every process. Submitted: as many inferences as there are stages twice over, or open sessions, may
  /// be under way before this waits. An open session's calls see what its calls before them left in the layers' memory.
  InferResult infer(const BatchTensors& inputs, const InferOptions& options = {});
  /// A session for sequences that are fed piece by piece.
  InferenceSession open_session();

  /// The rows of a batch of `samples` that this process's replica computes; all of them under threads.
  RowRange share_rows(std::int64_t samples) const;
  /// How many samples a batch has, as train_step() takes it.
  std::int64_t samples(const BatchTensors& inputs, const BatchTensors& targets) const;
  /// Whether any rank of this process looks at the network's inputs.
  bool reads_inputs() const;

  const World& world() const;
  const PipelineOptions& options() const;
  const Loss& loss() const;
  const StagedGraph& stages() const;
  /// What is obeyed for a batch of at least m samples per replica.
  const Schedule& schedule() const;
  /// "stage 0: flatten layer1 relu1", ...: for people.
  std::vector<std::string> describe_stages() const;

  /// Parameters and buffers of this process's ranks (replica 0 first; a tied parameter at its lowest stage here), by
  /// full name, to look at or to change between steps: then call sync_ties(). Waits for what was submitted.
  std::map<std::string, torch::Tensor> local_state();
  /// After values were changed by hand: every copy of a parameter or buffer becomes equal to that of its owner (the
  /// lowest stage that uses it, replica 0). Collective; waits for what was submitted.
  void sync_ties();
  /// Copies of all parameters and buffers, of replica 0, on the main process; empty on the others. Collective. After a
  /// failure parameters are those of the last complete step; a RankFailure says so where stages differ because the
  /// failure came between their updates, or where a rank hangs.
  std::map<std::string, torch::Tensor> state();
  /// Gives every parameter and buffer the value that `state` has for it, on all ranks; optimisers keep what they have.
  /// Names, shapes and dtypes must be exactly those of state(), or nothing changes and a ConfigError names what
  /// differs. Collective: every process passes the same.
  void load_state(const std::map<std::string, torch::Tensor>& state);

  /// An exponential moving average of what is trained: begins with the values that are there, and each update makes it
  /// decay * average + (1 - decay) * parameter. Collective, like all below. Throws ConfigError unless 0 <= decay < 1.
  void keep_average(double decay);
  /// True: evaluate(), infer(), state() and the like see the average in the place of the parameters, until false.
  /// Training in between is refused. Throws ConfigError without keep_average, and while gradients wait for their
  /// update.
  void use_average(bool average);
  /// state() with the average in the place of what is trained: on the main process, empty on the others.
  std::map<std::string, torch::Tensor> average_state();

  /// Gives the network that was trained back for use alone: `network`, the one that the pipeline was made from or one
  /// like it, gets the values of state(). On the main process; on others nothing changes. Collective. Throws
  /// ConfigError, naming the tensor, where names or shapes differ.
  void copy_state_to(Cell& network);
  void copy_state_to(torch::nn::Module& network);

  /// What the ranks did in the newest steps, on the main process; empty ranks on the others. Collective.
  Trace trace();
  /// Runs steps + 2 training steps, and says what every layer took in the later ones, the same on every process. The
  /// timing itself costs about a microsecond per layer. Collective; parameters change.
  TimedSteps time_layers(const BatchTensors& inputs, const BatchTensors& targets, int steps);
  /// Forgets what was recorded, on this process: after warm-up steps.
  void clear_trace();
  /// Sets the learning rate of every optimiser for the steps that are submitted from now on. Throws ConfigError for one
  /// that is negative or not finite.
  void set_learning_rate(double rate);

  /// Freezes a parameter, or all of a layer or Cell, by full name: its values stay as they are to the last bit, and
  /// nothing is computed for its gradient. The schedule is lowered again, without the messages that no longer carry a
  /// gradient. An optimiser keeps the state of what is frozen until unfreeze(). Collective; waits for what was
  /// submitted. Throws ConfigError for a name that the network does not have, and between the parts of a step.
  void freeze(const std::string& name);
  void unfreeze(const std::string& name);

  using Peak = RankPeak;
  /// Of this process's ranks. Waits for what was submitted.
  std::vector<Peak> peak_activations();
  /// Of all ranks, on the main process; empty on the others. Collective; waits for what was submitted.
  std::vector<Peak> peaks_of_all_ranks();

 private:
  void set_optimizer(const OptimizerFactory& factory);
  /// Waits for what was submitted, then runs `job` on every local rank's thread.
  void on_each_rank(const std::function<void(RankRunner&)>& job);
  GatherTag next_gathering();
  /// Throws ConfigError while averages stand in the place of the parameters.
  void require_own_values() const;
  /// Throws ConfigError, naming `what`, while gradients wait for their update.
  void require_whole_steps(const char* what) const;

  class Impl;
  std::shared_ptr<Impl> impl_;
  bool keeps_average_ = false;
  bool uses_average_ = false;
  int exceptions_ = std::uncaught_exceptions();  // an exception may be under way where the pipeline is made
};

}  // namespace penstock
