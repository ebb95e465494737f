#include "penstock/rank/step_executor.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/rank/batch.h"
#include "penstock/rank/job_results.h"
#include "penstock/transport/device_hand_over.h"

namespace penstock::rank {

BoundaryMessages::BoundaryMessages(const StagePlacement& placement, const Graph& graph, Setting setting)
    : placement_(placement), graph_(graph), setting_(std::move(setting)) {}

void BoundaryMessages::clear() {
  inbox_.clear();
  outbox_.clear();
}

Tag BoundaryMessages::tag_of(Traffic traffic, Link link, MicroBatch micro_batch) const {
  return {placement_.pipeline(), traffic, step_, link.from.value(), link.to.value(), micro_batch.value()};
}

// Gradients travel against their link's direction, so that the reader of the values sends them.
Tag BoundaryMessages::tag_of(const Instruction& message) const {
  const bool is_forward = message.op() == Op::send_forward || message.op() == Op::recv_forward;
  const bool by_producer = message.op() == Op::send_forward || message.op() == Op::recv_backward;
  const Link link = by_producer ? Link{message.stage(), message.peer()} : Link{message.peer(), message.stage()};
  return tag_of(is_forward ? Traffic::forward : Traffic::backward, link, message.micro_batch());
}

Arrival BoundaryMessages::receive(const Instruction& instruction) {
  const Tag tag = tag_of(instruction);
  Message message =
      placement_.endpoint().receive(placement_.holder_of(instruction.peer()), tag, to_string(instruction));
  const Arrival arrival{message.arrived_ns, message.transit_ns()};
  for (Payload& payload : message.payloads)
    payload.tensor = from_host_.receive_from_host(payload.tensor, setting_.device);
  inbox_[tag] = std::move(message);
  return arrival;
}

void BoundaryMessages::send(const Instruction& instruction) {
  const Tag tag = tag_of(instruction);
  auto node = outbox_.extract(tag);
  require<InternalError>(!node.empty(), to_string(instruction), " has nothing to send");
  placement_.endpoint().send(placement_.holder_of(instruction.peer()), tag, std::move(node.mapped()));
}

void BoundaryMessages::put(const Tag& tag, StageId reader, Message message) {
  (placement_.is_local(reader) ? inbox_ : outbox_)[tag] = std::move(message);
}

Message BoundaryMessages::take(const Tag& tag) {
  auto node = inbox_.extract(tag);
  require<InternalError>(!node.empty(), "the message of micro-batch ", tag.micro_batch, " from stage ", tag.from_stage,
                         " to stage ", tag.to_stage, " is not there");
  return std::move(node.mapped());
}

std::vector<Message> BoundaryMessages::take_values(const StagePart& stage, MicroBatch micro_batch) {
  std::vector<Message> messages;
  for (const Port& port : stage.receives)
    messages.push_back(take(tag_of(Traffic::forward, {port.peer, stage.id}, micro_batch)));
  return messages;
}

void BoundaryMessages::put_values(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages) {
  for (std::size_t p = 0; p < messages.size(); ++p) {
    const Port& port = stage.sends[p];
    if (setting_.shape) require_shape(stage, port, messages[p]);
    put(tag_of(Traffic::forward, {stage.id, port.peer}, micro_batch), port.peer, std::move(messages[p]));
  }
}

std::vector<Message> BoundaryMessages::take_gradients(const StagePart& stage, MicroBatch micro_batch) {
  std::vector<Message> messages;
  for (const Port& port : stage.sends) {
    const Tag tag = tag_of(Traffic::backward, {stage.id, port.peer}, micro_batch);
    messages.push_back(inbox_.contains(tag) ? take(tag) : Message{std::vector<Payload>(port.values.size()), 0, 0});
  }
  return messages;
}

void BoundaryMessages::put_gradients(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages) {
  for (std::size_t p = 0; p < messages.size(); ++p) {
    const StageId producer = stage.receives[p].peer;
    put(tag_of(Traffic::backward, {producer, stage.id}, micro_batch), producer, std::move(messages[p]));
  }
}

void BoundaryMessages::require_shape(const StagePart& stage, const Port& port, const Message& message) const {
  const at::IntArrayRef wanted(*setting_.shape);
  for (std::size_t i = 0; i < port.values.size(); ++i) {
    const torch::Tensor& value = message.payloads[i].tensor;
    require<ScheduleError>(!value.defined() || value.sizes() == wanted, "stage ", stage.id.value(), " sends '",
                           graph_.name_of(port.values[i]), "' of shape ", value.sizes(), " to stage ",
                           port.peer.value(), ", but the boundary shape is ", wanted,
                           ": correct the shape, or omit it if micro-batches differ");
  }
}

namespace {

/// Orders the batch's tensors on devices before the work of this thread.
void take_over_batch(const StepJob& job) {
  job.ready->block_current_streams();
  for (const Tensors* tensors : {&job.inputs, &job.targets})
    for (const torch::Tensor& tensor : *tensors)
      if (tensor.defined() && !tensor.is_cpu())
        transport::record_use(tensor, transport::current_stream(tensor.device()));
}

}  // namespace

StepExecutor::StepExecutor(const StepExecutorParts& parts)
    : parts_(parts),
      rows_(parts.placement, parts.setting.axes, parts.setting.device),
      messages_(parts.placement, parts.graph, {parts.setting.options->boundary_shape, parts.setting.device}),
      results_(parts.placement, parts.setting) {
  if (parts.device.stream()) marks_.emplace(*parts.device.stream());
  if (parts.setting.options->count_bytes) bytes_ = std::make_unique<HeldBytes>();
}

void StepExecutor::begin(const StepJob& job) {
  job_ = &job;
  if (job.is_later_part()) return;
  rows_.begin(job);
  if (job.ready) take_over_batch(job);
  if (job.training && !parts_.placement.context().is_alone &&
      is_compared(job.training_step, parts_.setting.options->compare_batches))
    rows_.compare(parts_.stages);
  const int bound = compiled().peak_activations[own_list()];
  activations_.set_bound(bound);
  predicted_activations_ = std::max(predicted_activations_, bound);
  forwards_left_ = parts_.stages.size() * static_cast<std::size_t>(compiled().schedule.micro_batches);
  messages_.begin_step(job.step);
  for (const auto& stage : parts_.stages) stage->set_training(job.training);
  results_.begin(job);
}

void StepExecutor::run_on_device(Recorder& recorder) {
  struct MarkedSpans {
    std::vector<Span> spans;
    void note(const Span& span) { spans.push_back(span); }
  } marked;
  execute(program(), *this, marked, [this] { return marks_->mark(); });
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
    case Op::forward: break;
    case Op::backward:
    case Op::input_grad:
    case Op::weight_grad: return add_gradients(stage(instruction.stage()), instruction);
    case Op::send_forward:
    case Op::send_backward: return messages_.send(instruction);
    case Op::reduce: return parts_.reducer.reduce(stage(instruction.stage()), parts_.updater.needed_rows());
    case Op::step:
      // All losses must be finite before an update; only this checks them if no gradients come from later stages.
      if (job_->refuses_invalid_loss && forwards_left_ == 0) results_.collect();
      return parts_.updater.update(stage(instruction.stage()));
    case Op::norm: return parts_.updater.measure_norm();
    case Op::recv_forward:
    case Op::recv_backward: throw InternalError(say("the runtime cannot execute ", to_string(instruction)));
  }
  Stage& stage = this->stage(instruction.stage());
  const MicroBatch micro_batch = instruction.micro_batch();
  const RowRange rows = rows_.of(micro_batch);
  const HeldBytes::Watch watch(observed_bytes());
  Stage::Arrivals arrivals;
  arrivals.place = {parts_.setting.options->seed, job_->training_step, rows.begin, {}, rows.size()};
  arrivals.micro_batch = micro_batch;
  arrivals.inputs = rows_.inputs(stage.part(), micro_batch);
  arrivals.received = messages_.take_values(stage.part(), micro_batch);
  try {
    Stage::Forwarded done;
    {
      const layers::AutocastGuard autocast(
          layers::autocast_for(parts_.setting.options->precision, parts_.setting.device.type()));
      const SequenceMemoryGuard memory(memory_of(stage, micro_batch));
      done = stage.forward(arrivals, [&](const Tensors& outputs) { return results_.add(outputs, rows_, micro_batch); });
    }
    arrivals.inputs.clear();  // frees inputs that no layer has saved
    if (HeldBytes* bytes = counted_bytes())
      bytes->forward_done(context_of(stage, micro_batch), done.activations, done.sends, comes_from_others(stage));
    messages_.put_values(stage.part(), micro_batch, std::move(done.sends));
    if (job_->training) activations_.put(stage.id(), micro_batch, std::move(done.activations));
    if (stage.id() == parts_.placement.last_stage()) results_.end_forward();
  } catch (NonFiniteLoss& error) {
    // A device's losses are read later than they are computed: the error belongs to the F that computed its loss.
    current_ = Instruction::compute(Op::forward, stage.id(), error.micro_batch());
    error.cause = cause_of({stage, parts_.graph, parts_.setting, *job_, rows_, arrivals}, error.micro_batch());
    throw;
  }
  --forwards_left_;
}

