// The shapes of boundary tensors that a pipeline has declared, so that messages need not carry them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "penstock/transport/tag.h"

namespace penstock {

/// The declared boundary shapes of one rank's pipelines. Thread-safe.
class KnownShapes {
 public:
  /// Declares the shape of every boundary value of `pipeline` and of its gradient.
  void declare(std::uint32_t pipeline, std::vector<std::int64_t> shape) {
    const std::lock_guard lock(mutex_);
    shapes_[pipeline] = std::move(shape);
  }

  /// The declared shape of the tensors of a message with `tag`; none where there is none.
  std::optional<std::vector<std::int64_t>> of(const Tag& tag) const {
    if (tag.traffic != Traffic::forward && tag.traffic != Traffic::backward) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto known = shapes_.find(tag.pipeline);
    if (known == shapes_.end()) return std::nullopt;
    return known->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::vector<std::int64_t>> shapes_;
};

}  // namespace penstock
