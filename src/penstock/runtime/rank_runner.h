// One rank of one pipeline: its stages, and the handler that executes its list.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/model/sequence_memory.h"
#include "penstock/runtime/activation_store.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/batch_layout.h"
#include "penstock/runtime/gathered_gradients.h"
#include "penstock/runtime/gradient_hook.h"
#include "penstock/runtime/held_bytes.h"
#include "penstock/runtime/infer_state.h"
#include "penstock/runtime/loss_scaler.h"
#include "penstock/runtime/optimizer.h"
#include "penstock/runtime/reduce.h"
#include "penstock/runtime/result.h"
#include "penstock/runtime/schedule_cache.h"
#include "penstock/runtime/stage.h"
#include "penstock/runtime/step_state.h"
#include "penstock/runtime/tied_gradients.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// One step, as every local rank gets it. Immutable.
struct StepJob {
  std::uint64_t step = 0;           // of all that was submitted, evaluations too: what messages are tagged with
  std::uint64_t training_step = 0;  // training steps before it
  bool training = true;
  StepPart part = StepPart::whole;
  double gradient_divisor = 1;  // of the part `reduce`
  BatchLayout layout;
  std::vector<std::shared_ptr<const CompiledSchedule>> plans = {};  // by replica
  Tensors inputs = {};  // by graph input: the whole batch, or from first_input_row on
  std::int64_t first_input_row = 0;
  Tensors targets = {};  // the whole batch's
  std::vector<Metric> metrics = {};
  std::optional<double> learning_rate = std::nullopt;  // from this step on; none: as it was
  std::shared_ptr<StepState> state = nullptr;
  std::optional<Inference> inference = std::nullopt;  // outputs are wanted, not a loss
  bool keeps_outputs = false;                         // next to the loss
  GradientShares shares = {};                         // in what waits for the update
};

/// What a rank needs to know of its pipeline.
struct RankSetting {
  std::uint32_t pipeline = 0;
  RankContext context;
  Loss loss;
  LossReductions reductions;
  std::optional<double> clip_norm;
  std::optional<std::vector<std::int64_t>> boundary_shape;
  std::uint64_t seed = 0;
  Precision precision = Precision::fp32;
  LossScaling loss_scaling = {};
  int compare_batches = 0;  // PipelineOptions'
  c10::Device device = c10::kCPU;
  std::shared_ptr<const KernelSelection> kernels = nullptr;
  bool count_bytes = false;
  BatchAxesOf axes = {};
};

/// Lives on its rank's thread; everything but the constructor is called there. A model for `Handler` of the executor.
class RankRunner {
 public:
  /// `staged` must outlive it. Builds the stages that `placement` gives this rank.
  RankRunner(const StagedGraph& staged, const Schedule& placement, const RankSetting& setting);

