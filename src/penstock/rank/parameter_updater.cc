#include "penstock/rank/parameter_updater.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/rank/shared_parameters.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/records.h"

namespace penstock::rank {

namespace {

/// Below the largest scale, scaled losses and gradients stay finite in fp32; a scale below the smallest is useless.
constexpr double largest_scale = 16777216, smallest_scale = 1 / largest_scale;

/// "layer1.weight" of "layer1.weight/momentum".
std::string parameter_of(const std::string& slot) { return slot.substr(0, slot.rfind('/')); }

}  // namespace

LossScaler::LossScaler(Precision precision, const LossScaling& scaling)
    : scaling_(scaling), is_dynamic_(precision == Precision::fp16) {
  if (is_dynamic_) scale_ = scaling.initial;
}

void LossScaler::load(const State& state) {
  if (!is_dynamic_) return;
  scale_ = state.scale;
  good_steps_ = state.good_steps;
}

void LossScaler::end_step(bool is_finite) {
  if (!is_dynamic_) return;
  if (!is_finite) {
    scale_ = std::max(scale_ / 2, smallest_scale);
    good_steps_ = 0;
  } else if (++good_steps_ >= scaling_.growth_steps) {
    scale_ = std::min(scale_ * 2, largest_scale);
    good_steps_ = 0;
  }
}

void require_loss_scaling(const LossScaling& scaling) {
  int exponent = 0;
  const bool is_power =
      scaling.initial > 0 && std::isfinite(scaling.initial) && std::frexp(scaling.initial, &exponent) == 0.5;
  require<ConfigError>(is_power && scaling.initial >= smallest_scale && scaling.initial <= largest_scale,
                       "the loss scale begins at ", scaling.initial, ": give a power of two from 2^-24 to 2^24");
  require<ConfigError>(scaling.growth_steps >= 1, "the loss scale grows after ", scaling.growth_steps,
                       " steps: give at least 1");
}

void ParameterAverages::keep(double decay) {
  const torch::NoGradGuard no_grad;
  decay_ = decay;
  averages_.clear();
  for (const auto& stage : stages_)
    for (const layers::TrainedParameter& parameter : stage->gradients().parameters())
      averages_[stage->id()][parameter.name] = parameter.value.detach().clone();
}

void ParameterAverages::add(const Stage& stage) {
  if (!decay_) return;
  const torch::NoGradGuard no_grad;
  auto& averages = averages_[stage.id()];
  for (const layers::TrainedParameter& parameter : stage.gradients().parameters()) {
    const auto [average, is_new] = averages.try_emplace(parameter.name);
    if (is_new)  // it was frozen when averaging began
      average->second = parameter.value.detach().clone();
    else
      average->second.lerp_(parameter.value, 1 - *decay_);
  }
}

// A frozen parameter may have an average, of the time before it was frozen.
void ParameterAverages::load(const Stage& stage, const std::map<std::string, torch::Tensor>& averages) {
  if (!decay_) return;
  const torch::NoGradGuard no_grad;
  auto& own = averages_[stage.id()];
  own.clear();
  for (const Stage::Held& held : stage.state()) {
    if (held.is_buffer()) continue;
    const auto found = averages.find(held.name);
    if (found == averages.end() && !held.value.requires_grad()) continue;
    const torch::Tensor& value = found == averages.end() ? held.value : found->second;
    own[held.name] = value.detach().to(held.value.device(), false, /*copy=*/true);
  }
}

void ParameterAverages::swap() {
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    auto& averages = averages_[stage->id()];
    for (const Stage::Held& held : stage->state()) {
      const auto average = averages.find(held.name);
      if (average == averages.end()) continue;
      const torch::Tensor value = held.value.detach().clone();
      torch::Tensor(held.value).copy_(average->second);
      average->second = value;
    }
    stage->gradients().begin_step();  // invalidates the casts of weights, which are cached for one step
  }
}

void require_clipping(const PipelineOptions& options) {
  const double norm = options.clip_norm.value_or(1);
  require<ConfigError>(norm > 0, "gradients clipped to a norm of ", norm, ": pass a positive number");
}

void require_zero(const PipelineOptions& options, int replicas) {
  require<ConfigError>(options.zero == 0 || options.zero == 1, "zero is ", options.zero,
                       ": set 0, or 1 to share the optimiser's state among replicas");
  require<ConfigError>(options.zero == 0 || replicas > 1, "--zero 1 shares the optimiser's state among replicas, and ",
                       "there is ", replicas, ": pass --replicas 2 or more, or --zero 0");
}

