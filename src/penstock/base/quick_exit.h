// Ends a program without destroying what LibTorch registers when it is loaded.
#pragma once

#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace penstock {

/// Flushes the standard streams and ends the process; destroys no object.
[[noreturn]] inline void exit_at_once(int status) {
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);
}

/// For the beginning of main(): when the process ends by return or exit(), objects with static storage that exist by
/// now are not destroyed. LibTorch takes 0.15 s to destroy its tables of operators, and a program needs nothing of
/// that. What is registered later, by atexit() or as a static object, is still called or destroyed before; then the
/// standard streams are flushed.
inline void exit_without_destroying_libraries() {
  ::on_exit([](int status, void*) { exit_at_once(status); }, nullptr);
}

}  // namespace penstock
