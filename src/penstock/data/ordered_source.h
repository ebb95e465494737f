// A source that decides itself in which order and in which batches its samples come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/data/sample_source.h"

namespace penstock {

/// The samples of an epoch, by number, and where each batch ends among them.
struct EpochOrder {
  std::vector<std::int64_t> samples;
  std::vector<std::size_t> ends;
};

/// A Loader asks such a source instead of its own options batch_size, shuffle and drop_last.
class OrderedSource : public SampleSource {
 public:
  /// A function of its arguments. Every epoch has as many batches as every other.
  virtual EpochOrder order(std::uint64_t seed, std::uint64_t epoch) const = 0;
};

}  // namespace penstock