ParameterUpdater::ParameterUpdater(const StagePlacement& placement, const RankStages& stages, GradientReducer& reducer,
                                   const RankSetting& setting)
    : placement_(placement),
      stages_(stages),
      reducer_(reducer),
      device_(setting.device),
      options_(*setting.options),
      scaler_(options_.precision, options_.loss_scaling),
      average_(stages) {}

void ParameterUpdater::make_optimizers(const OptimizerFactory& factory) {
  make_optimizer_ = factory;
  optimizers_.clear();
  optimized_.clear();
  add_optimizers();
}

// Every stage that uses a tied parameter steps its own copy.
void ParameterUpdater::add_optimizers() {
  if (!make_optimizer_) return;
  for (const auto& stage : stages_) {
    std::vector<NamedParameter> parameters;
    for (const auto& [name, value, all_uses, uses] : stage->gradients().parameters()) {
      const auto [known, is_new] = optimized_.try_emplace({stage->id(), name});
      if (!is_new) continue;
      known->second = rows_of(name, value, placement_.replica()).in(value);
      if (known->second.defined()) parameters.push_back({name, known->second});
    }
    if (!parameters.empty()) add_optimizer(stage->id(), parameters);
  }
}

void ParameterUpdater::add_optimizer(StageId stage, const std::vector<NamedParameter>& parameters) {
  std::unique_ptr<Optimizer> made = make_optimizer_(parameters);
  const std::optional<double> rate = made->learning_rate();
  optimizers_.emplace(stage, Made{std::move(made), rate});
}

ReplicaRows ParameterUpdater::rows_of(const std::string& name, const torch::Tensor& parameter, Replica replica) const {
  const int sharers = shares_state() ? placement_.context().replicas : 1;
  return rank::rows_of(name, parameter, {shares_state() ? replica : Replica(0), sharers});
}

OptimizerState ParameterUpdater::own_state(StageId stage) const {
  OptimizerState all;
  const auto [first, end] = optimizers_.equal_range(stage);
  for (auto made = first; made != end; ++made) all.merge(made->second.optimizer->state());
  return all;
}

std::int64_t ParameterUpdater::state_bytes() const {
  std::int64_t bytes = 0;
  try {
    for (const auto& stage : stages_)
      for (const auto& [name, value] : own_state(stage->id())) bytes += static_cast<std::int64_t>(value.nbytes());
  } catch (const ConfigError&) {
    return 0;
  }
  return bytes;
}

OptimizerState ParameterUpdater::optimizer_state(const Stage& stage, std::uint64_t round) const {
  const torch::NoGradGuard no_grad;
  const bool is_first = placement_.replica() == Replica(0);
  if (!shares_state()) return is_first ? own_state(stage.id()) : OptimizerState();
  const ReplicaGroup group{placement_, stage.id(), Traffic::control, round};
  const OptimizerState own = own_state(stage.id());
  if (!is_first) {
    std::string names;
    for (const auto& [name, value] : own) names += name + "\n";
    Message message = transport::message_of(names);
    for (const auto& [name, value] : own) message.payloads.push_back({value.clone(), false});
    group.send(Replica(0), Phase::optimizer, std::move(message));
    return {};
  }
  OptimizerState all;
  const auto add = [&](Replica from, const std::string& name, const torch::Tensor& value) {
    const auto held = std::ranges::find(stage.state(), parameter_of(name), &Stage::Held::name);
    const ReplicaRows rows = rows_of(held->name, held->value, from);
    const bool is_cut = !rows.is_whole() && rows.in(held->value).sizes() == value.sizes();
    torch::Tensor& one = all[name];
    if (!is_cut) {  // a single number, the same on every replica
      one = value;
      return;
    }
    if (!one.defined()) one = torch::empty_like(held->value, value.options());
    rows.in(one).copy_(value);
  };
  for (const auto& [name, value] : own) add(group.own(), name, value);
  group.for_each_other([&](Replica r) {
    const Message message = group.receive(r, Phase::optimizer, "the optimiser's state of another replica");
    std::istringstream names(transport::text_in(message));
    std::size_t next = 1;
    for (std::string name; std::getline(names, name);)
      add(r, name, to_device(message.payloads[next++].tensor, device_));
  });
  return all;
}

