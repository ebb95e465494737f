// The hand-over from `penstock` to `penstock-runtime`. They are two programs so that planning verbs never load
// LibTorch.
#pragma once

#include <string_view>

#include <CLI/CLI.hpp>

#include "penstock/cli/exit_codes.h"

namespace penstock {

struct RuntimeVerb {
  const char* name;
  const char* purpose;
};

/// The verbs of penstock-runtime.
inline constexpr RuntimeVerb runtime_verbs[] = {
    {"train", "train a model, in one process or many"},
    {"evaluate", "loss and accuracy of saved weights on a test set"},
    {"infer", "run a network forward through the pipeline; continue texts"},
    {"bench", "measure training steps and compare schedules"},
    {"doctor", "properties of this machine: cores, BLAS, LibTorch, MPI, threads"},
};

bool is_runtime_verb(std::string_view argument);

/// Replaces this process by ../libexec/penstock/penstock-runtime, relative to the folder of this program, with the same
/// command line. Throws ConfigError if that program does not exist (a build without LibTorch), Failure if it cannot be
/// started. Does not return otherwise.
[[noreturn]] void become_runtime_program(const CommandLine& line);

}  // namespace penstock
