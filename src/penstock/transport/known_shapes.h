// What both ends of a boundary message know beforehand: the shape of its tensors, where a pipeline has declared one.
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
  /// From now on every boundary value of `pipeline`, and its gradient, has this shape.
  void declare(std::uint32_t pipeline, std::vector<std::int64_t> shape) {
    const std::lock_guard lock(mutex_);
    shapes_[pipeline] = std::move(shape);
  }

  /// The shape of the tensors of a message with `tag`, if it is known.
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
