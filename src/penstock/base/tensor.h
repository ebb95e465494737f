// Tensors and state dicts for headers, without <torch/types.h>, which takes ten times as long to compile.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/TensorBody.h>
#include <torch/ordered_dict.h>

namespace torch {
using at::Tensor;
using c10::ScalarType;
namespace nn {
class Module;
class Sequential;
}  // namespace nn
}  // namespace torch

namespace penstock {

/// Tensors by full name, in the network's order: layers in the order of Cell::named_parameters(), and of each layer the
/// tensors in the order of torch's state_dict(). The order depends neither on the partition nor on the transport.
using StateDict = torch::OrderedDict<std::string, torch::Tensor>;

/// The place of a tensor in its network's StateDict.
struct StatePlace {
  static constexpr std::string_view record_name = "StatePlace";  // sent to other ranks (transport/records.h)
  std::uint64_t layer = 0;                                       // in the network
  std::uint64_t tensor = 0;                                      // in the layer

  auto operator<=>(const StatePlace&) const = default;
};

/// A part of a StateDict: name and tensor by place.
using StateParts = std::map<StatePlace, std::pair<std::string, torch::Tensor>>;

inline StateDict state_dict_of(const StateParts& parts) {
  StateDict state;
  state.reserve(parts.size());
  for (const auto& [place, named] : parts) state.insert(named.first, named.second);
  return state;
}

}  // namespace penstock
