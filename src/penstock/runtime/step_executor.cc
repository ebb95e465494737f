#include "penstock/runtime/step_executor.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/layers/autocast.h"
#include "penstock/runtime/compare_batches.h"
#include "penstock/runtime/position.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/world/reason.h"

namespace penstock {

namespace {

/// Orders the batch's tensors on devices before the work of this thread.
void take_over_batch(const StepJob& job) {
  job.ready->block_current_streams();
  for (const Tensors* tensors : {&job.inputs, &job.targets})
    for (const torch::Tensor& tensor : *tensors)
      if (tensor.defined() && !tensor.is_cpu()) record_use(tensor, current_stream(tensor.device()));
}

}  // namespace

StepExecutor::StepExecutor(const StepExecutorParts& parts)
    : parts_(parts),
      rows_(parts.placement, parts.setting.axes, parts.setting.device),
      messages_(parts.placement, parts.graph, {parts.setting.boundary_shape, parts.setting.device}),
      results_(parts.placement, parts.setting) {
  if (parts.device.stream()) marks_.emplace(*parts.device.stream());
  if (parts.setting.count_bytes) bytes_ = std::make_unique<HeldBytes>();
}

void StepExecutor::begin(const StepJob& job) {
  job_ = &job;
  rows_.begin(job);
  if (job.ready) take_over_batch(job);
  if (job.training && !parts_.placement.context().is_alone &&
      is_compared(job.training_step, parts_.setting.compare_batches))
    rows_.compare(parts_.stages);
  const int bound = compiled().peak_activations[own_list()];
  activations_.set_bound(bound);
  predicted_activations_ = std::max(predicted_activations_, bound);
  forwards_left_ = parts_.stages.size() * static_cast<std::size_t>(compiled().schedule.micro_batches);
  messages_.begin_step(job.step);
  for (const auto& stage : parts_.stages) stage->set_training(job.training);
  results_.begin(job);
}

void StepExecutor::run(const StepJob& job, Recorder& recorder, StepGraph* graph) {
  job_ = &job;
  graph_ = graph;
  const torch::AutoGradMode with_graph(job.training);
  recorder.begin_step(job.step);
  if (marks_)
    run_on_device(recorder);
  else
    execute(compiled().programs[own_list()], *this, recorder);
  recorder.end_step();
}

void StepExecutor::run_on_device(Recorder& recorder) {
  struct MarkedSpans {
    std::vector<Span> spans;
    void note(const Span& span) { spans.push_back(span); }
  } marked;
  const auto clock = [this] { return marks_->mark(); };
  std::span<const Program::Action> actions = compiled().programs[own_list()].actions();
  std::int64_t begin = clock();
  if (graph_ && !graph_->is_due()) graph_->draws.keys = 0;
  if (graph_ && graph_->is_due()) {
    const auto update = std::ranges::find_if(actions, [](const auto& a) { return is_step_wide(a.instruction.op()); });
    const auto captured = actions.first(static_cast<std::size_t>(update - actions.begin()));
    if (!captured.empty()) run_graph(captured);
    begin = clock();
    actions = actions.subspan(captured.size());
  }
  execute(compiled().programs[own_list()], actions, *this, marked, begin, clock);
  if (graph_) ++graph_->executed;
  parts_.placement.endpoint().confirm_step();
  results_.begin_read_back();
  parts_.updater.begin_read_back();
  parts_.placement.endpoint().await_stream(*parts_.device.stream(), say("the end of step ", job_->step));
  const std::vector<std::int64_t> times = marks_->times();
  results_.end_read_back();
  parts_.updater.end_read_back();
  parts_.clocks.read_marks();
  for (Span& span : marked.spans) {
    span.begin_ns = times[static_cast<std::size_t>(span.begin_ns)];
    span.end_ns = times[static_cast<std::size_t>(span.end_ns)];
    recorder.note(span);
  }
}

// What is not on the device is done before the replay, and before the capture, which executes nothing.
void StepExecutor::run_graph(std::span<const Program::Action> actions) {
  // Unlike a list of instructions, a graph would come to its end, with numbers that nobody has sent.
  if (const auto reason = parts_.placement.endpoint().aborted()) throw WorldAborted(*reason);
  begin(actions.front().instruction);
  rows_.fix(graph_->rows, parts_.stages);
  for (const auto& stage : parts_.stages) parts_.histories.of(stage->id()).before_forward(*stage, job_->training_step);
  if (graph_->graph.is_captured())
    for (const auto& stage : parts_.stages) stage->gradients().copy_to(graph_->sums_before.at(stage->id()));
  else
    capture(actions);
  parts_.placement.endpoint().repeat_capture();
  graph_->numbers.write(job_->training_step);
  graph_->graph.replay();
  for (const auto& stage : parts_.stages) stage->gradients().set_sums(graph_->sums.at(stage->id()));
  read_losses([this] { results_.set_counted(graph_->counted); });
  forwards_left_ = 0;
}

void StepExecutor::capture(std::span<const Program::Action> actions) {
  const auto fail = [](const std::exception& error) {
    throw Failure(say(reason_of(error), " (while the step was captured, when no layer, loss or function may use the ",
                      "host: leave out capture_steps (--capture-steps) where one does)"));
  };
  try {
    capture_or_throw(actions);
  } catch (const TransportError&) {
    throw;
  } catch (const Failure& error) {
    fail(error);
  } catch (const c10::Error& error) {
    fail(error);
  }
}

void StepExecutor::capture_or_throw(std::span<const Program::Action> actions) {
  if (!graph_->draws.by_torch.empty()) refuse_captured_draw(graph_->draws.by_torch);
  graph_->numbers.reserve(parts_.setting.device, graph_->draws.keys, compiled().schedule.micro_batches);
  for (const auto& stage : parts_.stages) {
    graph_->sums_before[stage->id()] = stage->gradients().sums();
    stage->gradients().compute_again();
  }
  Transport& endpoint = parts_.placement.endpoint();
  endpoint.await_stream(*parts_.device.stream(), "the memory of a graph");  // to be given back by the device
  is_capturing_ = true;
  graph_->graph.capture([&] {
    struct NoSpans {
      void note(const Span&) {}
    } untimed;
    std::int64_t begin = 0;
    try {
      endpoint.begin_capture();
      execute(compiled().programs[own_list()], actions, *this, untimed, begin, [] { return std::int64_t{0}; });
      endpoint.end_capture();
    } catch (...) {
      endpoint.abandon_capture();
      throw;
    }
  });
  is_capturing_ = false;
  for (const auto& stage : parts_.stages) graph_->sums[stage->id()] = stage->gradients().sums();
  graph_->counted = results_.counted();
}

// The time of arrival is one of the host, which is ahead of the device.
Arrival StepExecutor::receive(const Instruction& instruction) {
  Arrival arrival = messages_.receive(instruction);
  if (marks_) arrival.arrived_ns = 0;
  return arrival;
}

void StepExecutor::end() {
  if (HeldBytes* bytes = counted_bytes())
    bytes->predict(compiled().schedule.orders[own_list()], [this](MicroBatch i) { return rows_.of(i).size(); });
  results_.collect();
}

void StepExecutor::clear(bool failed) {
  job_ = nullptr;
  graph_ = nullptr;
  is_capturing_ = false;
  activations_.clear();
  messages_.clear();
  rows_.clear();
  results_.clear();
  if (failed && bytes_) bytes_->clear();
}

void StepExecutor::begin(const Instruction& instruction) {
  current_ = instruction;
  Position position = position_of(instruction);
  position.step = static_cast<std::int64_t>(job_->step);
  parts_.placement.endpoint().report_progress(position);
}

void StepExecutor::perform(const Instruction& instruction) {
  switch (instruction.op()) {
    case Op::forward:
      forward(stage(instruction.stage()), instruction.micro_batch());
      if (!is_capturing_) --forwards_left_;
      return;
    case Op::backward:
    case Op::input_grad: return backward(stage(instruction.stage()), instruction);
    case Op::weight_grad: return weight_grad(stage(instruction.stage()), instruction);
    case Op::send_forward:
    case Op::send_backward: return messages_.send(instruction);
    case Op::reduce: return parts_.reducer.reduce(stage(instruction.stage()));
    case Op::step:
      // No update before all losses are known to be finite: without gradients from later stages only this says so.
      if (job_->refuses_invalid_loss && forwards_left_ == 0) results_.collect();
      return parts_.updater.update(stage(instruction.stage()));
    case Op::norm: return parts_.updater.measure_norm();
    case Op::recv_forward:
    case Op::recv_backward: break;
  }
  throw InternalError(say("the runtime cannot execute ", to_string(instruction)));
}

Stage& StepExecutor::stage(StageId id) const {
  for (const auto& stage : parts_.stages)
    if (stage->id() == id) return *stage;
  throw InternalError(say("rank ", parts_.placement.rank().value(), " does not own stage ", id.value()));
}

void StepExecutor::forward(Stage& stage, MicroBatch micro_batch) {
  const RowRange rows = rows_.of(micro_batch);
  if (job_->training) parts_.histories.of(stage.id()).before_forward(stage, job_->training_step);
  const HeldBytes::Watch watch(observed_bytes());
  Stage::Arrivals arrivals;
  arrivals.place = {parts_.setting.seed, job_->training_step, rows.begin, {}, rows.size()};
  if (is_capturing_)
    arrivals.place.numbers = &graph_->numbers;
  else if (graph_)
    arrivals.place.draws = &graph_->draws;
  arrivals.micro_batch = micro_batch;
  arrivals.inputs = rows_.inputs(stage.part(), micro_batch);
  arrivals.received = messages_.take_values(stage.part(), micro_batch);

  Stage::Forwarded done = run_layers(stage, arrivals, micro_batch);
  arrivals.inputs.clear();  // frees inputs that no layer has saved
  if (HeldBytes* bytes = counted_bytes())
    bytes->forward_done(context_of(stage, micro_batch), done.activations, done.sends, comes_from_others(stage));
  messages_.put_values(stage.part(), micro_batch, std::move(done.sends));
  if (job_->training) activations_.put(stage.id(), micro_batch, std::move(done.activations));
  // In a capture there is no number to wait for.
  if (stage.id() == parts_.placement.last_stage() && !is_capturing_) read_losses([this] { results_.end_forward(); });
}

void StepExecutor::read_losses(const std::function<void()>& read) {
  try {
    read();
  } catch (const NonFiniteLoss& error) {
    current_ = Instruction::compute(Op::forward, parts_.placement.last_stage(), error.micro_batch());
    throw;
  }
}

Stage::Forwarded StepExecutor::run_layers(Stage& stage, const Stage::Arrivals& arrivals, MicroBatch micro_batch) {
  const AutocastGuard autocast(autocast_for(parts_.setting.precision, parts_.setting.device.type()));
  const SequenceMemoryGuard memory(memory_of(stage, micro_batch));
  return stage.forward(arrivals, [&](const Tensors& outputs) { return results_.add(outputs, rows_, micro_batch); });
}

SequenceMemory* StepExecutor::memory_of(const Stage& stage, MicroBatch micro_batch) {
  if (!job_->inference || !job_->inference->session) return nullptr;
  return &sessions_[*job_->inference->session][{stage.id(), micro_batch}];
}

// The first step is observed, too: LibTorch warns where memory of a later step is freed whose allocation was not.
HeldBytes* StepExecutor::observed_bytes() const { return job_->training ? bytes_.get() : nullptr; }

// The first training step is not counted, because only it copies values to detect in-place changes.
HeldBytes* StepExecutor::counted_bytes() const { return job_->training_step > 0 ? observed_bytes() : nullptr; }

HeldBytes::Context StepExecutor::context_of(const Stage& stage, MicroBatch micro_batch) const {
  return {stage.id(), micro_batch, rows_.of(micro_batch).size()};
}

std::vector<bool> StepExecutor::comes_from_others(const Stage& stage) const {
  std::vector<bool> from_others;
  for (const Port& port : stage.part().receives)
    from_others.insert(from_others.end(), port.values.size(), !parts_.placement.is_local(port.peer));
  return from_others;
}

torch::Tensor StepExecutor::gradient_of_loss(const torch::Tensor& loss, MicroBatch micro_batch) {
  const auto factor = [this, micro_batch] {
    return results_.gradient_factor(micro_batch) * job_->shares.newest * parts_.updater.loss_scale();
  };
  if (!is_capturing_) return torch::full_like(loss, factor());
  return torch::empty_like(loss).copy_(graph_->numbers.real([factor](std::uint64_t) { return factor(); }));
}

// B or I.
void StepExecutor::backward(Stage& stage, const Instruction& instruction) {
  const MicroBatch micro_batch = instruction.micro_batch();
  OutputGradients from{messages_.take_gradients(stage.part(), micro_batch), {}};
  Activations& activations = activations_.at(stage.id(), micro_batch);
  if (activations.loss.defined()) from.loss = gradient_of_loss(activations.loss, micro_batch);
  const HeldBytes::Watch watch(observed_bytes());
  std::vector<Message> sends;
  if (instruction.op() == Op::input_grad) {
    sends = stage.input_grad(activations, from);
    if (HeldBytes* bytes = counted_bytes()) bytes->input_grad_done(context_of(stage, micro_batch), activations);
  } else {
    sends = stage.backward(activations_.take(stage.id(), micro_batch), from);
    if (HeldBytes* bytes = counted_bytes()) bytes->released(context_of(stage, micro_batch));
  }
  if (HeldBytes* bytes = counted_bytes())
    bytes->gradients_wait(context_of(stage, micro_batch), stage.gradients().waiting_bytes());
  messages_.put_gradients(stage.part(), micro_batch, std::move(sends));
}

void StepExecutor::weight_grad(Stage& stage, const Instruction& instruction) {
  const HeldBytes::Watch watch(observed_bytes());
  std::vector<Activations> group;
  for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
    group.push_back(activations_.take(stage.id(), i));
  stage.weight_grad(std::move(group));
  if (HeldBytes* bytes = counted_bytes())
    for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
      bytes->released(context_of(stage, i));
}

}  // namespace penstock
