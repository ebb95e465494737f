// Text and other bytes as messages of one uint8 tensor.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "penstock/transport/transport.h"

namespace penstock {

inline Message text_message(std::string_view text) {
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
  return {{{std::move(bytes), false}}, 0, 0};
}

inline std::string text_of(const Message& message) {
  const torch::Tensor& bytes = message.payloads.at(0).tensor;
  return std::string(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel()));
}

}  // namespace penstock
