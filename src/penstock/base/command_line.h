// What a program is started with.
#pragma once

namespace penstock {

/// The arguments of main().
struct CommandLine {
  int count = 0;
  char** arguments = nullptr;
};

}  // namespace penstock
