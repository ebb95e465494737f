// The function under test of the IDX fuzzer. The tests of the module `data` call it with the corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "penstock/base/error.h"
#include "penstock/data/data_files.h"

namespace penstock {

/// Parses `input`. Refusing it by a DataError is correct. Accepted data must have the size of its shape, within the
/// limit.
inline void try_idx(std::span<const std::uint8_t> input) {
  const IdxLimits limits{.max_bytes = 1 << 20};
  try {
    const IdxArray array = parse_idx(input, "input", limits);
    std::size_t total = 1;
    for (std::int64_t size : array.shape) total *= static_cast<std::size_t>(size);
    require<InternalError>(array.bytes.size() == total && total <= limits.max_bytes, "the shape says ", total,
                           " bytes, and there are ", array.bytes.size());
  } catch (const DataError&) {
  }
}

}  // namespace penstock
