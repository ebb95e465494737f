// Calls modules of which only a pointer to the base class torch::nn::Module is available.
#pragma once

#include <functional>
#include <memory>
#include <typeinfo>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock {

/// One module class that layer_list can call. torch registers submodules by name without their static types, so the
/// class has to be recognised at run time.
struct CallableKind {
  std::function<bool(const torch::nn::Module&)> fits;  // exact type only: a derived class may have another forward
  std::function<BuiltLayer(const std::shared_ptr<torch::nn::Module>&)> call;
  std::vector<int> takes;  // possible numbers of input tensors of forward
  int gives = 1;           // number of output tensors
};

template <class M>
CallableKind callable_kind() {
  CallableKind kind;
  // Generic lambdas, so that torch::nn::Module may be incomplete here.
  kind.fits = [](const auto& module) { return typeid(module) == typeid(M); };
  kind.call = [](const auto& module) { return traits::erase<M>(std::dynamic_pointer_cast<M>(module)); };
  if constexpr (traits::TakesOne<M>) kind.takes.push_back(1);
  if constexpr (traits::TakesTwo<M>) kind.takes.push_back(2);
  if constexpr (traits::TakesThree<M>) kind.takes.push_back(3);
  kind.gives = traits::outputs_of<M>();
  return kind;
}

}  // namespace penstock
