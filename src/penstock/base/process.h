// What concerns the whole process: its command line, its environment, the names of its threads, and its end.
#pragma once

#include <stdlib.h>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>

#include <pthread.h>

namespace penstock {

/// The arguments of main().
struct CommandLine {
  int count = 0;
  char** arguments = nullptr;
};

/// Returns the value of a variable of an environment; null if it is not set.
using Environment = std::function<const char*(const char*)>;

/// The environment of this process.
inline const char* own_environment(const char* name) { return std::getenv(name); }

/// Names the calling thread, as `top -H`, gdb and perf show it. Linux keeps 15 bytes; the rest is cut off.
inline void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

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
