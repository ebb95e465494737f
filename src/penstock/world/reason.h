// What an exception says, in one line where LibTorch threw it.
#pragma once

#include <exception>
#include <string>

namespace penstock {

/// The message of `error`, without the stack frames that LibTorch appends to its own.
std::string reason_of(const std::exception& error);
/// The same for whatever was thrown: "the int 42" is a reason too. `error` is not null.
std::string reason_of(const std::exception_ptr& error);

}  // namespace penstock