Stage& StepExecutor::stage(StageId id) const {
  for (const auto& stage : parts_.stages)
    if (stage->id() == id) return *stage;
  throw InternalError(say("rank ", parts_.placement.rank().value(), " does not own stage ", id.value()));
}

SequenceMemory* StepExecutor::memory_of(const Stage& stage, MicroBatch micro_batch) {
  if (!job_->inference || !job_->inference->session) return nullptr;
  SequenceMemory& memory = sessions_[*job_->inference->session][{stage.id(), micro_batch}];
  memory.wants_last_position = job_->inference->last_position;
  return &memory;
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

// B or I.
void StepExecutor::backward(Stage& stage, const Instruction& instruction) {
  const MicroBatch micro_batch = instruction.micro_batch();
  OutputGradients from{messages_.take_gradients(stage.part(), micro_batch), {}};
  Activations& activations = activations_.at(stage.id(), micro_batch);
  if (activations.loss.defined())
    from.loss = torch::full_like(
        activations.loss, results_.gradient_factor(micro_batch) * job_->shares.newest * parts_.updater.loss_scale());
  const Tensors received = activations.received;  // freed after the watch
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

// Gradients travel to other ranks while this one goes on, and its REDUCE finds theirs.
void StepExecutor::add_gradients(Stage& stage, const Instruction& instruction) {
  const Schedule& schedule = compiled().schedule;
  const Order& order = schedule.orders[own_list()];
  const Instruction reduce = Instruction::step_wide(Op::reduce, stage.id());
  const bool are_sent =
      schedule.completes_gradients(instruction) && std::find(order.rbegin(), order.rend(), reduce) != order.rend();
  if (are_sent) parts_.reducer.send_as_completed(stage, parts_.updater.needed_rows());
  if (instruction.op() == Op::weight_grad)
    weight_grad(stage, instruction);
  else
    backward(stage, instruction);
  if (are_sent) parts_.reducer.send(stage);
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

}  // namespace penstock::rank
