// The message of an exception, without LibTorch's stack frames.
#pragma once

#include <exception>
#include <string>

namespace penstock {

/// The message of `error`, without the stack frames that LibTorch appends to its own.
std::string reason_of(const std::exception& error);
/// The same for an exception of any type, such as "the int 42 was thrown". REQUIRES: `error` is not null.
std::string reason_of(const std::exception_ptr& error);

}  // namespace penstock
