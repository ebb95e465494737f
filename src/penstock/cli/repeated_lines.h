// What a file of --json keeps where its training is resumed (docs/json_lines.md).
#pragma once

#include <string>

#include "penstock/checkpoint/manifest.h"

namespace penstock {

/// Removes from the end of a file of --json what the training that goes on at `next` writes again: the lines from that
/// step on, and a last line that breaks off because the run was killed. Leaves a file that is no regular file, or that
/// is not there. Throws Failure where the system refuses it.
void remove_repeated_lines(const std::string& path, const DataPosition& next);

}  // namespace penstock
