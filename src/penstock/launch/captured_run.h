// Runs a short program for its output.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace penstock {

struct CapturedRun {
  std::string output = {};  // what it wrote to standard output
  int status = 0;           // its exit code, or 128 + n if signal n ended it
  bool is_late = false;     // it was killed because it took too long
};

/// Runs the program arguments[0], looked up in PATH, in a process group of its own, with nothing on standard input, and
/// returns what it wrote to standard output; its standard error is that of this process. After `limit` the group is
/// killed. Throws Failure if the program cannot be started.
CapturedRun run_captured(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

}  // namespace penstock
