// The error for a file that may be whole. LibTorch-free.
#pragma once

#include "penstock/base/error.h"

namespace penstock {

/// A file that cannot be read here and now, though it may be whole: the system refuses to read it (permissions, a disk
/// or a network that fails), or a later version of Penstock has written it. So no training begins anew in its place.
class NotReadable : public DataError {
 public:
  using DataError::DataError;
};

}  // namespace penstock
