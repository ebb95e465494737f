// The file of --json of a training that is resumed (docs/json_lines.md).
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "penstock/train/hook.h"

namespace penstock {

struct ContinuedJson {
  std::string path;
  /// Whether what the training writes again is removed from the end of the file: its lines from the first step or
  /// test on that is repeated, and a last line that breaks off because the run was killed. False where the checkpoints
  /// of the former training stay as they are, so that its lines must, too.
  bool replaces = false;
};

/// A hook that opens `out`, at the end of the file, when the training begins: until then it may be refused, and the
/// file stays as it is. To be added before the hook that writes to `out`, which must outlive it. Throws Failure where
/// the file cannot be read, shortened or opened.
std::unique_ptr<Hook> continue_json(std::ofstream& out, const ContinuedJson& file);

}  // namespace penstock