  const RankContext& context() const { return setting_.context; }
  /// Whether each node that this rank runs has parameters that train.
  std::vector<std::pair<int, bool>> trainable_nodes() const;
  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }
  void make_optimizers(const OptimizerFactory& factory);
  /// Freezes the parameters called `name`, or "`name`.something", or lets them train again, with the optimiser state
  /// that they had.
  void set_trainable(const std::string& name, bool trains);
  /// Runs on what an update takes, after its reduction and before it is clipped.
  void add_gradient_hook(const GradientHook& hook) { gradient_hooks_.push_back(hook); }
  /// Averages what the optimisers step from now on, beginning with the values that are there.
  void keep_average(double decay);
  /// Parameters and their averages change places.
  void swap_averages();
  const Recorder& recorder() const { return recorder_; }
  void clear_recorder() { recorder_.clear(); }
  /// How often the parameters of a stage of this rank were updated: of the stage with the fewest and with the most.
  /// Torn: an update ended in the middle.
  struct Updates {
    std::int64_t fewest = 0;
    std::int64_t most = 0;
    bool torn = false;
  };
  Updates updates() const;
  /// Times every layer from now on, or no longer. At rest.
  void set_timing(bool on);
  /// What the layers took in the `steps` since: by the node's number, F, B (or I), W (base/median.h), then bytes of
  /// output and parameters.
  std::vector<std::pair<std::string, torch::Tensor>> timed_nodes(std::size_t steps) const;
  /// The most live micro-batches so far.
  int peak_activations() const { return activations_.peak(); }
  /// The most that the plans of the same steps foresaw.
  int predicted_activations() const { return predicted_activations_; }
  /// What these held; null unless they are counted.
  const HeldBytes* held_bytes() const { return bytes_.get(); }

  /// The gradients that the last forward_backward (and reduce) left, by parameter name, until the update.
  std::vector<std::pair<std::string, torch::Tensor>> gradients();
  /// Makes every copy of a parameter or buffer equal: replica 0's owner goes to its ties and to the other replicas.
  void synchronise(std::uint64_t round);

  /// Runs one step and tells its state. Never throws: a failure aborts the world and ends the step's state.
  void run(const StepJob& job);
  /// Receives the outputs of step `step` that other ranks sent to this process. Never throws, as run().
  void fetch_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state);
  /// Frees what the layers remember of an inference session.
  void forget_session(std::uint64_t session) { sessions_.erase(session); }

  // The handler.
  void begin(const Instruction& instruction);
  Arrival receive(const Instruction& instruction);
  void perform(const Instruction& instruction);

 private:
  enum class BatchPart { inputs, targets };
  struct MessageKey {
    StageId from;  // the link's producer, in both directions
    StageId to;    // its consumer
    MicroBatch micro_batch;
    bool forward = true;
    friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
  };

  Transport& endpoint() const { return *setting_.context.endpoint; }
  Stage& stage(StageId id);
  bool is_local(StageId id) const { return placement_.rank_of(id) == rank_; }
  static MessageKey key_of(const Instruction& message);
  Tag tag_of(const MessageKey& key) const;

  void add_optimizers();
  void run_or_throw(const StepJob& job);
  void run_later_part(const CompiledSchedule& plan);
  void compare_batches();
  /// Whether the update is left out, once the norm is known.
  bool skips_update() const;
  /// After the updates of a step.
  void end_update();
  void forward(Stage& stage, MicroBatch micro_batch);
  Stage::Forwarded run_layers(Stage& stage, const Stage::Arrivals& arrivals, MicroBatch micro_batch);
  /// Null in steps that are not counted.
  HeldBytes* counted_bytes();
  RowRange rows_of(MicroBatch micro_batch) const;
  /// Of tensor `index`, on the device.
  torch::Tensor rows_of_batch(BatchPart part, std::size_t index, RowRange rows);
  HeldBytes::Context context_of(StageId stage, MicroBatch micro_batch) const;
  /// Whether what `stage` receives, a value each, comes from another rank.
  std::vector<bool> comes_from_others(const Stage& stage) const;
  void backward(Stage& stage, const Instruction& instruction);
  void weight_grad(Stage& stage, const Instruction& instruction);
  torch::Tensor finish_forward(const Tensors& outputs, MicroBatch micro_batch);
  void post_message(const MessageKey& key, Message message);
  Message take_message(const MessageKey& key);
  /// The part of a batch that is this replica's.
  Replica share_of_batch() const;
  SequenceMemory* memory_of(const Stage& stage, MicroBatch micro_batch);
  /// Ends the world for what went wrong in `doing`, and returns what to tell whoever waits.
  std::exception_ptr failed(const std::exception_ptr& error, const std::string& doing);
  /// Whether no rank can have updated a parameter in the step that runs.
  bool is_harmless(const StepJob& job) const;
  void report_outputs();
  void keep_outputs();
  void report_result();
  void collect_result();
  void check_boundary(const Stage& stage, const Port& port, const Message& message) const;
  void reduce(Stage& stage);
  TieRoute tie_route(std::uint64_t round) const;
  ReplicaGroup replica_group(const Stage& stage, Traffic traffic, std::uint64_t round) const;
  void sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen, Tensors& gradients);
  void finish_ties();
  /// Before an evaluation or inference: the replicas take the buffers of replica 0, as the saved model has them.
  void share_buffers();
  Tensors& gradients_of(Stage& stage);
  void measure_norm();
  void hook_gradients(Stage& stage);
  void continue_gradients(Stage& stage);
  void add_to_average(const Stage& stage);
  void update(Stage& stage);

  const StagedGraph& staged_;
  Schedule placement_;  // compute instructions; read for rank_of alone
  RankSetting setting_;
  Rank rank_;
  Replica replica_;
  std::vector<std::unique_ptr<Stage>> stages_;
  OptimizerFactory make_optimizer_;
  std::multimap<StageId, std::unique_ptr<Optimizer>> optimizers_;  // several where parameters came to train later
  std::set<std::string> optimized_;                                // names of all that they know
  std::vector<GradientHook> gradient_hooks_;
  std::set<StageId> hooked_;  // whose gradients the hooks have seen in this step
  std::optional<double> average_decay_;
  std::map<StageId, std::map<std::string, torch::Tensor>> averages_;  // by parameter
  Recorder recorder_;
  Recorder unshown_{1};
  std::vector<std::unique_ptr<LayerClock>> clocks_;  // by stage, while layers are timed
  ActivationStore<Activations> activations_;
  int predicted_activations_ = 0;
  std::unique_ptr<HeldBytes> bytes_;

  // The running step.
  const StepJob* job_ = nullptr;
  Instruction current_;
  std::map<MessageKey, Message> inbox_;   // received, or handed over by a stage of this rank
  std::map<MessageKey, Message> outbox_;  // computed, not sent yet
  std::map<StageId, Tensors> gradients_;  // by stage: per parameter, summed over uses and, after REDUCE, replicas
  bool ties_pending_ = false;             // REDUCE has sent what finish_ties() will wait for
  std::optional<double> gradient_norm_;   // once the rank's first NORM has run; without the loss scale
  LossScaler scaler_;
  std::exception_ptr spent_;     // once ranks were given different batches
  bool buffers_differ_ = false;  // between the replicas: there was a training step since they were shared
  LossFactors factors_;
  double loss_ = 0;      // as it is reported
  double loss_sum_ = 0;  // before weights and reduction
  std::vector<double> metric_sums_;
  int finished_forwards_ = 0;
  std::map<std::pair<BatchPart, std::size_t>, torch::Tensor> whole_;  // of the batch: what all micro-batches see
  std::vector<Tensors> outputs_;             // by micro-batch, of an inference or where they are kept
  std::size_t forwards_left_ = 0;            // of this rank, in this step
  std::map<StageId, std::int64_t> updates_;  // by stage: how often it was updated
  bool is_updating_ = false;                 // an optimiser is in the middle of a stage
  /// What layers remember, by inference session; by stage and micro-batch.
  std::map<std::uint64_t, std::map<std::pair<StageId, MicroBatch>, SequenceMemory>> sessions_;
};

}  // namespace penstock
