// Two programs, so that verbs that plan never load LibTorch: `penstock` becomes `penstock-runtime` for the others.
#pragma once

#include <string_view>

#include <CLI/CLI.hpp>

#include "penstock/cli/exit_codes.h"

namespace penstock {

struct RuntimeVerb {
  const char* name;
  const char* purpose;
};

/// The verbs that penstock-runtime knows.
inline constexpr RuntimeVerb runtime_verbs[] = {
    {"train", "train a model, in one process or many"},
    {"evaluate", "loss and accuracy of saved weights on a test set"},
    {"infer", "run a network forward through the pipeline; continue texts"},
    {"bench", "measure Penstock beside its alternatives"},
    {"doctor", "what this machine offers: cores, BLAS, LibTorch, MPI, threads"},
};

bool is_runtime_verb(std::string_view argument);

/// Replaces this program by ../libexec/penstock/penstock-runtime, seen from the folder this program is in; the command
/// line stays as it is, name of the program included. Throws ConfigError when that program is not there (a build without
/// LibTorch), Failure when it cannot be started. Does not return otherwise.
[[noreturn]] void become_runtime_program(const CommandLine& line);

}  // namespace penstock
