#include "penstock/rank/tied_gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include "penstock/base/device_copy.h"

namespace penstock {
namespace {

enum Content : std::int32_t { uses, totals_of_uses, values };

struct Way {
  StageId from;
  StageId to;
  Content content;
};

Tag tag_of(const TieRoute& route, const Way& way) {
  return {route.placement.pipeline(), Traffic::ties, route.round, way.from.value(), way.to.value(), way.content};
}

void send(const TieRoute& route, const Way& way, Message message) {
  route.placement.endpoint().send(route.placement.holder_of(way.to), tag_of(route, way), std::move(message));
}

Message receive(const TieRoute& route, const Way& way, const char* what) {
  return route.placement.endpoint().receive(route.placement.holder_of(way.from), tag_of(route, way), what);
}

/// `arrived` on the device of `like`. Between processes tensors arrive on the CPU.
torch::Tensor here(const torch::Tensor& arrived, const torch::Tensor& like) {
  return to_device(arrived, like.device());
}

/// The indices of the tied parameters among `items` (TrainedParameter or Stage::Held) that stage `owner` owns and stage
/// `user` uses, in the order of their names, so that both stages use the same order.
template <class Items>
std::vector<std::size_t> shared(const Items& items, StageId owner, StageId user) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ParameterUses& all_uses = items[i].all_uses;
    if (!all_uses.list.empty() && all_uses.owner() == owner && all_uses.are_on(user)) by_name[items[i].name] = i;
  }
  std::vector<std::size_t> indices;
  for (const auto& [name, index] : by_name) indices.push_back(index);
  return indices;
}

/// The other stages that share parameters among `items` with `stage`: with `is_owner` the users of those that `stage`
/// owns, otherwise the owners of the others.
template <class Items>
std::set<StageId> partners(const Items& items, StageId stage, bool is_owner) {
  std::set<StageId> found;
  for (const auto& item : items) {
    if (item.all_uses.list.empty()) continue;
    const StageId owner = item.all_uses.owner();
    if ((owner == stage) != is_owner) continue;
    found.insert(owner);
    if (is_owner)
      for (const ParameterUse& use : item.all_uses.list) found.insert(use.stage);
  }
  found.erase(stage);
  return found;
}

}  // namespace

void send_uses(const TieRoute& route, const Stage& stage) {
  const Gradients& gradients = stage.gradients();
  for (const StageId owner : partners(gradients.parameters(), stage.id(), false)) {
    Message message;
    for (std::size_t i : shared(gradients.parameters(), owner, stage.id()))
      for (std::size_t use : gradients.parameters()[i].uses) message.payloads.push_back({gradients.of_use(use), false});
    send(route, {stage.id(), owner, uses}, std::move(message));
  }
}

Tensors sum_tied(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  const Gradients& gradients = stage.gradients();
  const auto& parameters = gradients.parameters();
  std::map<std::pair<std::size_t, StageId>, Tensors> gathered;  // by parameter and stage: one per use
  for (const StageId user : partners(parameters, stage.id(), true)) {
    const Message message = receive(route, {user, stage.id(), uses}, "the gradients of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(parameters, stage.id(), user))
      for (const ParameterUse& use : parameters[i].all_uses.list)
        if (use.stage == user) gathered[{i, user}].push_back(here((payload++)->tensor, parameters[i].value));
  }
  Tensors sums(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].all_uses.is_tied() || parameters[i].all_uses.owner() != stage.id()) continue;
    for (std::size_t use : parameters[i].uses) gathered[{i, stage.id()}].push_back(gradients.of_use(use));
    std::map<StageId, std::size_t> next;
    for (const ParameterUse& use : parameters[i].all_uses.list) {
      const torch::Tensor& one = gathered[{i, use.stage}][next[use.stage]++];
      if (!one.defined()) continue;
      sums[i] = sums[i].defined() ? sums[i].add_(one) : one.clone();
    }
  }
  return sums;
}

void send_totals(const TieRoute& route, const Stage& stage, const Tensors& totals) {
  const auto& parameters = stage.gradients().parameters();
  for (const StageId user : partners(parameters, stage.id(), true)) {
    Message message;
    // Copies, because optimisers and hooks may change gradients in place, and what is sent must not change.
    for (std::size_t i : shared(parameters, stage.id(), user))
      message.payloads.push_back({totals[i].defined() ? totals[i].clone() : totals[i], false});
    send(route, {stage.id(), user, totals_of_uses}, std::move(message));
  }
}

void receive_totals(const TieRoute& route, const Stage& stage, Tensors& totals) {
  const auto& parameters = stage.gradients().parameters();
  for (const StageId owner : partners(parameters, stage.id(), false)) {
    const Message message = receive(route, {owner, stage.id(), totals_of_uses}, "the sums of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(parameters, owner, stage.id()))
      totals[i] = here((payload++)->tensor, parameters[i].value);
  }
}

void send_values(const TieRoute& route, const Stage& stage) {
  for (const StageId user : partners(stage.state(), stage.id(), true)) {
    Message message;
    for (std::size_t i : shared(stage.state(), stage.id(), user))
      message.payloads.push_back({stage.state()[i].value.detach().clone(), false});
    send(route, {stage.id(), user, values}, std::move(message));
  }
}

void receive_values(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  for (const StageId owner : partners(stage.state(), stage.id(), false)) {
    const Message message = receive(route, {owner, stage.id(), values}, "the values of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(stage.state(), owner, stage.id())) {
      torch::Tensor value = stage.state()[i].value;
      value.copy_((payload++)->tensor);
    }
  }
}

}  // namespace penstock
