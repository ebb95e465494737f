// Two programs, so that verbs of the mind never load LibTorch: `penstock` becomes `penstock-body` for the others.
#pragma once

#include <string_view>

#include <CLI/CLI.hpp>

#include "penstock/cli/exit_codes.h"

namespace penstock {

struct BodyVerb {
  const char* name;
  const char* purpose;
};

/// The verbs that penstock-body knows.
inline constexpr BodyVerb body_verbs[] = {
    {"train", "train a model, in one process or many"},
    {"evaluate", "loss and accuracy of saved weights on a test set"},
    {"infer", "run a network forward through the pipeline; continue texts"},
    {"bench", "measure Penstock beside its alternatives"},
    {"doctor", "what this machine offers: cores, BLAS, LibTorch, MPI, threads"},
};

bool is_body_verb(std::string_view word);

/// Replaces this program by ../libexec/penstock/penstock-body, seen from the folder this program is in; the command
/// line stays as it is, name of the program included. Throws ConfigError when the body is not there (a build without
/// LibTorch), Failure when it cannot be started. Does not return otherwise.
[[noreturn]] void become_body(const CommandLine& line);

}  // namespace penstock
