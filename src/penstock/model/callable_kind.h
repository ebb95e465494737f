// How modules are called that are known by their base class alone.
#pragma once

#include <functional>
#include <memory>
#include <typeinfo>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock {

/// How to call a kind of module that layer_list finds by name: torch registers modules without their types.
struct CallableKind {
  std::function<bool(const torch::nn::Module&)> fits;  // exactly this kind: a derived one may compute something else
  std::function<BuiltLayer(const std::shared_ptr<torch::nn::Module>&)> call;
  std::vector<int> takes;  // numbers of tensors
  int gives = 1;
};

template <class M>
CallableKind callable_kind() {
  CallableKind kind;
  // Generic, so that torch's Module need not be known before M is.
  kind.fits = [](const auto& module) { return typeid(module) == typeid(M); };
  kind.call = [](const auto& module) { return traits::erase<M>(std::dynamic_pointer_cast<M>(module)); };
  if constexpr (traits::TakesOne<M>) kind.takes.push_back(1);
  if constexpr (traits::TakesTwo<M>) kind.takes.push_back(2);
  if constexpr (traits::TakesThree<M>) kind.takes.push_back(3);
  kind.gives = traits::outputs_of<M>();
  return kind;
}

}  // namespace penstock
