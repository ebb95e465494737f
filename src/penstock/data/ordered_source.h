// A sample source that determines the order and the batches of an epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/data/sample_source.h"

namespace penstock {

/// The numbers of an epoch's samples in order, and the end of each batch as an index into them.
struct EpochOrder {
  std::vector<std::int64_t> samples;
  std::vector<std::size_t> ends;
};

/// For such a source, a Loader uses order() in place of its options batch_size, shuffle and drop_last.
class OrderedSource : public SampleSource {
 public:
  /// A pure function. All epochs have the same number of batches.
  virtual EpochOrder order(std::uint64_t seed, std::uint64_t epoch) const = 0;
};

}  // namespace penstock
