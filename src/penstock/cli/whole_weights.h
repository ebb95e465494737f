// The file that --weights names. Free of LibTorch.
#pragma once

#include <string>

namespace penstock {

/// Throws DataError, which names the fix, if `path` is a folder such as a checkpoint, an index, or one of several files
/// of weights: one .safetensors file with all weights is read. Looks at names only.
void require_whole_weights(const std::string& path);

}  // namespace penstock
