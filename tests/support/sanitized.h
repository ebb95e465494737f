// Long loops of tests, shortened under sanitizers.
#pragma once

namespace penstock {

/// The step of loops over many shapes or changes. The sanitizers, which make it ten times slower, look for faults
/// that few iterations show; `ctest --preset planning` takes all of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int loop_step = 4;
#else
inline constexpr int loop_step = 1;
#endif

}  // namespace penstock
