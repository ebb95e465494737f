#include "penstock/rank/gradient_reducer.h"

#include <algorithm>
#include <compare>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/base/device_copy.h"
#include "penstock/rank/shared_parameters.h"
#include "penstock/transport/records.h"

namespace penstock::rank {
namespace {

/// The gradients of the parameters in `bucket`.
Summands summands_of(const layers::Gradients& of, const Bucket& bucket, Tensors& gradients) {
  Summands summands;
  for (const std::size_t i : bucket) {
    const layers::TrainedParameter& parameter = of.parameters()[i];
    summands.push_back({parameter.name, parameter.value, &gradients[i]});
  }
  return summands;
}

// The gradients of tied parameters travel in pieces of some rows: tied parameters are large, so that second copies of
// their gradients would be a noticeable part of a rank's memory. The sums are made in the gradients' own memory.
constexpr std::int64_t piece_elements = 1 << 19;
/// How many pieces a stage sends before it receives the total of the first.
constexpr int pieces_ahead = 3;

std::int64_t rows_of_piece(const torch::Tensor& tensor) {
  const std::int64_t row = tensor.numel() / std::max<std::int64_t>(1, tensor.size(0));
  return std::max<std::int64_t>(1, piece_elements / std::max<std::int64_t>(1, row));
}

int pieces_in(const torch::Tensor& tensor) {
  if (tensor.dim() == 0) return 1;
  const std::int64_t rows = rows_of_piece(tensor);
  return static_cast<int>(std::max<std::int64_t>(1, (tensor.size(0) + rows - 1) / rows));
}

/// A view; undefined where `tensor` is.
torch::Tensor piece_of(const torch::Tensor& tensor, int piece) {
  if (!tensor.defined() || tensor.dim() == 0) return tensor;
  const std::int64_t rows = rows_of_piece(tensor), begin = piece * rows;
  return tensor.narrow(0, begin, std::min(rows, tensor.size(0) - begin));
}

/// shared(), without the parameters that have fewer pieces.
std::vector<std::size_t> shared_pieces(const layers::Gradients& gradients, const Way& way) {
  const auto& parameters = gradients.parameters();
  const bool is_to_owner = way.content == Content::uses;
  auto indices = shared(parameters, is_to_owner ? way.to : way.from, is_to_owner ? way.from : way.to);
  std::erase_if(indices, [&](std::size_t i) { return pieces_in(parameters[i].value) <= way.piece; });
  return indices;
}

/// Sends a piece of the gradient of every use of `stage` to the parameter's owner stage, if that is another stage.
void send_uses(const TieRoute& route, const Stage& stage, int piece) {
  const layers::Gradients& gradients = stage.gradients();
  for (const StageId owner : partners(gradients.parameters(), stage.id(), false)) {
    const Way way{stage.id(), owner, Content::uses, piece};
    Message message;
    for (std::size_t i : shared_pieces(gradients, way))
      for (std::size_t use : gradients.parameters()[i].uses)
        message.payloads.push_back({piece_of(gradients.of_use(use), piece), false});
    if (!message.payloads.empty()) route.send(way, std::move(message));
  }
}

/// The memory for the total of a tied parameter: the stage's first gradient of it, which is used up.
torch::Tensor memory_for_total(const layers::Gradients& gradients, const layers::TrainedParameter& parameter) {
  for (const std::size_t use : parameter.uses)
    if (const torch::Tensor own = gradients.of_use(use); own.defined()) return own;
  return torch::empty_like(parameter.value);
}

/// Writes a piece into `total`, which is undefined before the first one.
void put_piece(const torch::Tensor& value, int piece, const layers::Gradients& gradients,
               const layers::TrainedParameter& parameter, torch::Tensor& total) {
  if (!value.defined()) return;
  if (!total.defined()) total = memory_for_total(gradients, parameter);
  const torch::Tensor into = piece_of(total, piece);
  if (!value.is_alias_of(into)) into.copy_(value);
}

/// By parameter of `stage`: a piece of the sum over all uses in graph order, for tied parameters that this stage owns;
/// undefined for the others, and if no use has a gradient. A sum that begins with a use of this stage is made in the
/// memory of that use's gradient. Waits for the uses of other stages.
Tensors sum_uses_of_all(const TieRoute& route, const Stage& stage, int piece) {
  const layers::Gradients& gradients = stage.gradients();
  const auto& parameters = gradients.parameters();
  std::map<std::pair<std::size_t, StageId>, Tensors> gathered;  // by parameter and stage: one per use
  for (const StageId user : partners(parameters, stage.id(), true)) {
    const Way way{user, stage.id(), Content::uses, piece};
    const std::vector<std::size_t> indices = shared_pieces(gradients, way);
    if (indices.empty()) continue;
    const Message message = route.receive(way, "the gradients of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : indices)
      for (const ParameterUse& use : parameters[i].all_uses.list)
        if (use.stage == user)
          gathered[{i, user}].push_back(to_device((payload++)->tensor, parameters[i].value.device()));
  }
  Tensors sums(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterUses& all_uses = parameters[i].all_uses;
    if (!all_uses.is_tied() || all_uses.owner() != stage.id() || pieces_in(parameters[i].value) <= piece) continue;
    for (std::size_t use : parameters[i].uses)
      gathered[{i, stage.id()}].push_back(piece_of(gradients.of_use(use), piece));
    std::map<StageId, std::size_t> next;
    for (const ParameterUse& use : all_uses.list) {
      const torch::Tensor& one = gathered[{i, use.stage}][next[use.stage]++];
      if (!one.defined()) continue;
      if (!sums[i].defined())
        sums[i] = use.stage == stage.id() ? one : one.clone();  // what is received must not change
      else
        sums[i].add_(one);
    }
  }
  return sums;
}

/// Sends a piece of `totals`, by parameter, to the other stages that use the parameters.
void send_totals(const TieRoute& route, const Stage& stage, int piece, const Tensors& totals) {
  const layers::Gradients& gradients = stage.gradients();
  for (const StageId user : partners(gradients.parameters(), stage.id(), true)) {
    const Way way{stage.id(), user, Content::totals, piece};
    Message message;
    // Copies, because optimisers and hooks may change gradients in place, and what is sent must not change.
    for (std::size_t i : shared_pieces(gradients, way))
      message.payloads.push_back({totals[i].defined() ? piece_of(totals[i], piece).clone() : totals[i], false});
    if (!message.payloads.empty()) route.send(way, std::move(message));
  }
}

/// Receives a piece of the totals of parameters that other stages own into `totals`. Waits.
void receive_totals(const TieRoute& route, const Stage& stage, int piece, Tensors& totals) {
  const layers::Gradients& gradients = stage.gradients();
  const auto& parameters = gradients.parameters();
  for (const StageId owner : partners(parameters, stage.id(), false)) {
    const Way way{owner, stage.id(), Content::totals, piece};
    const std::vector<std::size_t> indices = shared_pieces(gradients, way);
    if (indices.empty()) continue;
    const Message message = route.receive(way, "the sums of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : indices)
      put_piece(to_device((payload++)->tensor, parameters[i].value.device()), piece, gradients, parameters[i],
                totals[i]);
  }
}

/// A parameter whose gradient is part of the norm. Ordered as the network first uses the parameters.
struct NormPart {
  static constexpr std::string_view record_name = "NormPart";

  std::int64_t node = 0;       // the first that uses the parameter
  std::int64_t parameter = 0;  // its number among those of the stage

  friend auto operator<=>(const NormPart&, const NormPart&) = default;
};

/// The scalars of `parts` as one tensor.
torch::Tensor stacked_scalars(const Tensors& parts, c10::Device device) {
  return parts.empty() ? torch::empty({0}, torch::TensorOptions(torch::kFloat64).device(device)) : torch::stack(parts);
}

/// The sum of `values` from the first to the last, in `order`.
torch::Tensor ordered_sum(const torch::Tensor& values, const std::vector<std::int64_t>& order) {
  if (order.empty()) return torch::zeros({}, values.options());
  const torch::Tensor indices = to_device(torch::tensor(order), values.device());
  return values.index_select(0, indices).cumsum(0)[-1];
}

}  // namespace

void GradientReducer::begin(const StepJob& job) {
  step_ = job.step;
  if (!job.training || job.is_later_part()) return;
  clear();
  for (const auto& stage : stages_) {
    if (job.shares.continues)
      stage->gradients().scale(job.shares.earlier);
    else
      stage->gradients().begin_step();
  }
}

void GradientReducer::clear() {
  for (const auto& stage : stages_) stage->gradients().watch({});
  sums_.clear();
  leaving_.clear();
  ties_pending_ = false;
}

void GradientReducer::Sums::make(const layers::Gradients& of, std::size_t parameter) {
  gradients.resize(of.parameters().size());
  is_made.resize(of.parameters().size());
  if (is_made[parameter]) return;
  gradients[parameter] = of.sum_of(parameter, layers::Gradients::Summing::in_buffers);
  is_made[parameter] = true;
}

Tensors& GradientReducer::gradients_of(const Stage& stage) {
  Sums& sums = sums_[stage.id()];
  for (std::size_t i = 0; i < stage.gradients().parameters().size(); ++i) sums.make(stage.gradients(), i);
  return sums.gradients;
}

Tensors GradientReducer::gradients_so_far(const Stage& stage) const {
  const auto known = sums_.find(stage.id());
  if (known != sums_.end()) return known->second.gradients;
  Tensors sums;
  for (std::size_t i = 0; i < stage.gradients().parameters().size(); ++i)
    sums.push_back(stage.gradients().sum_of(i, layers::Gradients::Summing::apart));
  return sums;
}

Tensors GradientReducer::take(const Stage& stage) {
  Tensors gradients = std::move(gradients_of(stage));
  sums_.erase(stage.id());
  return gradients;
}

ReplicaGroup GradientReducer::group_of(const Stage& stage, std::size_t bucket) const {
  return {placement_, stage.id(), Traffic::reduce, step_, static_cast<int>(bucket)};
}

GradientReducer::Leaving& GradientReducer::leaving(const Stage& stage) {
  const auto [known, is_new] = leaving_.try_emplace(stage.id());
  Leaving& leaving = known->second;
  if (!is_new || placement_.context().replicas == 1) return leaving;
  const auto& parameters = stage.gradients().parameters();
  bool is_on_one_host = true;
  group_of(stage, 0).for_each_other(
      [&](Replica r) { is_on_one_host &= placement_.endpoint().shares_host(placement_.holder_of(stage.id(), r)); });
  leaving.buckets = buckets_of(stage.gradients(), is_on_one_host ? Departure::at_once : Departure::in_buckets);
  for (const Bucket& bucket : leaving.buckets) {
    std::set<std::size_t>& uses = leaving.awaited.emplace_back();
    for (const std::size_t i : bucket) uses.insert(parameters[i].uses.begin(), parameters[i].uses.end());
  }
  leaving.is_summed.resize(leaving.buckets.size());
  return leaving;
}

void GradientReducer::send_bucket(const Stage& stage, std::size_t bucket) {
  Leaving& leaving = this->leaving(stage);
  Sums& sums = sums_[stage.id()];
  leaving.awaited[bucket].clear();
  for (const std::size_t i : leaving.buckets[bucket]) sums.make(stage.gradients(), i);
  send_parts(group_of(stage, bucket), summands_of(stage.gradients(), leaving.buckets[bucket], sums.gradients));
}

void GradientReducer::sum_bucket(const Stage& stage, std::size_t bucket, ReducedRows which) {
  Leaving& leaving = this->leaving(stage);
  leaving.is_summed[bucket] = true;
  Tensors& gradients = sums_[stage.id()].gradients;
  sum_own_rows(group_of(stage, bucket), summands_of(stage.gradients(), leaving.buckets[bucket], gradients), which);
}

void GradientReducer::send_as_completed(Stage& stage, ReducedRows which) {
  if (leaving(stage).buckets.size() <= 1) return;
  stage.gradients().watch([this, &stage, which](std::size_t use) {
    Leaving& leaving = this->leaving(stage);
    for (std::size_t b = 0; b < leaving.buckets.size(); ++b)
      if (leaving.awaited[b].erase(use) > 0 && leaving.awaited[b].empty()) send_bucket(stage, b);
    for (std::size_t b = 0; b < leaving.buckets.size(); ++b)
      if (leaving.awaited[b].empty() && !leaving.is_summed[b] && group_of(stage, b).have_arrived(Phase::parts))
        sum_bucket(stage, b, which);
  });
}

void GradientReducer::send(Stage& stage) {
  Leaving& leaving = this->leaving(stage);
  if (std::exchange(leaving.has_left, true)) return;
  stage.gradients().watch({});
  for (int piece = 0; piece < pieces_ahead; ++piece) send_uses({placement_, step_}, stage, piece);
  ties_pending_ = true;
  for (std::size_t b = 0; b < leaving.buckets.size(); ++b)
    if (!leaving.awaited[b].empty()) send_bucket(stage, b);
}

void GradientReducer::reduce(Stage& stage, ReducedRows which) {
  send(stage);
  const Leaving& leaving = this->leaving(stage);
  Tensors& gradients = gradients_of(stage);
  for (std::size_t b = 0; b < leaving.buckets.size(); ++b)
    if (!leaving.is_summed[b]) sum_bucket(stage, b, which);
  if (which == ReducedRows::own) return;
  for (std::size_t b = 0; b < leaving.buckets.size(); ++b)
    receive_sums(group_of(stage, b), summands_of(stage.gradients(), leaving.buckets[b], gradients));
}

// In each round all stages of this rank sum and send before any waits for the totals of others, and what a stage waits
// for was sent in this round or an earlier one: no order of the stages can deadlock.
void GradientReducer::finish_ties() {
  if (!std::exchange(ties_pending_, false)) return;
  const torch::NoGradGuard no_grad;
  const TieRoute route{placement_, step_};
  int pieces = 0;
  for (const auto& stage : stages_)
    for (const layers::TrainedParameter& parameter : stage->gradients().parameters())
      if (parameter.all_uses.is_tied()) pieces = std::max(pieces, pieces_in(parameter.value));
  for (int piece = 0; piece < pieces; ++piece) {
    for (const auto& stage : stages_) sum_tied(*stage, piece);
    for (const auto& stage : stages_) {
      receive_totals(route, *stage, piece, gradients_of(*stage));
      send_uses(route, *stage, piece + pieces_ahead);
    }
  }
}

void GradientReducer::sum_tied(const Stage& stage, int piece) {
  const TieRoute route{placement_, step_};
  const auto& parameters = stage.gradients().parameters();
  Tensors sums = sum_uses_of_all(route, stage, piece);
  const ReplicaGroup group{placement_, stage.id(), Traffic::ties, step_, piece};
  std::vector<std::size_t> owned;
  std::vector<Summand> summands;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterUses& all_uses = parameters[i].all_uses;
    if (!all_uses.is_tied() || all_uses.owner() != stage.id() || pieces_in(parameters[i].value) <= piece) continue;
    owned.push_back(i);
    summands.push_back({parameters[i].name, piece_of(parameters[i].value, piece), &sums[i]});
  }
  if (owned.empty()) return;
  send_parts(group, summands);
  sum_own_rows(group, summands, ReducedRows::all);
  receive_sums(group, summands);
  Tensors& gradients = gradients_of(stage);
  for (const std::size_t i : owned) put_piece(sums[i], piece, stage.gradients(), parameters[i], gradients[i]);
  send_totals(route, stage, piece, gradients);
}

void GradientReducer::divide(double divisor) {
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_)
    for (torch::Tensor& gradient : gradients_of(*stage))
      if (gradient.defined()) gradient = gradient / divisor;  // not in place: copies share it
}

// Every rank sends the squared norm of each of its gradients (of a tied parameter only its owner) to the first rank,
// which sums them in the order in which the network uses the parameters and sends the sum to all.
torch::Tensor GradientReducer::norm(c10::Device device) {
  const torch::NoGradGuard no_grad;
  std::vector<NormPart> parts;
  Tensors squares;
  for (const auto& stage : stages_) {
    const Tensors& gradients = gradients_of(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ParameterUses& all_uses = stage->gradients().parameters()[i].all_uses;
      if (!gradients[i].defined() || all_uses.owner() != stage->id()) continue;
      parts.push_back({all_uses.list.front().node, static_cast<std::int64_t>(i)});
      squares.push_back(as_real(gradients[i]).norm(2, torch::kFloat64).square());
    }
  }
  DataPlane& endpoint = placement_.endpoint();
  const RankContext& context = placement_.context();
  const auto tag = [&](bool up, Rank rank) {
    return Tag{placement_.pipeline(), Traffic::reduce, step_, placement_.stage_count(), up ? 0 : 1, rank.value()};
  };
  const auto at = [&](Rank rank) { return context.rank_of(rank, placement_.replica()); };
  Message own = transport::message_of(parts);
  own.payloads.push_back({stacked_scalars(squares, device), false});
  endpoint.send(at(Rank(0)), tag(true, placement_.rank()), std::move(own));
  if (placement_.rank() == Rank(0)) {
    std::vector<std::pair<NormPart, std::int64_t>> all;  // with its index in `values`
    Tensors values;
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next()) {
      const Message message = endpoint.receive(at(rank), tag(true, rank), "gradient norms");
      for (const NormPart& part : transport::records_in<NormPart>(message))
        all.emplace_back(part, static_cast<std::int64_t>(all.size()));
      values.push_back(to_device(message.payloads[1].tensor, device));
    }
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> order;
    for (const auto& [part, index] : all) order.push_back(index);
    const torch::Tensor norm = ordered_sum(torch::cat(values), order).sqrt();
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next())
      endpoint.send(at(rank), tag(false, rank), {{{norm, false}}});
  }
  const Message total = endpoint.receive(at(Rank(0)), tag(false, placement_.rank()), "the gradient norm");
  return to_device(total.payloads.front().tensor, device);
}

}  // namespace penstock::rank
