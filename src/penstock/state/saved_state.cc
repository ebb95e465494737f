#include "penstock/state/saved_state.h"

#include <map>
#include <set>
#include <span>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/checkpoint/safetensors.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock::state {
namespace {

constexpr const char* scaler_state = "loss_scaler";
constexpr const char* rate_state = "learning_rate";

/// Groups of micro-batches whose weight gradients one product computes. Those of fused and stream follow from m.
std::string grouping_of(const Schedule& schedule) {
  const WeightGradients mode = weight_gradients_of(schedule);
  if (mode != WeightGradients::grouped) return to_string(mode);
  std::map<StageId, std::string> by_stage;
  for (const auto& order : schedule.orders)
    for (const Instruction& instruction : order)
      if (instruction.op() == Op::weight_grad) by_stage[instruction.stage()] += to_string(instruction) + " ";
  std::string text;
  for (const auto& [stage, groups] : by_stage) text += groups;
  return say(to_string(mode), " ", hash_digits(text_hash(text)));
}

constexpr std::string_view average_slot = "average";

/// "layer1.weight" and "momentum" of "layer1.weight/momentum".
struct SlotName {
  std::string parameter, slot;

  explicit SlotName(const std::string& name) : parameter(name.substr(0, name.rfind('/'))) {
    if (parameter.size() < name.size()) slot = name.substr(parameter.size() + 1);
  }
};

torch::Tensor read_tensor(const Checkpoint& checkpoint, const StoredTensor& stored) {
  const TensorRecord& record = checkpoint.record(stored);
  torch::Tensor tensor = torch::empty(record.shape, scalar_type_of(record.type, record.name));
  checkpoint.read(stored, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  return tensor;
}

/// Directly into the memory of `tensor` where it is as in the file.
void read_into(torch::Tensor tensor, const Checkpoint& checkpoint, const StoredTensor& stored) {
  if (tensor.is_cpu() && tensor.is_contiguous())
    checkpoint.read(stored, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  else
    tensor.copy_(read_tensor(checkpoint, stored));
}

/// Whether the value of a frozen parameter was not stored.
bool is_left_out(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.frozen() && checkpoint.frozen()->contains(name) && !checkpoint.find(FileKind::model, name);
}

StoredTensor stored_value(const Checkpoint& checkpoint, const std::string& name) {
  const auto stored = checkpoint.find(FileKind::model, name);
  require<InternalError>(stored.has_value(), "'", name, "' is restored, and the checkpoint does not have it");
  return *stored;
}

/// The optimiser's state and the averages of `parameters`, by name.
std::map<std::string, StoredTensor> stored_slots(const Checkpoint& checkpoint,
                                                 const std::set<std::string>& parameters) {
  std::map<std::string, StoredTensor> slots;
  for (const FileRecord& file : checkpoint.manifest().files)
    for (const TensorRecord& tensor : file.tensors)
      if (file.kind == FileKind::optimizer && parameters.contains(SlotName(tensor.name).parameter))
        slots[tensor.name] = *checkpoint.find(FileKind::optimizer, tensor.name);
  return slots;
}

std::set<std::string> parameters_of(const rank::Stage& stage) {
  std::set<std::string> parameters;
  for (const rank::Stage::Held& held : stage.state())
    if (!held.is_buffer()) parameters.insert(held.name);
  return parameters;
}

}  // namespace

BitSettings bit_settings(const PipelineOptions& options, const World& world, const Schedule& schedule) {
  return {.micro_batches = options.micro_batches,
          .replicas = world.replicas(),
          .threads = world.threads(),
          .kernels = kernels::kernels_from(options.kernels, options.kernel_selection)->fingerprint(),
          .precision = to_string(options.precision),
          .grouping = grouping_of(schedule)};
}

void add_loss_scaler(States& states, const rank::LossScaler& scaler) {
  if (!scaler.is_dynamic()) return;
  const rank::LossScaler::State state = scaler.state();
  states[scaler_state] = {{"scale", state.scale}, {"good_steps", std::int64_t{state.good_steps}}};
}

std::optional<rank::LossScaler::State> loss_scaler_in(const States& states) {
  const auto found = states.find(scaler_state);
  if (found == states.end()) return std::nullopt;
  return rank::LossScaler::State{number_in(found->second, "scale"),
                                 static_cast<int>(whole_in(found->second, "good_steps"))};
}

void add_learning_rate(States& states, std::optional<double> rate) {
  if (rate) states[rate_state] = {{"rate", *rate}};
}

std::optional<double> learning_rate_in(const States& states) {
  const auto found = states.find(rate_state);
  if (found == states.end()) return std::nullopt;
  return number_in(found->second, "rate");
}

Checksum checksum_of(const torch::Tensor& value) {
  const torch::Tensor on_host = value.detach().to(torch::kCPU).contiguous();
  return penstock::checksum_of(std::span(static_cast<const std::byte*>(on_host.const_data_ptr()), on_host.nbytes()));
}

OwnedTensors::OwnedTensors(rank::RankRunner& runner, std::uint64_t round, bool trained_only) {
  tensors_.owner = runner.context().pipeline_rank().value();
  tensors_.ranks = runner.context().stages;
  for (const auto& stage : runner.stages()) {
    const OptimizerState state = runner.updater().optimizer_state(*stage, round);
    if (runner.context().replica() != Replica(0)) continue;
    std::set<std::string> owned;
    for (const rank::Stage::Held& held : stage->state()) {
      if (!held.is_owned_by(stage->id())) continue;
      owned.insert(held.name);
      const bool is_frozen = !held.is_buffer() && !held.value.requires_grad();
      if (!held.is_buffer() && !is_frozen) tensors_.trained.insert(held.name);
      const bool is_left_out = is_frozen && trained_only;
      if (is_frozen) tensors_.frozen[held.name] = is_left_out ? std::optional(checksum_of(held.value)) : std::nullopt;
      if (!is_left_out) add(tensors_.model, held.name, held.value);
    }
    const auto add_slot = [&](const std::string& name, const torch::Tensor& value) {
      if (owned.contains(SlotName(name).parameter)) add(tensors_.optimizer, name, value);
    };
    for (const auto& [name, value] : state) add_slot(name, value);
    for (const auto& [name, value] : runner.updater().average().of(stage->id()))
      add_slot(say(name, "/", average_slot), value);
  }
}

void OwnedTensors::add(std::vector<TensorBytes>& list, const std::string& name, const torch::Tensor& tensor) {
  const torch::Tensor& kept = memory_.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
  list.push_back({name,
                  tensor_type_of(kept.scalar_type(), name),
                  kept.sizes().vec(),
                  {static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()}});
}

void require_undamaged(rank::RankRunner& runner, const Checkpoint& checkpoint) {
  for (const auto& stage : runner.stages()) {
    for (const rank::Stage::Held& held : stage->state())
      if (!is_left_out(checkpoint, held.name)) checkpoint.check(stored_value(checkpoint, held.name));
    for (const auto& [name, stored] : stored_slots(checkpoint, parameters_of(*stage))) checkpoint.check(stored);
  }
}

void restore(rank::RankRunner& runner, const Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  if (const auto& frozen = checkpoint.frozen())
    runner.set_trainable([&](const std::string& name) { return !frozen->contains(name); });
  for (const auto& stage : runner.stages()) {
    for (const rank::Stage::Held& held : stage->state())
      if (!is_left_out(checkpoint, held.name)) read_into(held.value, checkpoint, stored_value(checkpoint, held.name));
    OptimizerState slots;
    for (const auto& [name, stored] : stored_slots(checkpoint, parameters_of(*stage)))
      slots[name] = read_tensor(checkpoint, stored);
    std::map<std::string, torch::Tensor> averages;
    for (auto slot = slots.begin(); slot != slots.end();) {
      const SlotName name(slot->first);
      if (name.slot == average_slot) averages[name.parameter] = slot->second;
      slot = name.slot == average_slot ? slots.erase(slot) : std::next(slot);
    }
    runner.updater().load_optimizer_state(*stage, slots);
    runner.updater().average().load(*stage, averages);
  }
}

}  // namespace penstock::state