void ParameterUpdater::load_optimizer_state(const Stage& of_stage, const OptimizerState& whole) {
  const StageId stage = of_stage.id();
  std::vector<NamedParameter> wanted;
  bool fits = true;
  OptimizerState state;  // of this replica's rows
  for (const Stage::Held& held : of_stage.state()) {
    if (held.is_buffer() || !make_optimizer_) continue;
    const ReplicaRows rows = rows_of(held.name, held.value, placement_.replica());
    bool has_state = false;
    for (auto slot = whole.lower_bound(held.name + "/"); slot != whole.end() && parameter_of(slot->first) == held.name;
         ++slot) {
      has_state = true;
      if (rows.is_empty()) continue;
      state[slot->first] = slot->second.sizes() == held.value.sizes() ? rows.in(slot->second) : slot->second;
    }
    const bool wants = held.value.requires_grad() || has_state;
    if (wants) wanted.push_back({held.name, rows.in(held.value)});
    fits = fits && wants == optimized_.contains({stage, held.name});
  }
  if (!fits) {
    optimizers_.erase(stage);
    for (const Stage::Held& held : of_stage.state()) optimized_.erase({stage, held.name});
    for (const NamedParameter& parameter : wanted) optimized_[{stage, parameter.name}] = parameter.value;
    std::erase_if(wanted, [](const NamedParameter& parameter) { return !parameter.value.defined(); });
    if (!wanted.empty()) add_optimizer(stage, wanted);
  }
  const auto [first, end] = optimizers_.equal_range(stage);
  for (auto made = first; made != end; ++made) made->second.optimizer->load_state(state);
  // What an optimiser does not keep would be lost without a word.
  const OptimizerState kept = own_state(stage);
  for (const auto& [name, value] : state)
    require<ConfigError>(kept.contains(name) || !optimized_.contains({stage, parameter_of(name)}), "the state '", name,
                         "' is stored, and the optimiser does not keep it: take the optimiser with which it was made");
}

void ParameterUpdater::reset_learning_rate() {
  for (auto& [stage, made] : optimizers_)
    if (made.rate && made.optimizer->learning_rate() != made.rate) made.optimizer->set_learning_rate(*made.rate);
}

void ParameterUpdater::begin(const StepJob& job) {
  job_ = &job;
  gradient_norm_.reset();
  norm_on_device_.reset();
  if (job.training && !job.is_later_part()) hooked_.clear();
  if (job.learning_rate)
    for (auto& [stage, made] : optimizers_) made.optimizer->set_learning_rate(*job.learning_rate);
}

ReducedRows ParameterUpdater::needed_rows() const {
  const bool needs_all = options_.clips() || scaler_.is_dynamic() || !hooks_.empty() || job_->part == StepPart::reduce;
  return shares_state() && !needs_all ? ReducedRows::own : ReducedRows::all;
}

std::vector<std::pair<std::string, torch::Tensor>> ParameterUpdater::gradients() {
  std::vector<std::pair<std::string, torch::Tensor>> named;
  for (const auto& stage : stages_) {
    const Tensors gradients = reducer_.gradients_so_far(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined())
        named.emplace_back(stage->gradients().parameters()[i].name,
                           loss_scale() == 1 ? gradients[i] : gradients[i] / loss_scale());
  }
  return named;
}

void ParameterUpdater::measure_norm() {
  if (gradient_norm_ || norm_on_device_.defined()) return;
  reducer_.finish_ties();
  for (const auto& stage : stages_) run_hooks(*stage);
  const torch::Tensor norm = reducer_.norm(device_);
  // Whether a dynamic loss scale skips the update is decided by the host.
  if (!device_.is_cpu() && scaler_.is_dynamic())
    placement_.endpoint().await_stream(transport::current_stream(device_), "the gradient norm");
  if (device_.is_cpu() || scaler_.is_dynamic())
    set_norm(norm.item<double>() / loss_scale());
  else
    norm_on_device_ = norm / loss_scale();
}

void ParameterUpdater::set_norm(double norm) {
  gradient_norm_ = norm;
  job_->state->set_gradient_norm(norm);
}

void ParameterUpdater::begin_read_back() { norm_on_device_ = to_host_later(norm_on_device_); }

void ParameterUpdater::end_read_back() {
  if (!norm_on_device_.defined()) return;
  set_norm(norm_on_device_.item<double>());
  norm_on_device_.reset();
}

