// The cores of this machine.
#pragma once

#include <vector>

namespace penstock {

/// The numbers of the processors that share a physical core.
using Core = std::vector<int>;

/// The physical cores that this process may use, with those of their processors that it may use, in the order of the
/// smallest.
std::vector<Core> usable_cores();

/// Binds this process to the cores of a rank, where each rank has as many of usable_cores(): 0: it stays unbound.
struct CoreShare {
  int rank = 0;
  int cores_of_each = 0;
};
void bind_to(const CoreShare& share);

}  // namespace penstock