void ParameterUpdater::run_hooks(const Stage& stage) {
  if (hooks_.empty() || !hooked_.insert(stage.id()).second) return;
  const torch::NoGradGuard no_grad;
  Tensors& gradients = reducer_.gradients_of(stage);
  const auto& parameters = stage.gradients().parameters();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    for (const GradientHook& hook : hooks_) {
      if (!gradients[i].defined()) continue;
      const double scale = loss_scale();  // a power of two
      torch::Tensor changed = hook(parameters[i].name, scale == 1 ? gradients[i] : gradients[i] / scale);
      if (!changed.defined()) continue;
      require<ConfigError>(changed.sizes() == gradients[i].sizes() && changed.dtype() == gradients[i].dtype(),
                           "a gradient hook made ", changed.dtype().name(), " of shape ", changed.sizes(), " of '",
                           parameters[i].name, "', whose gradient is ", gradients[i].dtype().name(), " of shape ",
                           gradients[i].sizes(), ": return a gradient of the same shape and dtype");
      gradients[i] = scale == 1 ? changed : changed * scale;
    }
}

void ParameterUpdater::update(Stage& stage) {
  reducer_.finish_ties();
  const auto& parameters = stage.gradients().parameters();
  if (parameters.empty()) return;
  run_hooks(stage);
  const Tensors gradients = reducer_.take(stage);
  if (skips_update()) return;
  const double unscale = 1 / loss_scale();  // a power of two
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, whole, all_uses, uses] = parameters[i];
    torch::Tensor value = optimized_.at({stage.id(), name});
    if (!value.defined()) continue;
    torch::Tensor gradient = rows_of(name, whole, placement_.replica()).in(gradients[i]);
    // Not in place, because local_gradients() may have returned the tensors.
    if (gradient.defined() && unscale != 1) gradient = gradient.mul(unscale);
    value.mutable_grad() = gradient.defined() ? clipped(gradient) : gradient;
  }
  const auto [first, end] = optimizers_.equal_range(stage.id());
  for (auto made = first; made != end; ++made) made->second.optimizer->step();
  // Frees the clipped or unscaled copies, whose memory is reused in the next step.
  for (const auto& parameter : parameters)
    if (torch::Tensor value = optimized_.at({stage.id(), parameter.name}); value.defined())
      value.mutable_grad().reset();
  if (shares_state()) exchange_values(stage);
  average_.add(stage);
}

void ParameterUpdater::exchange_values(const Stage& stage) const {
  const torch::NoGradGuard no_grad;
  const auto& parameters = stage.gradients().parameters();
  const ReplicaGroup group{placement_, stage.id(), Traffic::reduce, job_->step};
  const auto rows = [&](Replica r, const layers::TrainedParameter& of) {
    return rows_of(of.name, of.value, r).in(of.value);
  };
  group.for_each_other([&](Replica r) {
    Message message;
    for (const auto& one : parameters) message.payloads.push_back({rows_to_send(rows(group.own(), one)), false, true});
    group.send(r, Phase::values, std::move(message));
  });
  group.for_each_other([&](Replica r) {
    const Message message = group.receive(r, Phase::values, "the parameters that another replica updates");
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (const torch::Tensor& value = message.payloads[i].tensor; value.defined())
        rows(r, parameters[i]).copy_(to_device(value, device_));
  });
}

// As torch's clip_grad_norm_ does, after division by the loss scale: a norm of NaN makes all gradients NaN.
torch::Tensor ParameterUpdater::clipped(const torch::Tensor& gradient) const {
  constexpr double small = 1e-6;
  if (!options_.clip_norm) return gradient;
  if (norm_on_device_.defined())
    return gradient * (*options_.clip_norm / (norm_on_device_ + small)).clamp_max(1).to(gradient.scalar_type());
  const double clip = *options_.clip_norm / (*gradient_norm_ + small);
  return clip >= 1 ? gradient : gradient.mul(clip);
}

bool ParameterUpdater::skips_update() const { return scaler_.is_dynamic() && !std::isfinite(*gradient_norm_); }

bool ParameterUpdater::end_update() {
  if (!scaler_.is_dynamic()) return true;
  const bool skips = skips_update();
  if (skips) job_->state->set_update_skipped();
  scaler_.end_step(!skips);
  return !skips;
}

}  // namespace penstock::rank
